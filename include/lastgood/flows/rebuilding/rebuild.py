"""Rebuild: a lost or outdated catalog from what its stores say themselves.

take over -> list each store whole -> read every marker and manifest -> read every object ->
record what is whole -> record what is gone -> hold everything, fence every writer -> control keys

Receipts, holds, readers and times are not in a store: none are made up. Everything is held until an
operator releases it, and until the end is recorded the catalog serves and deletes nothing. Each
step may be repeated; a rebuild that was killed goes on behind the checkpoints that it recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import checkpoints, copies
from lastgood.catalog.rebuilding import rebuilds, rebuilt_attempts
from lastgood.catalog.rebuilding.rebuilds import Rebuild
from lastgood.catalog.rebuilding.rebuilt_attempts import Leftover
from lastgood.catalog.settings import projects
from lastgood.errors import InvalidInput
from lastgood.faults import point
from lastgood.flows import sane_clock
from lastgood.flows.rebuilding import recording, takeover
from lastgood.flows.rebuilding.finishing import Finishing
from lastgood.flows.rebuilding.order import Reading, Tell, ahead, in_order
from lastgood.flows.rebuilding.reading import NotWhole, Said, Whole, read_manifest, verify
from lastgood.flows.rebuilding.recording import Outcome
from lastgood.flows.rebuilding.result import Result, problem
from lastgood.flows.rebuilding.scan import FoundPrefix, Scan, newest_event, scan
from lastgood.flows.validation import validate
from lastgood.rules.names import StageId
from lastgood.stores.base import Prefix, Store
from lastgood.stores.open import Stores


def run(
    catalog: Catalog,
    stores: Stores | Mapping[str, Store],
    *,
    names: Sequence[str] = (),
    because: str,
    actor: str,
    dry_run: bool = False,
    tell: Tell = lambda phase, done, total: None,
) -> Result:
    """Rebuild the catalog from these stores (none named: from all). A dry run lists, reads markers
    and manifests, and changes nothing; it reads no object.

    Raises what `rebuild_takeover` raises before anything is changed, NotFound for an unknown store,
    ClockJump, and StoreError or Unavailable where a store does not tell: then it is to be repeated.
    """
    if not because.strip():
        raise InvalidInput(where="because", reason="say why; it is recorded")
    sane_clock.require(catalog)
    with catalog.transaction() as lock:
        rebuilds.alone(lock)
        with catalog.transaction() as tx:
            every = [row.name for row in projects.stores(tx)]
        chosen = {name: stores[name] for name in (names or every)}
        if not chosen:
            raise InvalidInput(where="store", reason="none is configured; run `lastgood apply`")
        scans = _scan(chosen, tell)
        owner = takeover.owner_to_be(catalog, scans)
        result = Result(dry_run, owner)
        if dry_run:
            return _Rebuilding(catalog, stores, chosen, scans, None, tell, result).look()
        rebuild = takeover.begin(catalog, chosen, scans, owner, actor=actor, because=because)
        # Again: what a catalog of before wrote until it met the new incarnation.
        scans = _scan(chosen, tell)
        return _Rebuilding(catalog, stores, chosen, scans, rebuild, tell, result).rebuild()


def _scan(chosen: Mapping[str, Store], tell: Tell) -> list[Scan]:
    return [
        scan(store, lambda keys, name=name: tell(f"list {name}", keys, None))  # type: ignore[misc]
        for name, store in chosen.items()
    ]


@dataclass
class _Rebuilding:
    catalog: Catalog
    all_stores: Stores | Mapping[str, Store]
    stores: Mapping[str, Store]
    scans: Sequence[Scan]
    begun: Rebuild | None
    tell: Tell
    result: Result
    refused: dict[tuple[str, str], NotWhole] = field(default_factory=dict)  # by store and prefix
    whole: set[tuple[str, str]] = field(default_factory=set)
    known: set[tuple[str, str]] = field(default_factory=set)  # manifests, by project and digest
    damaged_copies: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for one in self.scans:
            self.result.stores[one.store] = {
                "keys": one.keys,
                "prefixes": len(one.prefixes),
                "foreign_keys": one.foreign_count,
                "foreign": one.foreign,
            }

    def look(self) -> Result:
        """The dry run."""
        marked = self._marked()
        self.result.taken_back += [str(found.checkpoint) for found in marked if found.hidden]
        for found, said in self._said(marked):
            if isinstance(said, NotWhole):
                self.result.not_whole.append(problem(found, said.reason))
        self.result.gone += [str(copy.checkpoint) for copy, _ in self._gone()]
        for found in self._without_marker():
            self.result.leftovers.append(problem(found, "no completion marker"))
        return self.result

    def rebuild(self) -> Result:
        rebuild = self.begun
        assert rebuild is not None
        self.result.incarnation = rebuild.incarnation
        marked = self._show(self._marked())
        readable = []
        for found, said in self._said(marked):
            if isinstance(said, NotWhole):
                self.refused[found.store, found.prefix] = said
            else:
                readable.append(said)
        self._record(rebuild, in_order(readable))
        point("rebuild.after-checkpoints")
        self._name_refused()
        self._record_gone(rebuild)
        self._record_leftovers(rebuild)
        finishing = Finishing(
            self.catalog, self.stores, self.scans, rebuild, self.tell, self.result
        )
        finishing.stages(self.damaged_copies)
        for copy_id in sorted(self.damaged_copies):
            # The receipt of a failure that was seen, and what follows from it.
            validate.run(self.catalog, self.all_stores, copy_id, actor=rebuilds.ACTOR)  # type: ignore[arg-type]
        point("rebuild.after-control-keys")
        with self.catalog.transaction() as tx:
            rebuilds.end(tx, rebuild.incarnation, self.result.counts())
        point("rebuild.after-end")
        return self.result

    # --- what the stores say ---

    def _marked(self) -> list[FoundPrefix]:
        """Every prefix with a completion marker, and those whose commit the catalog knows and whose
        marker is still to be written."""
        found = []
        for one in self.scans:
            unfinished = self._unfinished(one.store)
            for prefix in one.prefixes.values():
                waits = prefix.prefix in unfinished and prefix.has_manifest
                if prefix.has_marker or waits:
                    found.append(prefix)
        self.result.markers = sum(one.has_marker for one in found)
        return found

    def _unfinished(self, store: str) -> Mapping[str, str]:
        with self.catalog.transaction() as tx:
            return rebuilt_attempts.unfinished(tx, store)

    def _without_marker(self) -> Iterator[FoundPrefix]:
        """Prefixes of which the catalog knows nothing and that never became checkpoints."""
        for one in self.scans:
            for found in one.prefixes.values():
                if not found.has_marker and not self._is_known(found):
                    yield found

    def _is_known(self, found: FoundPrefix) -> bool:
        with self.catalog.transaction() as tx:
            project = found.checkpoint.project
            return rebuilt_attempts.find(tx, project, found.attempt_id) is not None

    def _show(self, marked: Iterable[FoundPrefix]) -> list[FoundPrefix]:
        """Take quarantined copies back: they come under the hold like all others. Answers all but
        those whose deletion was recorded: that is only finished."""
        kept = []
        for found in marked:
            store = self.stores[found.store]
            project = found.checkpoint.project
            copy = recording.take_back(self.catalog, project, found.store, found.prefix)
            if copy is not None and copy.state is copies.State.DELETING:
                self.result.being_deleted.append(str(found.checkpoint))
                continue
            kept.append(found)
            if copy is not None and copy.state in (copies.State.DELETED, copies.State.LOST):
                continue
            to_follow = copy is not None and copy.carried_out < copy.transition
            if found.hidden or to_follow or (copy is None and not store.profile.hides):
                store.unquarantine(Prefix(found.prefix), [])
            if copy is not None and to_follow:
                recording.shown(self.catalog, copy)
            if found.hidden or to_follow:
                self.result.taken_back.append(str(found.checkpoint))
        return kept

    def _said(self, marked: Sequence[FoundPrefix]) -> Iterator[tuple[FoundPrefix, Said | NotWhole]]:
        """What each manifest says. Hidden ones are left out of a dry run: they cannot be read."""
        unfinished = {name: self._unfinished(name) for name in self.stores}
        visible = [one for one in marked if not (self.result.dry_run and one.hidden)]

        def read(found: FoundPrefix) -> Said | NotWhole:
            known = None if found.has_marker else unfinished[found.store].get(found.prefix)
            try:
                return read_manifest(self.stores[found.store], found, known)
            except NotWhole as refusal:
                return refusal

        for done, (found, said) in enumerate(ahead(read, visible), 1):
            self.tell("manifests", done, len(visible))
            yield found, said

    # --- what is whole ---

    def _record(self, rebuild: Rebuild, readable: Sequence[Said]) -> None:
        with self.catalog.transaction() as tx:
            recorded = rebuilt_attempts.recorded(tx, rebuild)
        reading = Reading(self.tell, sum(one.size_bytes for one in readable))

        def check(said: Said) -> Whole | NotWhole | None:
            if said.found.attempt_id in recorded:
                reading.add(said.size_bytes)
                return None
            try:
                return verify(self.stores[said.found.store], said, reading.add)
            except NotWhole as refusal:
                return refusal

        for said, checked in ahead(check, readable):
            found = said.found
            place = found.store, found.prefix
            missing = None if isinstance(checked, NotWhole) else self._missing(said)
            if missing is not None:
                checked = NotWhole(f"it needs manifest {missing}, and nothing whole has it")
            if isinstance(checked, NotWhole):
                self.refused[place] = checked
                continue
            outcome, why = (
                (Outcome.ADDED, "")
                if checked is None
                else recording.checkpoint(
                    self.catalog,
                    rebuild,
                    checked,
                    event=newest_event(self.scans, found.checkpoint.stage_id),
                )
            )
            if outcome is Outcome.CONTRADICTED:
                self.result.contradicted.append(problem(found, why))
                continue
            self.whole.add(place)
            self.known.add((found.checkpoint.project, said.digest))
            self.result.added += outcome is Outcome.ADDED
            self.result.confirmed += outcome is Outcome.CONFIRMED
            point("rebuild.after-checkpoint")

    def _missing(self, said: Said) -> str | None:
        """A manifest without which the checkpoint cannot be restored."""
        project = said.found.checkpoint.project
        lacking = [one for one in said.dependencies if (project, one) not in self.known]
        if not lacking:
            return None
        with self.catalog.transaction() as tx:
            present = checkpoints.present_manifests(tx, project, lacking)
        return next((one for one in lacking if one not in present), None)

    def _name_refused(self) -> None:
        """Bytes that the catalog knows as a checkpoint are damaged; others never become one."""
        by_place = {(one.store, p.prefix): p for one in self.scans for p in one.prefixes.values()}
        for place, refusal in self.refused.items():
            found = by_place[place]
            copy = self._present_copy(found)
            if copy is None:
                if found.has_marker:
                    self.result.not_whole.append(problem(found, refusal.reason, refusal.objects))
            elif found.has_marker:
                self.result.damaged.append(problem(found, refusal.reason, refusal.objects))
                self.damaged_copies.add(copy.copy_id)

    def _present_copy(self, found: FoundPrefix) -> copies.Copy | None:
        with self.catalog.transaction() as tx:
            known = checkpoints.find(tx, found.checkpoint)
            if known is None:
                return None
            ids = [known.checkpoint_id]
            return next(
                (
                    one
                    for one in copies.of_checkpoints(tx, found.checkpoint.project, ids)
                    if (one.store, one.prefix) == (found.store, found.prefix)
                    and one.state is copies.State.PRESENT
                ),
                None,
            )

    # --- what is not ---

    def _gone(self) -> Iterator[tuple[copies.Copy, bool]]:
        """Known copies without a marker, and whether bytes of them are left."""
        found = {one.store: one.prefixes for one in self.scans}
        with self.catalog.transaction() as tx:
            every = [
                copy
                for project in projects.names(tx)
                for copy in copies.in_state(
                    tx, project, copies.State.PRESENT, copies.State.QUARANTINED
                )
            ]
        for copy in every:
            if copy.store not in found or (copy.store, copy.prefix) in self.whole:
                continue
            prefix = found[copy.store].get(copy.prefix)
            if prefix is None or not prefix.has_marker:
                yield copy, prefix is not None

    def _record_gone(self, rebuild: Rebuild) -> None:
        for copy, bytes_left in self._gone():
            if recording.gone(
                self.catalog, self.stores[copy.store], rebuild, copy, bytes_left=bytes_left
            ):
                self.result.gone.append(str(copy.checkpoint))
                point("rebuild.after-gone")

    def _record_leftovers(self, rebuild: Rebuild) -> None:
        """The rest is evidence: named, counted, and kept while anything is held."""
        by_stage: dict[StageId, list[Leftover]] = defaultdict(list)
        for one in self.scans:
            for found in one.prefixes.values():
                if (found.store, found.prefix) in self.whole or self._is_known(found):
                    continue
                by_stage[found.checkpoint.stage_id].append(self._leftover(found))
        for stage, leftovers in by_stage.items():
            recording.leftovers(
                self.catalog, rebuild, stage, leftovers, event=newest_event(self.scans, stage)
            )

    def _leftover(self, found: FoundPrefix) -> Leftover:
        refusal = self.refused.get((found.store, found.prefix))
        why = "no completion marker" if refusal is None else refusal.reason
        if not found.has_marker:
            self.result.leftovers.append(problem(found, why))
        return Leftover(
            found.attempt_id,
            found.checkpoint,
            found.store,
            found.prefix,
            found.size_bytes,
            {"why": why, "problems": [] if refusal is None else list(refusal.objects)},
        )
