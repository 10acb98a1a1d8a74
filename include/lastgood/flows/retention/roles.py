"""Which roles and references keep the checkpoints of a stage at this moment, and why the others
leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.retention import stage_history
from lastgood.flows.policies import rules_of
from lastgood.rules import retention
from lastgood.rules.decision import Leaving, Reason

Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """What keeps one checkpoint (`kept`), or how it leaves if nothing does."""

    kept: tuple[Reason, ...] = ()
    leaving: Leaving | None = None

    @property
    def names(self) -> list[str]:
        """In short: `hot` for a role, `hold` for what else keeps it; `leaves: hot` for none."""
        if self.leaving is not None:
            return [f"leaves: {self.leaving.role_name}"]
        told = (one.name if one.kind.value == "role" else one.kind.value for one in self.kept)
        return list(dict.fromkeys(told))


def of_stage(catalog: Catalog, project: str, stage_id: int) -> Mapping[Position, Standing]:
    """How each checkpoint of a stage stands, of which a copy still exists, in ascending order.
    Raises CatalogSetup for a project without a policy."""
    with catalog.transaction() as tx:
        now = history.project_now(tx, project)
        policy = rules_of(tx, project, stage_id)
        stage = stage_history.of_stage(tx, project, stage_id, now)
    if stage is None:
        return {}
    decision = retention.decide(stage.history, policy, now, stage.facts)
    told = {position: Standing(kept=reasons) for position, reasons in decision.kept.items()}
    told |= {position: Standing(leaving=one) for position, one in decision.candidates.items()}
    return dict(sorted(told.items()))
