"""What a kept inventory says: every byte of a store in one line, every disagreement with a cause.

An inventory that is not whole raises: nothing may be concluded from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from lastgood.flows.inventories.accounts import Account, account_of, accounted_by
from lastgood.flows.inventories.causes import causes_of, listed_causes
from lastgood.flows.inventories.join import Disagreeing, Join, engine
from lastgood.flows.inventories.kept import KeptManifest, Place
from lastgood.flows.inventories.merge import Absence, Cause, Entry, settle, settle_upload
from lastgood.flows.inventories.numbers import numbers_in, unreadable_in
from lastgood.flows.inventories.owners import Owners
from lastgood.flows.inventories.rows import read_owned, rows_of
from lastgood.flows.inventories.taking import ListingUnusable
from lastgood.flows.inventories.tally import Amount, Difference, Tally
from lastgood.flows.inventories.tally import Place as DifferencePlace
from lastgood.flows.inventories.usage import WHOLE_STORE
from lastgood.rules.accounting import ALLOCATION_CAUSES, Compared, Unreadable, compare
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import Key, PendingUpload, UploadId


@dataclass(frozen=True, slots=True)
class Inventory:
    """One store at one time. Instants are the catalog's (UTC). `compared` are further numbers of
    the backend, `unreadable` those that it did not tell, `causes` every named cause of the whole
    store, `counts` what the catalog had by state, by project."""

    store: str
    inventory: str
    source: str
    started_at: datetime
    finished_at: datetime
    listed: Amount
    uploads: Amount
    passes: int
    in_flight: Amount
    tally: Tally
    differences: Mapping[DifferencePlace, Difference]
    whole: Account
    by_project: Mapping[str, Account]
    compared: Sequence[Compared]
    unreadable: Sequence[Unreadable]
    causes: Mapping[str, Amount]
    counts: Mapping[str, Mapping[str, Sequence[int]]]


def explain(place: Place, manifest: KeptManifest) -> Inventory:
    """What a kept inventory says, from its files alone. Raises InventoryUnusable for files that are
    not as they were written, ListingUnusable for a store that shares no key with the catalog."""
    tally = Tally()
    with place.opened(manifest) as paths, engine() as db:
        join = Join(db, manifest, paths)
        tally.add_all(_settled(join.disagreeing(), _owners(manifest, paths, "owned"), manifest))
        again = _owners(manifest, paths, "rechecked-owned")
        tally.add_all(_settled(join.rechecked(), again, manifest))
        _add_agreed(tally, join)
        for owners, pending in _uploads(manifest, paths):
            tally.add_all(settle_upload(one, owners) for one in pending)
        causes = listed_causes(db, join.effective())
    _refuse_strangers(manifest, tally)
    allocation = {name: causes[name].size_bytes for name in ALLOCATION_CAUSES}
    total = tally.total_bytes()
    compared = [
        compare(
            one,
            listed_bytes=total,
            allocation=allocation,
            apparent=manifest.usages[WHOLE_STORE].causes,
        )
        for one in numbers_in(manifest.numbers)
    ]
    accounts = _accounts(manifest, tally, compared)
    uploads = Amount(manifest.upload_bytes, manifest.uploads)
    return Inventory(
        store=manifest.store,
        inventory=manifest.inventory,
        source=manifest.source,
        started_at=manifest.started_at,
        finished_at=manifest.finished_at,
        listed=Amount(manifest.size_bytes, manifest.objects),
        uploads=uploads,
        passes=manifest.passes,
        in_flight=Amount(manifest.in_flight_bytes, manifest.in_flight_objects),
        tally=tally,
        differences=tally.differences,
        whole=accounts[WHOLE_STORE],
        by_project={name: one for name, one in accounts.items() if name != WHOLE_STORE},
        compared=compared,
        unreadable=unreadable_in(manifest.numbers),
        causes=causes_of(causes, tally.differences, uploads, compared),
        counts=manifest.counts,
    )


def _settled(
    keys: Iterator[Disagreeing], owners: Owners, manifest: KeptManifest
) -> Iterator[Entry | Absence]:
    for one in keys:
        yield from settle(one.key, one.listed, one.expected, owners, hides=manifest.hides)


def _owners(manifest: KeptManifest, paths: Mapping[str, Path], role: str) -> Owners:
    owned = (one for file in manifest.of(role) for one in read_owned(paths[file.name]))
    return Owners(owned, manifest.projects)


def _add_agreed(tally: Tally, join: Join) -> None:
    for (project, line), objects in join.agreed.objects.items():
        tally.agree(project, line, join.agreed.size_bytes[project, line], objects)


def _uploads(
    manifest: KeptManifest, paths: Mapping[str, Path]
) -> Iterator[tuple[Owners, Iterator[PendingUpload]]]:
    """The pending uploads with who owned what: those below what was re-checked, and the others."""
    if not manifest.uploads:
        return
    moving = sorted(manifest.moving)
    for role, is_moving in (("owned", False), ("rechecked-owned", True)):
        rows = (row for file in manifest.of("uploads") for row in rows_of(paths[file.name]))
        pending = (one for one in _pending(rows) if _is_below(one.key, moving) is is_moving)
        yield _owners(manifest, paths, role), pending


def _is_below(key: str, prefixes: Sequence[str]) -> bool:
    return any(key.startswith(prefix) for prefix in prefixes)


def _pending(rows: Iterator[Mapping[str, Any]]) -> Iterator[PendingUpload]:
    for (key, upload_id), group in groupby(rows, key=lambda row: (row["key"], row["upload_id"])):
        parts = list(group)
        yield PendingUpload(
            Key(key.decode("utf-8", "surrogatepass")),
            UploadId(upload_id),
            sum(part["size"] for part in parts),
            sum(part["part_number"] is not None for part in parts),
            parts[0]["modified"],
        )


def _refuse_strangers(manifest: KeptManifest, tally: Tally) -> None:
    """Not one key in common is the sign of a wrong place or of keys read by another rule, never of
    a store in which everything is lost and everything is new."""
    if tally.others and tally.absent and not tally.recognised:
        reason = (
            f"none of its {tally.others} keys is known,"
            f" and all {tally.absent} expected ones are absent"
        )
        raise ListingUnusable(store=manifest.store, key="", reason=reason)


def _accounts(
    manifest: KeptManifest, tally: Tally, compared: Sequence[Compared]
) -> dict[str, Account]:
    """The account of the store and of each project. Bytes that only an accounting shows are
    unexplained, and a finding of the way that shows them."""
    accounts = {}
    for scope, usage in manifest.usages.items():
        before = None if manifest.usages_before is None else manifest.usages_before[scope]
        project = None if scope == WHOLE_STORE else scope
        told = accounted_by(usage, compared) if project is None else accounted_by(usage, ())
        account = account_of(tally, project, told, before)
        accounts[scope] = account
        for how, size_bytes in account.gaps.items():
            tally.gap(project, size_bytes, how)
    return accounts


__all__ = ["Cause", "Inventory", "Line", "ListingUnusable", "explain"]
