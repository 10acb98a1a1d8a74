"""The end of a rebuild: every stage is held, its writers are fenced, its stores know it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lastgood.catalog import control
from lastgood.catalog.db import Catalog
from lastgood.catalog.rebuilding.rebuilds import Rebuild
from lastgood.catalog.settings import projects
from lastgood.faults import point
from lastgood.flows import control_keys
from lastgood.flows.rebuilding import recording
from lastgood.flows.rebuilding.order import Tell
from lastgood.flows.rebuilding.result import Result, StageResult
from lastgood.flows.rebuilding.scan import Scan, newest_event
from lastgood.rules.names import StageId
from lastgood.stores.base import Store


@dataclass(frozen=True, slots=True)
class Finishing:
    """Finishes the stages of a rebuild, and notes in `result` what became of each."""

    catalog: Catalog
    stores: Mapping[str, Store]
    scans: Sequence[Scan]
    rebuild: Rebuild
    tell: Tell
    result: Result

    def stages(self, damaged: Collection[int]) -> None:
        """Every stage, one after the other; `damaged` are the ids of damaged copies. May be
        repeated. Raises StoreError where a control key cannot be written."""
        every = self._every()
        for done, name in enumerate(every, 1):
            stage, generation, latest = recording.finish_stage(
                self.catalog,
                self.rebuild,
                name,
                self._hold(name.project),
                event=newest_event(self.scans, name),
                generation=max(one.highest_generation(name) for one in self.scans),
                damaged=damaged,
            )
            point("rebuild.after-stage")
            self._publish(name, stage.stage_id, generation)
            self.result.stages.append(
                StageResult(
                    str(name),
                    generation,
                    None if latest is None else str(latest.id),
                    stage.blocked_by is not None,
                )
            )
            self.tell("stages", done, len(every))

    def _every(self) -> list[StageId]:
        """Every stage that a store shows, and every known one of a project that uses a store."""
        with self.catalog.transaction() as tx:
            known = control.positions(tx, None)
            using = {
                name
                for name in projects.names(tx)
                if not self.stores.keys().isdisjoint(projects.stores_of(tx, name))
            }
        shown = {stage for one in self.scans for stage in one.stages()}
        return sorted(shown | {stage for stage in known if stage.project in using})

    def _hold(self, project: str) -> UUID:
        if project not in self.result.holds:
            self.result.holds[project] = str(recording.hold(self.catalog, self.rebuild, project))
        return UUID(self.result.holds[project])

    def _publish(self, name: StageId, stage_id: int, generation: int) -> None:
        """Into every store that the project uses, or that shows the stage: each must know that its
        history goes on here."""
        with self.catalog.transaction() as tx:
            using = set(projects.stores_of(tx, name.project))
        shown = {one.store for one in self.scans if name in one.stages()}
        into = [self.stores[one] for one in sorted((using | shown) & self.stores.keys())]
        control_keys.publish(self.catalog, into, name.project, stage_id, generation=generation)
