"""Release: the end of a hold. What it kept is left to the policy again."""

from __future__ import annotations

from uuid import UUID

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import Hold
from lastgood.flows import control_keys, quarantine
from lastgood.stores.open import Stores


def release(
    catalog: Catalog, stores: Stores, project: str, hold_id: UUID, *, because: str, actor: str
) -> Hold:
    """End a hold for good; answers it as it stands then. Raises NotFound, and Conflict if it was
    released before."""
    control_keys.guard(catalog, stores, project)
    with catalog.transaction() as tx:
        by_selector = holds.get(tx, project, hold_id).selector is not None
        if by_selector:  # commits that the selector takes must not add stages meanwhile
            locks.project_exclusive(tx, project)
        else:
            locks.project_shared(tx, project)
        stages = holds.stages_of(tx, project, hold_id)
        locks.stages(tx, stages)
        hold = holds.get(tx, project, hold_id)
        holds.release(tx, hold, released_by=actor, because=because, actor=actor)
        released = holds.get(tx, project, hold_id)
    quarantine.publish(catalog, stores, project, stages)
    return released
