"""What names one version of a policy: `default@v7`, and a policy alone for its newest version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lastgood.errors import InvalidInput

_NAMED = re.compile(
    r"(?P<policy>[a-z0-9][a-z0-9._-]{0,62})(?:(?:@v|:)(?P<version>[1-9][0-9]{0,8}))?"
)


@dataclass(frozen=True, slots=True)
class PolicyName:
    """A policy and the number of one version of it; None is the newest."""

    policy: str
    version: int | None

    @classmethod
    def parse(cls, text: str, where: str) -> PolicyName:
        """Read `default@v7` (or `default:7`), or `default`. Raises InvalidInput."""
        found = _NAMED.fullmatch(text)
        if found is None:
            reason = f"{text!r} names no version of a policy; give it as in default@v7"
            raise InvalidInput(where=where, reason=reason)
        number = found["version"]
        return cls(found["policy"], None if number is None else int(number))

    def __str__(self) -> str:
        return self.policy if self.version is None else f"{self.policy}@v{self.version}"
