"""Audit: is the catalog's record of what was validated and deleted whole and unaltered?

Decided from the database alone, record by record; no store is asked. Receipts and tombstones are
chained per stage; each tombstone of a copy is its deletion certificate and must hold every fact of
the gate as true, under a live mark that named the copy, with a proof once it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

from lastgood.catalog import audit_rows, projects, rebuilds, receipts, tombstones
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.receipts import Receipt
from lastgood.catalog.tombstones import Tombstone
from lastgood.rules import chain
from lastgood.rules.chain import Link


@dataclass(frozen=True, slots=True)
class Break:
    """One record that is not as it was written, or contradicts another. `kind` and `name` say
    which."""

    project: str
    kind: str
    name: str
    problem: str


@dataclass(slots=True)
class Audit:
    """What was looked at, and every break."""

    projects: int = 0
    stages: int = 0
    receipts: int = 0
    tombstones: int = 0
    open_tombstones: int = 0  # their bytes are not proven gone yet
    breaks: list[Break] = field(default_factory=list)


def run(catalog: Catalog, project: str | None = None) -> Audit:
    """Audit a project, or all. Raises NotFound. Memory is one stage's records."""
    found = Audit()
    with catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        made = rebuilds.incarnations(tx)
    for name in names:
        with catalog.transaction() as tx:
            # One moment for all queries: what is being recorded is there whole or not at all.
            tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found.projects += 1
            found.breaks += _project(tx, name, made, found)
    return found


def _project(tx: Transaction, project: str, made: set[int], found: Audit) -> Iterator[Break]:
    for stage_id, stage in audit_rows.stages_with_records(tx, project):
        found.stages += 1
        for receipt, problem in _receipts(receipts.of_stage(tx, project, stage_id), found):
            yield Break(project, "receipt", f"{stage} receipt {receipt}", problem)
        for number, problem in _tombstones(tombstones.of_stage(tx, project, stage_id), made, found):
            yield Break(project, "tombstone", f"{stage} tombstone {number}", problem)
    for kind, name, problem in audit_rows.contradictions(tx, project):
        yield Break(project, kind, name, problem)


def _receipts(of_stage: list[Receipt], found: Audit) -> Iterator[tuple[int, str]]:
    found.receipts += len(of_stage)
    yield from chain.broken(
        Link(one.number, one.receipt, one.previous, receipts.identity(one.body)) for one in of_stage
    )
    for one in of_stage:
        recorded = {
            "number": one.number,
            "previous": one.previous,
            "level": one.level,
            "verdict": one.verdict,
            "validator": one.validator,
            "validator_version": one.validator_version,
            "started_at": one.started_at.astimezone(UTC).isoformat(),
            "finished_at": one.finished_at.astimezone(UTC).isoformat(),
            "bytes_read": one.bytes_read,
            "reason": one.reason,
            "copy_id": one.copy_id,
        }
        said = {**one.body, "copy_id": one.body.get("copy", {}).get("copy_id")}
        for problem in chain.differing(said, recorded):
            yield one.number, problem


def _tombstones(
    of_stage: list[Tombstone], made: set[int], found: Audit
) -> Iterator[tuple[int, str]]:
    found.tombstones += len(of_stage)
    found.open_tombstones += sum(one.proof is None for one in of_stage)
    yield from chain.broken(
        Link(one.number, one.digest, one.previous, tombstones.digest_of(one)) for one in of_stage
    )
    for one in of_stage:
        if one.copy_id is not None:
            for problem in chain.uncertified(one.facts, mark_id=one.mark_id, rebuilds=made):
                yield one.number, problem
