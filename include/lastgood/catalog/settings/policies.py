"""Versions of policies, parsed. A version is known by its digest, so each is parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lastgood.catalog.settings.policy_versions import PolicyVersion
from lastgood.rules.policy import Policy


def parsed(version: PolicyVersion) -> Policy:
    """The policy of a version."""
    name = f"{version.policy} version {version.version}"
    return _parsed(_ByDigest(version.digest, version.document), name)


class _ByDigest:
    """A document that is equal to another with the same digest."""

    def __init__(self, digest: str, document: Mapping[str, Any]) -> None:
        self.digest = digest
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=256)
def _parsed(document: _ByDigest, name: str) -> Policy:
    return Policy.parse(document.document, where=name)
