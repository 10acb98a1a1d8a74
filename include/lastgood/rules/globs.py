"""Patterns over names: `ablation-*` is every name that begins so.

`*` stands for any characters, also none; nothing else is special. So it can be told, without any
name at hand, whether one pattern covers another and whether two can match the same name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lastgood.rules.document import Node

_PATTERN = re.compile(r"[a-z0-9*][a-z0-9._*-]*")
_NAME_LIMIT = 63
_NO_NAME = "/"  # a character that no name has


@dataclass(frozen=True)
class Glob:
    """A pattern over names. The constructor trusts its text; `read` checks it."""

    text: str = "*"

    @classmethod
    def read(cls, node: Node) -> Glob:
        """Read it from a document; one that could match no name is refused."""
        text = re.sub(r"\*+", "*", node.text(200))
        if not _PATTERN.fullmatch(text) or len(text.replace("*", "")) > _NAME_LIMIT:
            raise node.error(
                f"{node.shown} matches nothing: a name is 1 to {_NAME_LIMIT} of a-z 0-9 . _ -, and"
                " * stands for any of them"
            )
        return cls(text)

    @property
    def matches_all(self) -> bool:
        return self.text == "*"

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None

    def covers(self, other: Glob) -> bool:
        """Whether it matches every name that the other matches."""
        # What only a star can match stands for whatever the other's stars may stand for.
        return self._expression.fullmatch(other.text.replace("*", _NO_NAME)) is not None

    def meets(self, other: Glob) -> bool:
        """Whether some text is matched by both."""
        return _meet(self.text, other.text)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(".*".join(map(re.escape, self.text.split("*"))))

    def __str__(self) -> str:
        return self.text


ALL = Glob()


@lru_cache(maxsize=1024)
def _meet(one: str, other: str) -> bool:
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return _meet(one[1:], other) or _meet(one, other[1:])
    if other[0] == "*":
        return _meet(other, one)
    return one[0] == other[0] and _meet(one[1:], other[1:])
