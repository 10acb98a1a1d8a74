"""Bringing an inventory to its end: what the catalog expected, what moved meanwhile once more, what
the backend accounts, and last the manifest, without which there is no inventory.

A listing is not atomic. Whatever had an event since it began, or may be written at any time, is
listed once more beside the accounting, and what is different then is counted as in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import inventories, inventory, reports
from lastgood.catalog.reconciliation.inventory import ExpectedObject, OwnedPrefix
from lastgood.flows.inventories.export import export_expected
from lastgood.flows.inventories.join import Join, engine
from lastgood.flows.inventories.kept import (
    KeptFile,
    KeptManifest,
    Place,
    described,
)
from lastgood.flows.inventories.numbers import numbers_of
from lastgood.flows.inventories.rows import (
    EXPECTED,
    OWNED,
    RowWriter,
    Written,
    expected_row,
    owned_row,
    write_listed,
    write_owned,
    write_uploads,
)
from lastgood.flows.inventories.taking import Begun, ListingUnusable, Progress
from lastgood.flows.inventories.usage import is_exact, listed_bytes, usages
from lastgood.rules.shards import Shard, fault
from lastgood.stores.base import (
    EVERYTHING,
    Part,
    PendingUpload,
    Prefix,
    Store,
    StoredObject,
    StoreError,
    UploadGone,
    Usage,
)

PASSES = 3  # of looking at what moves, until the accounting agrees; at most so often
_LOOKS = 3  # at one prefix, until the catalog says the same before and after
_UNCOMMITTED = timedelta(minutes=1)  # what was recorded so shortly before may be committed after


def complete(
    catalog: Catalog,
    store: Store,
    place: Place,
    begun: Begun,
    listed: Sequence[KeptFile],
    *,
    projects: Collection[str],
    accounts_for: Collection[str],
    actor: str,
    source: str = "listing",
    progress: Progress = lambda phase, done: None,
) -> KeptManifest:
    """Bring an inventory to its end, and record it; `listed` are the files of its shards.

    `projects` are all that may own keys; for those in `accounts_for` the backend is also asked for
    their own part. Raises ListingUnusable where a shard is missing, and StoreError; the inventory
    is unusable then, and recorded so.
    """
    try:
        shards = [
            Shard(number, one.after, one.through)
            for number, one in enumerate(sorted(listed, key=lambda one: one.after))
        ]
        reason = fault(shards)
        if reason is not None:
            raise ListingUnusable(store=store.name, key="", reason=reason)
        completion = _Completion(
            catalog, store, place, begun, sorted(listed, key=lambda one: one.after), progress
        )
        manifest = completion.run(projects, accounts_for, source)
    except StoreError as error:
        _record(catalog, begun, "unusable", {"reason": str(error)}, actor)
        raise
    facts = {
        "manifest_sha256": place.close(manifest),
        "source": source,
        "objects": manifest.objects,
        "bytes": manifest.size_bytes,
        "upload_bytes": manifest.upload_bytes,
        "files": len(manifest.files),
        "kept_bytes": manifest.kept_bytes,
    }
    _record(catalog, begun, "completed", facts, actor)
    return manifest


def _record(
    catalog: Catalog, begun: Begun, kind: str, facts: Mapping[str, Any], actor: str
) -> None:
    with catalog.transaction() as tx:
        inventories.record(
            tx, begun.store, begun.inventory, kind, place=begun.place, facts=facts, actor=actor
        )


@dataclass(slots=True)
class _Completion:
    catalog: Catalog
    store: Store
    place: Place
    begun: Begun
    listed: Sequence[KeptFile]
    progress: Progress

    def run(
        self, projects: Collection[str], accounts_for: Collection[str], source: str
    ) -> KeptManifest:
        draft = self._draft(projects, source)
        with (
            TemporaryDirectory(prefix="lastgood-inventory-") as scratch,
            self.place.opened(draft) as paths,
        ):
            folder = Path(scratch)
            base = self._catalog_side(folder)
            before: Mapping[str, Usage] | None = None
            for number in range(1, PASSES + 1):
                moving, written = self._look_again(folder)
                known = {**base, **written}
                after = usages(self.store, accounts_for)
                draft = replace(
                    draft,
                    finished_at=self._now(),
                    files=[*self.listed, *known.values()],
                    moving=moving,
                    passes=number,
                    usages=after,
                    usages_before=before,
                )
                local = {**paths, **{one.name: folder / one.name for one in known.values()}}
                draft, exact = self._sums(draft, local, accounts_for)
                if exact:
                    break
                before = after
            draft = self._facts(draft, accounts_for)
            return replace(draft, files=self._published(draft, folder))

    def _draft(self, projects: Collection[str], source: str) -> KeptManifest:
        return KeptManifest(
            inventory=self.begun.inventory,
            store=self.store.name,
            source=source,
            started_at=self.begun.started_at,
            finished_at=self.begun.started_at,
            hides=self.store.profile.hides,
            projects=sorted(projects),
            files=self.listed,
            moving=(),
            passes=0,
            objects=0,
            size_bytes=0,
            uploads=0,
            upload_bytes=0,
            in_flight_objects=0,
            in_flight_bytes=0,
            usages={},
            usages_before=None,
        )

    def _catalog_side(self, folder: Path) -> dict[str, KeptFile]:
        """What the catalog expected and whose the prefixes were, at one moment."""
        with self.catalog.transaction() as tx:
            inventory.begin_snapshot(tx)
            expected = export_expected(tx, self.store.name, folder)
            owned = write_owned(
                folder / "owned.parquet", inventory.owned_prefixes(tx, self.store.name)
            )
        self.progress("expected", sum(one.rows for one in expected))
        return _named([*((one, "expected") for one in expected), (owned, "owned")])

    def _look_again(self, folder: Path) -> tuple[list[str], dict[str, KeptFile]]:
        """Everything that moves, listed once more with what the catalog says of it by now, and
        every pending upload."""
        with self.catalog.transaction() as tx:
            since = self.begun.started_at - _UNCOMMITTED
            prefixes = inventory.moving(tx, self.store.name, since)
        with (
            RowWriter(folder / "rechecked-expected.parquet", EXPECTED) as expected,
            RowWriter(folder / "rechecked-owned.parquet", OWNED) as owned,
        ):

            def fresh() -> Iterator[StoredObject]:
                for number, prefix in enumerate(prefixes, 1):
                    facts, found = self._look_at(Prefix(prefix))
                    for row in facts[0]:
                        expected.add(expected_row(row))
                    for one in facts[1]:
                        owned.add(owned_row(one))
                    yield from found
                    self.progress("in flight", number)

            listed = write_listed(folder / "rechecked.parquet", fresh())
            sides = [(expected.close(), "rechecked-expected"), (owned.close(), "rechecked-owned")]
        pending = self.store.uploads(EVERYTHING)
        uploads = write_uploads(folder / "uploads.parquet", pending, self._parts_of)
        if not pending.complete:
            reason = "its list of pending uploads did not finish"
            raise ListingUnusable(store=self.store.name, key="", reason=reason)
        return prefixes, _named([(listed, "rechecked"), *sides, (uploads, "uploads")])

    def _look_at(
        self, prefix: Prefix
    ) -> tuple[tuple[list[ExpectedObject], list[OwnedPrefix]], list[StoredObject]]:
        """What the catalog says of a prefix and what lies there, seen together if that can be."""
        after = self._facts_below(prefix)
        for _ in range(_LOOKS):
            before = after
            listing = self.store.list(prefix, versions=self.store.profile.versioned)
            found = list(listing)
            if not listing.complete:
                raise ListingUnusable(store=self.store.name, key=prefix, reason="it did not finish")
            after = self._facts_below(prefix)
            if after == before:
                break
        return after, found

    def _facts_below(self, prefix: str) -> tuple[list[ExpectedObject], list[OwnedPrefix]]:
        name = self.store.name
        with self.catalog.transaction() as tx:
            inventory.begin_snapshot(tx)
            return (
                list(inventory.expected_objects(tx, name, of=prefix)),
                list(inventory.owned_prefixes(tx, name, of=prefix)),
            )

    def _parts_of(self, upload: PendingUpload) -> Sequence[Part] | None:
        try:
            return self.store.parts(upload.key, upload.upload_id)
        except UploadGone:
            return None

    def _sums(
        self, draft: KeptManifest, paths: Mapping[str, Path], accounts_for: Collection[str]
    ) -> tuple[KeptManifest, bool]:
        """The totals of what was listed, and whether the accounting agrees with them."""
        uploads = [paths[one.name] for one in draft.of("uploads")]
        with engine() as db:
            join = Join(db, draft, paths)
            effective = join.effective()
            listed = listed_bytes(db, effective, uploads, accounts_for)
            objects, size_bytes = _count(db, effective)
            parts, part_bytes = _count(
                db,
                "SELECT sum(size) AS size FROM read_parquet("
                f"{[str(one) for one in uploads]}) GROUP BY key, upload_id",
            )
            in_flight = join.in_flight()
        exact = all(is_exact(usage, listed[scope]) for scope, usage in draft.usages.items())
        return replace(
            draft,
            objects=objects,
            size_bytes=size_bytes,
            uploads=parts,
            upload_bytes=part_bytes,
            in_flight_objects=in_flight[0],
            in_flight_bytes=in_flight[1],
        ), exact

    def _facts(self, draft: KeptManifest, accounts_for: Collection[str]) -> KeptManifest:
        """What else a report of this inventory is made of, so that it can be made again."""
        numbers = numbers_of(self.catalog, self.store)
        with self.catalog.transaction() as tx:
            counts = {
                project: dict(reports.counts(tx, project, self.store.name))
                for project in accounts_for
            }
            return replace(draft, numbers=numbers, counts=counts)

    def _now(self) -> datetime:
        with self.catalog.transaction() as tx:
            return history.now(tx)

    def _published(self, draft: KeptManifest, folder: Path) -> list[KeptFile]:
        """The files of this machine, uploaded: all but those of the shards."""
        return [
            one if one.role == "listed" else self.place.publish(_again(one, folder), one.role)
            for one in draft.files
        ]


def _again(file: KeptFile, folder: Path) -> Written:
    return Written(
        folder / file.name,
        file.rows,
        bytes.fromhex(file.first),
        bytes.fromhex(file.last),
        file.size_bytes,
        file.sha256,
    )


def _named(written: Sequence[tuple[Written, str]]) -> dict[str, KeptFile]:
    return {one.path.name: described(one, role) for one, role in written}


def _count(db: Any, rows: str) -> tuple[int, int]:
    row = db.execute(f"SELECT count(*), coalesce(sum(size), 0)::BIGINT FROM ({rows})").fetchone()
    return row[0], row[1]
