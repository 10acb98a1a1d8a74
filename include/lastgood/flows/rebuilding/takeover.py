"""Whose stores are these, and may this catalog take them over?

The id that the stores name stays: a catalog that comes back later has it too, finds a higher
incarnation than its own, and refuses. Order: the incarnation goes into every store first, then the
catalog takes the identity, and it serves nothing until the end of the rebuild is recorded. So of
two catalogs that rebuild at once one meets the other's incarnation and stops, and after a crash
anywhere the next rebuild goes on, or over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from lastgood.catalog import control
from lastgood.catalog.control import Identity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.rebuilding.rebuilds import Rebuild
from lastgood.catalog.settings import projects
from lastgood.errors import Conflict, ForeignCatalog, InvalidInput, Unavailable
from lastgood.faults import point
from lastgood.flows import control_keys
from lastgood.flows.drills import scratch
from lastgood.flows.rebuilding.scan import Scan
from lastgood.stores.base import Store


def owner_to_be(catalog: Catalog, scans: Sequence[Scan]) -> str:
    """The id that the catalog will have: the one that the stores name, else its own.

    Raises ForeignCatalog if this catalog has a history of its own and a store is another's,
    Conflict for stores of several catalogs, Unavailable for a store that was used and lost its
    claim, and InvalidInput for a project that is not configured.
    """
    with catalog.transaction() as tx:
        ours = str(control.identity(tx).catalog_id)
        own = {ours, *rebuilds.former_ids(tx)}
        has_history = rebuilds.has_history(tx)
        for scan in scans:
            _require_its_place(tx, scan)
        _require_projects(tx, scans)
    others = {scan.owner: scan.store for scan in scans if scan.owner not in (None, *own)}
    if not others:
        return ours
    owner, store = next(iter(others.items()))
    assert owner is not None
    if has_history:
        raise ForeignCatalog(store=store, owner=owner, ours=ours)
    if len(others) > 1:
        named = ", ".join(f"{store} to {owner}" for owner, store in others.items())
        raise Conflict(
            reason=f"the stores belong to different catalogs ({named}); name those of"
            " one with --store"
        )
    for scan in scans:
        if scan.owner in own and not scan.is_empty:
            raise ForeignCatalog(store=scan.store, owner=str(scan.owner), ours=owner)
    return owner


def _require_its_place(tx: Transaction, scan: Scan) -> None:
    """An empty folder where a disk should be mounted must not count as a store that lost all."""
    if scan.owner is None and projects.is_used(tx, scan.store):
        reason = "control/catalog.json is not there: is this the place that was used?"
        raise Unavailable(what=f"store {scan.store}", reason=reason)


def _require_projects(tx: Transaction, scans: Sequence[Scan]) -> None:
    configured = set(projects.names(tx))
    for scan in scans:
        drills = {scratch.project_of(scan.store)}
        unknown = sorted({stage.project for stage in scan.stages()} - configured - drills)
        if unknown:
            raise InvalidInput(
                where=f"store {scan.store}",
                reason=f"it holds projects that are not configured: {', '.join(unknown)}; add"
                " projects/<name>.yaml for each and run `lastgood apply`",
            )


def begin(
    catalog: Catalog,
    stores: Mapping[str, Store],
    scans: Sequence[Scan],
    owner: str,
    *,
    actor: str,
    because: str,
) -> Rebuild:
    """Take the stores over, or go on with a rebuild that was begun and not ended. The project in
    which drills wrote is nobody's to configure: it is made again. Raises CatalogBehind if another
    rebuild was first."""
    for scan in scans:
        if scratch.project_of(scan.store) in {stage.project for stage in scan.stages()}:
            scratch.open_scratch(catalog, scan.store)
    with catalog.transaction() as tx:
        ours = control.identity(tx)
        current = rebuilds.current(tx)
    for scan in scans:
        if scan.owner not in (None, owner):
            control_keys.disown(stores[scan.store])
    going_on = current is not None and not current.ended and _still_ours(stores, scans, ours)
    if current is not None and going_on:
        for store in stores.values():
            control_keys.take_over(store, ours)
        return current
    highest = max(ours.incarnation, *(scan.incarnation for scan in scans))
    new = Identity(UUID(owner), highest + 1, uuid4())
    assert new.rebuild_id is not None
    for store in stores.values():
        control_keys.take_over(store, new)
    point("rebuild.after-incarnation")
    with catalog.transaction() as tx:
        rebuilds.begin(
            tx,
            rebuild_id=new.rebuild_id,
            catalog_id=new.catalog_id,
            incarnation=new.incarnation,
            stores=list(stores),
            actor=actor,
            because=because,
        )
        begun = rebuilds.current(tx)
    point("rebuild.after-identity")
    assert begun is not None
    return begun


def _still_ours(stores: Mapping[str, Store], scans: Sequence[Scan], ours: Identity) -> bool:
    return all(
        scan.incarnation < ours.incarnation
        or (
            scan.incarnation == ours.incarnation
            and control_keys.is_incarnation(stores[scan.store], ours)
        )
        for scan in scans
    )
