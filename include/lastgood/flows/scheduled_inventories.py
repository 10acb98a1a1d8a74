"""What a scheduler runs of a day's inventories: begun for every store, listed shard by shard on any
worker, completed for each store, reported for each project.

Tasks hand each other names and keys of stores, never paths of a machine. A shard that is listed
again after a crash publishes its file under another name; only files that a task named count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from lastgood.catalog.connect import open_catalog
from lastgood.catalog.settings import projects
from lastgood.errors import NotFound
from lastgood.flows.handed_over import handed_over_by
from lastgood.flows.inventories import by_name
from lastgood.flows.inventories.completion import complete
from lastgood.flows.inventories.kept import KeptFile, Place
from lastgood.flows.inventories.retention import drop_old
from lastgood.flows.inventories.taking import Begun, list_shard
from lastgood.flows.scheduled import report_folder
from lastgood.flows.services import Services
from lastgood.rules.shards import Shard
from lastgood.stores.base import StoreError

_log = logging.getLogger(__name__)
ACTOR = "dag:reconcile_inventory"
_TASKS = 1_000
"""Shards of one run: Airflow maps over at most 1,024."""


@contextmanager
def services() -> Iterator[Services]:
    """The catalog and its stores, for one task."""
    with open_catalog() as catalog:
        yield Services.of(catalog)


def begin_all() -> list[dict[str, Any]]:
    """Begin an inventory of every store that some project uses. A store that is inventoried from
    reports has no shard: it is read when it is completed. One that cannot be begun is said in the
    log, and its projects' reports fail."""
    begun = []
    with services() as opened:
        with opened.catalog.transaction() as tx:
            used = {store for name in projects.names(tx) for store in projects.stores_of(tx, name)}
        for store in sorted(used):
            if by_name.settings_of(opened.catalog, store).report is not None:
                begun.append({"store": store, "report": True, "shards": []})
                continue
            try:
                one = by_name.start(opened.catalog, opened.stores, store, actor=ACTOR)
            except (StoreError, NotFound):
                _log.exception("No inventory of %s is begun", store)
                continue
            begun.append(one.to_json())
    return begun


def shards_of(begun: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each shard of each inventory. Raises StoreError beyond what one run maps."""
    with handed_over_by("begin"):
        found = [
            {"begun": {**one, "shards": []}, "shard": shard}
            for one in begun
            for shard in one["shards"]
        ]
    if len(found) > _TASKS:
        reason = f"{len(found)} shards are more than one run takes: raise `objects_per_shard`"
        raise StoreError(store="-", key="", reason=reason)
    return found


def list_one(begun: Mapping[str, Any], shard: Sequence[Any]) -> dict[str, Any]:
    """List one shard and publish its file; answers whose it is."""
    with handed_over_by("begin"):
        inventory, listed = Begun.from_json(begun), Shard(*shard)
    with services() as opened:
        place = Place(opened.stores[inventory.place], inventory.store, inventory.inventory)
        file = list_shard(opened.stores[inventory.store], place, listed)
    return {"inventory": inventory.inventory, "file": file.to_json()}


def complete_one(begun: Mapping[str, Any], listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Complete one store's inventory from its shards' files, and delete those whose time is over.
    Raises ListingUnusable where a shard's task failed: the inventory is unusable then."""
    with handed_over_by("begin"):
        store = str(begun["store"])
    with services() as opened:
        everybody, here = _projects(opened, store)
        if begun.get("report"):
            manifest = by_name.take(
                opened.catalog, opened.stores, store, accounts_for=here, actor=ACTOR
            )
        else:
            inventory, files = _read(begun, listed)
            manifest = complete(
                opened.catalog,
                opened.stores[store],
                Place(opened.stores[inventory.place], store, inventory.inventory),
                inventory,
                files,
                projects=everybody,
                accounts_for=here,
                actor=ACTOR,
            )
        dropped = drop_old(opened.catalog, opened.stores.__getitem__, store, actor=ACTOR)
    for reason in dropped.failed:
        _log.warning("Not deleted: %s", reason)
    return {
        "store": store,
        "inventory": manifest.inventory,
        "objects": manifest.objects,
        "dropped": dropped.inventories,
        "dropped_bytes": dropped.size_bytes,
        "not_deleted": list(dropped.failed),
    }


def _read(
    begun: Mapping[str, Any], listed: Iterable[Mapping[str, Any]]
) -> tuple[Begun, list[KeptFile]]:
    with handed_over_by("begin"):
        inventory = Begun.from_json(begun)
    with handed_over_by("list_shard"):
        files = [
            KeptFile(**one["file"]) for one in listed if one["inventory"] == inventory.inventory
        ]
    return inventory, files


def _projects(opened: Services, store: str) -> tuple[list[str], list[str]]:
    """Every project, and those that have or may have bytes in a store."""
    with opened.catalog.transaction() as tx:
        everybody = projects.names(tx)
        return everybody, [one for one in everybody if store in projects.stores_of(tx, one)]


def report_project(
    project: str, start: datetime, end: datetime, completed: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Write the reports of one project for a window, from the inventories that were completed.
    Raises StoreError for a store without one, after the others' reports are written."""
    from lastgood.flows.reconciliation import reconcile  # the checks take seconds to import

    with handed_over_by("complete"):
        named = {str(one["store"]): str(one["inventory"]) for one in completed}
    with services() as opened:
        return reconcile.run(
            opened.catalog,
            opened.stores,
            project,
            window=(start, end),
            report_dir=report_folder(),
            actor=ACTOR,
            inventories=named,
        )


def report_again(project: str, start: datetime, end: datetime) -> dict[str, Any]:
    """Make the reports of a past window again, from the inventories that are kept of it. Says where
    none is; lists, deletes and follows nothing."""
    from lastgood.flows.reconciliation import reconcile

    with services() as opened:
        told = reconcile.again(
            opened.catalog,
            opened.stores,
            project,
            window=(start, end),
            report_dir=report_folder(),
            actor=ACTOR,
        )
    for store in told.get("absent", ()):
        _log.warning("no inventory of store %s is kept for %s to %s", store, start, end)
    return told


def fail_if_store_checks_failed(reports: Iterable[Mapping[str, Any]]) -> None:
    """Raise StoreChecksFailed for what the reports' tasks answered, if the totals of a whole store
    failed a check: once for each store, however many projects share it. Raises
    HandedOverByOtherCode."""
    from lastgood.flows.reconciliation import reconcile

    with handed_over_by("reconcile"):
        reconcile.raise_if_store_failed(reports)


def fail_if_checks_failed(report: Mapping[str, Any]) -> None:
    """Raise ChecksFailed for what a report's task answered, if a critical check failed."""
    from lastgood.flows.reconciliation import reconcile

    if "skipped" in report:
        _log.warning("no report: %s", report["skipped"])
        return
    with handed_over_by("reconcile"):
        reconcile.raise_if_failed(report)
