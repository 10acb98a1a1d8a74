"""Taking a store's inventory: every byte of it in one line, every disagreement with a cause.

A listing is not atomic. What changed while it ran is looked at once more, and what then agrees is
counted as in flight. A listing that did not finish raises: nothing may be concluded from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lastgood.catalog import history, inventory
from lastgood.catalog.db import Catalog, Transaction
from lastgood.flows.inventory_accounts import Account, account_of
from lastgood.flows.inventory_merge import Cause, merge, merge_uploads
from lastgood.flows.inventory_owners import Owners
from lastgood.flows.inventory_tally import Amount, Difference, Place, Tally
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import Listing, Prefix, Store, StoredObject, StoreError, Usage

Progress = Callable[[str, int], None]
"""Called with a phase and the number of keys done in it."""

PASSES = 3  # a store that is written to is listed again until its totals agree, at most so often
_PROGRESS_EVERY = 1_000
_UNCOMMITTED = timedelta(minutes=1)  # what was recorded so shortly before may be committed after


class ListingUnusable(StoreError):
    """The listing of store {store} cannot be used: {reason}. Nothing is reported and nothing is
    swept."""

    type = "listing-unusable"


@dataclass(frozen=True, slots=True)
class Inventory:
    """One store at one time. Instants are the catalog's (UTC)."""

    store: str
    started_at: datetime
    finished_at: datetime
    listed: Amount
    uploads: Amount
    passes: int
    in_flight: Amount
    tally: Tally
    differences: Mapping[Place, Difference]
    whole: Account
    by_project: Mapping[str, Account]


def take(
    catalog: Catalog,
    store: Store,
    *,
    accounts_for: Collection[str] = (),
    projects: Collection[str],
    progress: Progress = lambda phase, done: None,
) -> Inventory:
    """List `store` and join it with the catalog.

    `projects` are all that may own keys; for those in `accounts_for` the backend is also asked for
    their own part. Raises StoreError, or ListingUnusable for a listing that did not finish.
    """
    for number in range(1, PASSES + 1):
        before = None if number == 1 else _usages(store, accounts_for)
        taken = _one_pass(catalog, store, accounts_for, projects, before, number, progress)
        accounts = [taken.whole, *taken.by_project.values()]
        if all(one.is_exact for one in accounts):
            break
    return taken


def _one_pass(
    catalog: Catalog,
    store: Store,
    accounts_for: Collection[str],
    projects: Collection[str],
    before: Mapping[str | None, Usage] | None,
    number: int,
    progress: Progress,
) -> Inventory:
    tally, listed, uploads = Tally(), Amount(), Amount()
    with catalog.transaction() as tx:
        started_at = history.now(tx)
        _join(tx, store, tally, listed, projects, Prefix(""), progress)
        _join_uploads(tx, store, tally, uploads, projects, progress)
    _refuse_strangers(store, tally, listed)
    after = _usages(store, accounts_for)
    with catalog.transaction() as tx:
        in_flight = _look_again(tx, store, tally, started_at - _UNCOMMITTED, projects)
        finished_at = history.now(tx)
    accounts = {
        scope: account_of(tally, scope, usage, None if before is None else before[scope])
        for scope, usage in after.items()
    }
    for scope, account in accounts.items():
        _note_gap(tally, scope, account)
    return Inventory(
        store=store.name,
        started_at=started_at,
        finished_at=finished_at,
        listed=listed,
        uploads=uploads,
        passes=number,
        in_flight=in_flight,
        tally=tally,
        differences=tally.differences,
        whole=accounts[None],
        by_project={scope: account for scope, account in accounts.items() if scope is not None},
    )


def _join(
    tx: Transaction,
    store: Store,
    tally: Tally,
    listed: Amount,
    projects: Collection[str],
    below: Prefix,
    progress: Progress,
) -> None:
    listing = store.list(below, versions=store.profile.versioned)
    tally.add_all(
        merge(
            _counted(store, listing, listed, progress),
            inventory.expected_objects(tx, store.name, below=below),
            Owners(inventory.owned_prefixes(tx, store.name, below=below), projects),
            hides=store.profile.hides,
        )
    )
    if not listing.complete:
        raise ListingUnusable(store=store.name, key=below, reason="it did not finish")


