"""Encryption at rest of a store, read back from what lies in it, for each report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import report_facts
from lastgood.catalog.settings import projects
from lastgood.rules.store_profile import Answer, Finding
from lastgood.stores.base import Key, StoreError
from lastgood.stores.open import Stores
from lastgood.stores.s3_encryption import ALGORITHMS

AS_ASKED, UNKNOWN, DECLARED, NOT_ASKED = "as-asked", "unknown", "declared", "not-asked"


@dataclass(frozen=True, slots=True)
class AtRest:
    """`asked` is the word of the store's configuration; `told` what came of it: as asked, unknown,
    declared (a word that no store can read back), or not asked."""

    asked: str | None = None
    told: str = NOT_ASKED
    evidence: str = "nothing was asked for"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@runtime_checkable
class TellsEncryption(Protocol):
    """A store that says of an object how it is encrypted."""

    def encryption_of(self, key: Key) -> Finding:
        """What the store tells of an object's encryption at rest."""


def read_back(catalog: Catalog, stores: Stores, name: str, project: str) -> AtRest:
    """Ask for a manifest and an object of the project's newest copy in the store. A store that does
    not answer is unknown, and stops nothing."""
    with catalog.transaction() as tx:
        asked = projects.store(tx, name).config.get("encryption")
        written = [Key(key) for key in report_facts.newest_keys(tx, project, name)]
    if asked not in ALGORITHMS:
        words = asked is not None and asked != "none"
        return AtRest(asked, DECLARED, "as its configuration says") if words else AtRest(asked)
    if not written:
        return AtRest(asked, NOT_ASKED, "the project has no copy there yet")
    try:
        store = stores[name]
        assert isinstance(store, TellsEncryption)
        found = {key: store.encryption_of(key) for key in written}
    except StoreError as error:
        return AtRest(asked, UNKNOWN, str(error))
    for key, one in found.items():
        if one.answer is not Answer.YES:
            return AtRest(asked, UNKNOWN, f"{key}: {one.evidence}")
    return AtRest(asked, AS_ASKED, f"{written[0]}: {found[written[0]].evidence}")
