"""Overdue findings, put into words for whoever has to explain them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import finding_alerts, findings
from lastgood.catalog.reconciliation.findings import Finding
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.reconciliation.report import finding_json
from lastgood.reports.words import human_bytes, instant, lasting
from lastgood.rules.quantities import counted

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Alert:
    """What one owner is told: a subject, and the same as text and as HTML."""

    owner: str
    at: datetime
    findings: Sequence[Finding]

    @property
    def subject(self) -> str:
        number = len(self.findings)
        size = human_bytes(sum(one.size_bytes for one in self.findings))
        return f"lastgood: {number} overdue {'finding' if number == 1 else 'findings'}, {size}"

    @property
    def text(self) -> str:
        lines = [self._line(one) for one in self.findings[:_SHOWN]]
        more = len(self.findings) - len(lines)
        return "\n".join([*lines, *([f"and {more} more"] if more else []), _WAY_OUT])

    @property
    def html(self) -> str:
        rows = Markup("").join(
            Markup("<li>{}</li>").format(self._line(one)) for one in self.findings[:_SHOWN]
        )
        return str(Markup("<ul>{}</ul><p>{}</p>").format(rows, _WAY_OUT))

    def to_context(self) -> dict[str, Any]:
        """What a notifier's templates may name below `overdue`: a name of its own, since a notifier
        puts its fields (`subject`, `text`, …) into the same context."""
        return {
            "owner": self.owner,
            "subject": self.subject,
            "text": self.text,
            "html": self.html,
            "findings": [finding_json(one, self.at) for one in self.findings],
        }

    def _line(self, one: Finding) -> str:
        project = "no project" if one.project == SHARED else one.project
        return (
            f"{one.cause} in {one.store}:{one.key_range or 'the whole store'} ({project}):"
            f" {counted(one.objects, 'object')}, {human_bytes(one.size_bytes)}; due"
            f" {instant(one.deadline)}, {lasting(self.at - one.deadline)} ago; finding"
            f" {one.finding_id}"
        )


_WAY_OUT = (
    "Remove the bytes, or say what accounts for them: lastgood findings explain FINDING --reason"
    " WHY. More time or another owner: lastgood findings assign FINDING --owner O --deadline WHEN."
)


def alerts(catalog: Catalog, *, run: str, notifier: str) -> list[Alert]:
    """One for each owner of overdue findings, without what this run has told by this notifier."""
    by_owner: dict[str, list[Finding]] = defaultdict(list)
    with catalog.transaction() as tx:
        now = history.now(tx)
        told = finding_alerts.told(tx, run, notifier)
        for one in findings.current(tx):
            if one.is_overdue(now) and one.finding_id not in told:
                by_owner[one.owner].append(one)
    return [Alert(owner, now, found) for owner, found in sorted(by_owner.items())]


def record(catalog: Catalog, alert: Alert, *, run: str, notifier: str) -> None:
    """Record that an owner was told."""
    with catalog.transaction() as tx:
        finding_alerts.record(tx, alert.findings, run=run, notifier=notifier)