def _counted(
    store: Store, listing: Listing[StoredObject], listed: Amount, progress: Progress
) -> Iterator[StoredObject]:
    """The same objects, counted and held to their order: a join over an unordered listing would
    call present objects missing."""
    last = ""
    for item in listing:
        if item.key < last:
            reason = f"{item.key!r} comes after {last!r}, out of order"
            raise ListingUnusable(store=store.name, key=item.key, reason=reason)
        last = item.key
        listed.add(item.size_bytes)
        if listed.objects % _PROGRESS_EVERY == 0:
            progress("objects", listed.objects)
        yield item
    progress("objects", listed.objects)


def _join_uploads(
    tx: Transaction,
    store: Store,
    tally: Tally,
    uploads: Amount,
    projects: Collection[str],
    progress: Progress,
) -> None:
    pending = store.uploads(Prefix(""))
    owners = Owners(inventory.owned_prefixes(tx, store.name), projects)
    for entry in merge_uploads(pending, owners):
        tally.add(entry)
        uploads.add(entry.size_bytes)
    progress("uploads", uploads.objects)
    if not pending.complete:
        reason = "its list of pending uploads did not finish"
        raise ListingUnusable(store=store.name, key="", reason=reason)


def _refuse_strangers(store: Store, tally: Tally, listed: Amount) -> None:
    """Not one key in common is the sign of a wrong place or of keys read by another rule, never of
    a store in which everything is lost and everything is new."""
    if listed.objects and tally.absent and not tally.recognised:
        reason = (
            f"none of its {listed.objects} keys is known,"
            f" and all {tally.absent} expected ones are absent"
        )
        raise ListingUnusable(store=store.name, key="", reason=reason)


def _usages(store: Store, accounts_for: Collection[str]) -> Mapping[str | None, Usage]:
    """What the backend accounts for the whole store (None) and for each project's prefixes."""
    usages: dict[str | None, Usage] = {None: store.usage(Prefix(""))}
    for project in accounts_for:
        parts = [store.usage(Prefix(one)) for one in inventory.project_prefixes(project)]
        causes: dict[str, int] = {}
        for part in parts:
            for cause, size_bytes in part.causes.items():
                causes[cause] = causes.get(cause, 0) + size_bytes
        used = sum(part.used_bytes for part in parts)
        usages[project] = Usage(used, parts[0].total_bytes, parts[0].how, None, causes)
    return usages


def _look_again(
    tx: Transaction, store: Store, tally: Tally, since: datetime, projects: Collection[str]
) -> Amount:
    """List anew what disagreed where something happened meanwhile; answers what agrees by now."""
    settled = Amount()
    disagreeing = {place.key_range for place in tally.differences}
    for prefix in disagreeing.intersection(inventory.touched_since(tx, store.name, since)):
        fresh = Tally()
        _join(tx, store, fresh, Amount(), projects, Prefix(prefix), lambda phase, done: None)
        old = tally.take_out(prefix)
        for place, difference in fresh.differences.items():
            tally.differences[place] = difference
        for place, difference in old.items():
            now = fresh.differences.get(place, Difference())
            agreed = difference.amount.objects - now.amount.objects
            settled.add(difference.amount.size_bytes - now.amount.size_bytes, agreed)
            gone = Amount(
                difference.in_store.size_bytes - now.in_store.size_bytes,
                difference.in_store.objects - now.in_store.objects,
            )
            if gone.objects or gone.size_bytes:
                tally.reassign(place, gone, fresh)
    return settled


def _note_gap(tally: Tally, scope: str | None, account: Account) -> None:
    """Bytes that the backend accounts for and no listing shows are unexplained, and a finding."""
    if account.unlisted_bytes:
        tally.gap(scope, account.unlisted_bytes)


__all__ = ["Cause", "Inventory", "Line", "ListingUnusable", "take"]
