"""Look at the leases of a project, and record those that ran out as history."""

from __future__ import annotations

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import lapses
from lastgood.catalog.jobs.lapses import Lapses


def observe(catalog: Catalog, project: str) -> Lapses:
    """Record every lapse of a project's leases, one short transaction for each stage. Marks, sweeps
    and clean-ups begin with it."""
    with catalog.transaction() as tx:
        stages = lapses.stages(tx, project)
    generations = readers = 0
    for stage_id in stages:
        with catalog.transaction() as tx:
            found = lapses.observe(tx, project, stage_id)
        generations += found.generations
        readers += found.readers
    return Lapses(generations, readers)
