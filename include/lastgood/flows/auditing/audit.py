"""Audit: is the record of what was validated and deleted whole and unaltered, and does it justify
every deletion?

In the catalog, record by record; no store is asked. The same records, written to a file, can be
audited by anybody without the catalog (see `flows.audit_file`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

from lastgood.catalog.auditing import audit_rows, certificates, daily_digests
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import projects
from lastgood.catalog.validation import receipts
from lastgood.catalog.validation.receipts import Receipt
from lastgood.flows.auditing.records import records
from lastgood.rules import chain
from lastgood.rules.auditor import Auditor


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
    certificates: int = 0
    digests: int = 0  # days with one
    breaks: list[Break] = field(default_factory=list)


def run(catalog: Catalog, project: str | None = None, *, expect: str | None = None) -> Audit:
    """Audit a project, or all. `expect`: a daily digest of the project that somebody kept outside.
    Raises NotFound. Memory is one stage's records."""
    found = Audit()
    with catalog.transaction() as tx:
        names = projects.all_names(tx) if project is None else [projects.get(tx, project).name]
    for name in names:
        with catalog.transaction() as tx:
            # One moment for all queries: what is being recorded is there whole or not at all.
            tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found.projects += 1
            found.breaks += _project(tx, name, found, expect)
    return found


def _project(tx: Transaction, project: str, found: Audit, expect: str | None) -> Iterator[Break]:
    auditor = Auditor()
    for record in records(tx, project):
        for one in auditor.feed(record):
            yield Break(project, one.kind, one.name, one.problem)
    for one in auditor.finish(expect):
        yield Break(project, one.kind, one.name, one.problem)
    found.stages += auditor.counts["stage"]
    found.receipts += auditor.counts["receipt"]
    found.tombstones += auditor.counts["tombstone"]
    found.open_tombstones += auditor.open_tombstones
    found.certificates += auditor.counts["certificate"]
    found.digests += auditor.counts["digest"]
    for stage_id, stage in audit_rows.stages_with_records(tx, project):
        for kind, number, problem in _columns(tx, project, stage_id):
            yield Break(project, kind, f"{stage} {kind} {number}", problem)
    for day in daily_digests.of_project(tx, project):
        said = {**day.body, "digest": day.digest}
        recorded = {"number": day.number, "previous": day.previous, "day": day.day.isoformat()}
        for problem in chain.differing(said, recorded):
            yield Break(project, "digest", f"{project} {day.day}", problem)
    for kind, name, problem in audit_rows.contradictions(tx, project):
        yield Break(project, kind, name, problem)


def _columns(tx: Transaction, project: str, stage_id: int) -> Iterator[tuple[str, int, str]]:
    """Where columns of receipts and certificates are not what their digested bodies say."""
    for receipt in receipts.of_stage(tx, project, stage_id):
        for problem in _receipt(receipt):
            yield "receipt", receipt.number, problem
    for one in certificates.of_stage(tx, project, stage_id):
        said = {
            **one.body,
            "tombstone_id": one.body.get("intent", {}).get("tombstone_id"),
        }
        recorded = {
            "number": one.number,
            "previous": one.previous,
            "tombstone_id": str(one.tombstone_id),
            "recorded_at": one.recorded_at.astimezone(UTC).isoformat(),
        }
        for problem in chain.differing(said, recorded):
            yield "certificate", one.number, problem


def _receipt(one: Receipt) -> Iterator[str]:
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
    yield from chain.differing(said, recorded)
