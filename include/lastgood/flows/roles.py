"""Which roles and references keep the checkpoints of a stage at this moment."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.catalog import history, stage_history
from lastgood.catalog.db import Catalog
from lastgood.flows.policies import rules_of
from lastgood.rules import retention

Position = tuple[int, int]


def of_stage(catalog: Catalog, project: str, stage_id: int) -> Mapping[Position, list[str]]:
    """What keeps each checkpoint, as `hot` or `hold 5f1c…`; `leaves: hot` for one that nothing
    keeps. Raises CatalogSetup for a project without a policy."""
    with catalog.transaction() as tx:
        now = history.project_now(tx, project)
        policy = rules_of(tx, project, stage_id)
        stage = stage_history.of_stage(tx, project, stage_id, now)
    if stage is None:
        return {}
    decision = retention.decide(stage.history, policy, now, stage.facts)
    told: dict[Position, list[str]] = {}
    for position, reasons in decision.kept.items():
        told[position] = [
            one.name if one.kind.value == "role" else one.kind.value for one in reasons
        ]
    for position, leaving in decision.candidates.items():
        told[position] = [f"leaves: {leaving.role_name}"]
    return told
