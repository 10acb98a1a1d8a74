"""The policy in force, parsed. A policy is known by its digest, so each is parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lastgood.catalog import projects
from lastgood.catalog.db import Transaction
from lastgood.rules.policy import Policy


def policy_of(tx: Transaction, project: str) -> Policy:
    """The policy in force for a project now. Raises CatalogSetup if there is none."""
    version = projects.current_policy(tx, project)
    return _parsed(_ByDigest(version.digest, version.document), version.policy)


class _ByDigest:
    """A document that is equal to another with the same digest."""

    def __init__(self, digest: str, document: Mapping[str, Any]) -> None:
        self.digest = digest
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByDigest) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=64)
def _parsed(document: _ByDigest, name: str) -> Policy:
    return Policy.parse(document.document, where=name)
