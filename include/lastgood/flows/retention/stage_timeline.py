"""The checkpoints of a stage, the newest first: what keeps each or lets it leave, the holds on it,
and what happened to it, up to the proof that it is gone. A fixed number of queries, however many
checkpoints there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import checkpoint_events
from lastgood.catalog.jobs.checkpoint_events import CheckpointEvent, Deletion
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import Hold
from lastgood.catalog.views import operator_views
from lastgood.catalog.views.operator_views import CheckpointView, StageView
from lastgood.flows.retention import roles
from lastgood.flows.retention.roles import Standing

NEWEST_EVENTS = 6
"""How many events of one checkpoint are told; the page about the checkpoint has them all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint on the timeline. `events` are its newest, `unseen` counts the earlier ones."""

    checkpoint: CheckpointView
    standing: Standing
    holds: Sequence[Hold]
    events: Sequence[CheckpointEvent]
    deletions: Sequence[Deletion] = ()

    @property
    def unseen(self) -> int:
        return self.events[0].of - len(self.events) if self.events else 0

    @property
    def state(self) -> str:
        """The state of its best copy: present before quarantined before deleting; where there is
        none any more `lost` if one was lost, else `deleted`."""
        states = [copy["state"] for copy in self.checkpoint.copies]
        best = ("present", "quarantined", "deleting", "lost")
        return next((one for one in best if one in states), "deleted")

    @property
    def is_corrupt(self) -> bool:
        """Whether the newest receipt of any level failed."""
        return "fail" in self.checkpoint.verdicts.values()


def newest(catalog: Catalog, stage: StageView, *, limit: int, skip: int = 0) -> list[Entry]:
    """At most `limit` checkpoints, deleted ones too, after the `skip` newest ones. Raises
    CatalogSetup for a project without a policy."""
    standings = roles.of_stage(catalog, stage.project, stage.stage_id)
    with catalog.transaction() as tx:
        found = operator_views.checkpoints(
            tx,
            project=stage.project,
            workload=stage.workload,
            stage=stage.stage,
            deleted=True,
            limit=limit,
            skip=skip,
        )
        named_here = [one.checkpoint_id for one in found]
        events = checkpoint_events.of_stage(tx, stage.stage_id, named_here, newest=NEWEST_EVENTS)
        deletions = checkpoint_events.deletions(tx, stage.stage_id, named_here)
        standing_holds = {str(one.hold_id): one for one in holds.standing(tx, stage.project)}
    entries = []
    for one in found:
        standing = standings.get((one.generation, one.sequence), Standing())
        named = [reason.name for reason in standing.kept if reason.kind.value == "hold"]
        on_it = [standing_holds[name] for name in named if name in standing_holds]
        happened = events.get(one.checkpoint_id, ())
        gone = deletions.get(one.checkpoint_id, ())
        entries.append(Entry(one, standing, on_it, happened, gone))
    return entries
