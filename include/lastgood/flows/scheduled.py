"""What a scheduler runs: each function is one task, opens what it needs, and returns what is small.

Each of them may be repeated, and may be killed at any point: the next run goes on.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.connect import open_catalog
from lastgood.catalog.retention import marks
from lastgood.catalog.settings import policy_versions, projects
from lastgood.catalog.validation import drills, validations
from lastgood.errors import (
    CopyState,
    InvalidInput,
    LastgoodError,
    MarkNotSweepable,
    NotFound,
    Unavailable,
)
from lastgood.flows.cleaning import cleanup
from lastgood.flows.handed_over import handed_over_by
from lastgood.flows.jobs import commit, verify
from lastgood.flows.reconciliation import bursts
from lastgood.flows.retention import mark
from lastgood.flows.services import Services
from lastgood.flows.sweeping import approval, sweep
from lastgood.flows.validation import validate
from lastgood.flows.validation.levels import Ladder
from lastgood.flows.validation.pod_level import Pods
from lastgood.rules.contract import Contract
from lastgood.rules.policy_names import PolicyName
from lastgood.rules.retention_rules import Level
from lastgood.stores.base import StoreError

_log = logging.getLogger(__name__)
_BATCH = 1000
"""Tasks of one mapping; Airflow allows 1,024. The rest is for the next run."""
_SHARD = 8
"""Copies that one task validates: starting a task costs seconds."""
_INTERVAL = timedelta(hours=1)
"""Of the schedule of marks."""


class DoneInPart(LastgoodError):
    """All that could be done was done, and this was not: {failed}. The next run tries it again."""

    type = "done-in-part"


@contextmanager
def _services() -> Iterator[Services]:
    with open_catalog() as catalog:
        yield Services.of(catalog)


def project_names() -> list[str]:
    """Every project that somebody trains in, by name: not those in which drills write."""
    with open_catalog() as catalog, catalog.transaction() as tx:
        scratch = drills.scratch_projects(tx)
        return [name for name in projects.names(tx) if name not in scratch]


def marked_projects(policy: str | None) -> list[str]:
    """The projects to mark. Raises NotFound where none of them has the version that is named."""
    found = project_names()
    if policy is not None:
        name = PolicyName.parse(policy, "policy")
        with open_catalog() as catalog, catalog.transaction() as tx:
            if not any(policy_versions.find(tx, project, name) for project in found):
                raise NotFound(what="policy version", name=str(name))
    return found


def every_project_name() -> list[str]:
    """Every project that may have bytes in a store, by name."""
    with open_catalog() as catalog, catalog.transaction() as tx:
        return projects.names(tx)


def pending_commits() -> list[str]:
    """The attempts whose commit was left to the workers, or cut off by a crash."""
    with _services() as services:
        return [str(attempt) for attempt in verify.pending(services.catalog)[:_BATCH]]


def finish_commit(attempt: str) -> Mapping[str, Any]:
    """Take one sealed attempt to its end: committed, or failed with every bad object named."""
    with _services() as services:
        return commit.finish(services.catalog, services.stores, UUID(attempt))


def due_validations() -> list[dict[str, Any]]:
    """The copies whose receipt is missing or too old, in shards: project and copies of each.
    Restores are not among them, see `due_restores`."""
    with _services() as services:
        with services.catalog.transaction() as tx:
            names = projects.names(tx)
        due = {
            project: [copy_id for copy_id, levels in _due(services, project) if _reading(levels)]
            for project in names
        }
    return [
        {"project": project, "copy_ids": copy_ids[:_BATCH][start : start + _SHARD]}
        for project, copy_ids in due.items()
        for start in range(0, len(copy_ids[:_BATCH]), _SHARD)
    ][:_BATCH]


def validate_shard(project: str, copy_ids: Sequence[int]) -> Mapping[str, Any]:
    """Validate the copies that are still due, at every level but restore, and write receipts."""
    verdicts: Counter[str] = Counter()
    failed: dict[str, str] = {}
    with _services() as services:
        due = dict(_due(services, project))
        for copy_id in (copy_id for copy_id in copy_ids if copy_id in due):
            try:
                for told in validate.climb(
                    services.catalog, services.stores, copy_id, _reading(due[copy_id])
                ):
                    verdicts[f"{told['level']} {told['verdict']}"] += 1
            except CopyState as error:
                _log.info("not validated: %s", error)  # it was quarantined meanwhile
            except (StoreError, Unavailable) as error:
                failed[f"copy {copy_id}"] = str(error)
    return _whole({"project": project, "verdicts": dict(verdicts), "failed": failed})


def due_restores() -> list[dict[str, Any]]:
    """The copies that are to be restored on this machine: project and copy of each, the most urgent
    first. A copy that has to be read first waits for that."""
    return [
        {"project": project, "copy_id": copy_id}
        for project, copy_id, contract in _restores()
        if contract.pod is None
    ]


def restore_copy(project: str, copy_id: int, pods: Pods | None = None) -> Mapping[str, Any]:
    """Restore a copy that is still due by its contract, and write the receipt. `pods` runs what
    asks for a pod."""
    with _services() as services:
        if Level.RESTORE not in validate.due_levels(services.catalog, project).get(copy_id, ()):
            return {"project": project, "copy_id": copy_id, "skipped": "no longer due"}
        try:
            ladder = Ladder(pods=pods)
            return validate.run(
                services.catalog, services.stores, copy_id, "restore", ladder=ladder
            )
        except CopyState as error:
            return {"project": project, "copy_id": copy_id, "skipped": str(error)}


def due_pods() -> list[dict[str, Any]]:
    """The copies that are to be restored in a pod, as `due_restores`."""
    return [
        {"project": project, "copy_id": copy_id}
        for project, copy_id, contract in _restores()
        if contract.pod is not None
    ]


def _restores() -> list[tuple[str, int, Contract]]:
    ladder = Ladder()
    found: list[tuple[str, int, Contract]] = []
    with _services() as services:
        with services.catalog.transaction() as tx:
            names = projects.names(tx)
        for project in names:
            for copy_id, levels in _due(services, project):
                if list(levels) == [Level.RESTORE]:
                    with services.catalog.transaction() as tx:
                        contract = validations.contract_of(tx, project, copy_id)
                    found.append((project, copy_id, ladder.contracts[contract or ""]))
    return found[:_BATCH]


def _due(services: Services, project: str) -> Iterable[tuple[int, Sequence[Level]]]:
    return validate.due_levels(services.catalog, project).items()


def _reading(levels: Sequence[Level]) -> list[Level]:
    return [level for level in levels if level is not Level.RESTORE]


def mark_now(project: str) -> Mapping[str, Any]:
    """Take the live mark of a project, the only kind that a sweep follows, and look for bursts of
    commits."""
    with _services() as services:
        told = mark.run(services.catalog, project)
        return {**told, "bursts": bursts.note(services.catalog, project, "dag:mark_retention")}


def mark_again(project: str, at: datetime, policy: str | None = None) -> Mapping[str, Any]:
    """Decide again what was to be decided at an instant, by the policy that was in force or by the
    one that is named. No sweep follows such a mark. Before the project's first policy nothing was
    to be decided, and where a project has no version of the name, nothing can be."""
    with _services() as services:
        with services.catalog.transaction() as tx:
            if policy is None:
                taken = policy_versions.times_in_force(tx, project)
                known = any(one.effective_from and one.effective_from <= at for one in taken)
                reason = f"no policy was in force at {at.isoformat()}"
            else:
                name = PolicyName.parse(policy, "policy")
                known = policy_versions.find(tx, project, name) is not None
                reason = f"it has no policy {name}"
        if not known:
            return {"project": project, "skipped": reason}
        return mark.run(services.catalog, project, at=at, kind="replay", policy=policy)


def mark_asked(
    project: str, logical_date: datetime | None, policy: str | None
) -> Mapping[str, Any]:
    """The mark that somebody asked for by hand: without a logical date the live one, of now; with
    one that lies more than an hour back, what was to be decided at that instant. A page of Airflow
    gives its own now as the logical date. Raises InvalidInput for a policy without such a date: a
    live mark is made under the policy in force."""
    with open_catalog() as catalog, catalog.transaction() as tx:
        now = history.project_now(tx, project)
    if logical_date is not None and now - logical_date > _INTERVAL:
        return mark_again(project, logical_date, policy)
    if policy is not None:
        raise InvalidInput(
            where="policy",
            reason="a live mark is made under the policy in force; to try another, run a backfill,"
            " or give a logical date that has passed",
        )
    return mark_now(project)


def handed_marks(given: Iterable[object]) -> list[int]:
    """The marks that a run was handed, each once. Raises InvalidInput for what is none."""
    found = set()
    for one in given:
        if not (isinstance(one, int | str) and str(one).isdecimal() and len(str(one)) < 19):
            raise InvalidInput(where="mark", reason=f"{one!r} is no number of a mark, such as 12")
        found.add(int(one))
    return sorted(found)


def swept_projects(handed: Iterable[object] = ()) -> list[str]:
    """The projects to sweep: all of them, or those whose marks were handed over. Raises NotFound
    for a mark that nobody made, InvalidInput for what is no mark."""
    mark_ids = handed_marks(handed)
    if not mark_ids:
        return project_names()
    with open_catalog() as catalog, catalog.transaction() as tx:
        return sorted({marks.project_of(tx, mark_id) for mark_id in mark_ids})


def sweep_project(project: str, handed: Iterable[object] = ()) -> Mapping[str, Any]:
    """Quarantine the candidates of the live mark that pass the gate, and delete what is due. Every
    mark of the project that was handed over has to be that one, else MarkNotSweepable."""
    with _services() as services:
        with services.catalog.transaction() as tx:
            ours = [one for one in handed_marks(handed) if marks.project_of(tx, one) == project]
        for mark_id in ours:
            sweep.plan(services.catalog, project, mark_id)
        return _whole(
            sweep.run(
                services.catalog,
                services.stores,
                project,
                "dag:sweep_quarantine",
                mark_id=ours[0] if ours else None,
            )
        )


def plans_to_approve() -> list[dict[str, Any]]:
    """The sweeps that wait for approval, each written down as it is shown: project, request, and
    the words for whoever decides. While a promotion cools nobody is asked: nothing goes then, and
    by its end the answer would be of a mark that is too old."""
    asked = []
    with _services() as services:
        with services.catalog.transaction() as tx:
            names = projects.names(tx)
        for project in names:
            try:
                plan = sweep.plan(services.catalog, project)
            except MarkNotSweepable as error:
                _log.info("nothing to approve: %s", error)
                continue
            if plan.asks is None or plan.cools is not None:
                continue
            request = approval.ask(services.catalog, plan)
            asked.append(
                {
                    "project": project,
                    "request": request.request_id,
                    "subject": f"Sweep of {project} under mark {plan.mark_id}: {plan.asks}",
                    "body": plan.summary(),
                }
            )
    return asked[:_BATCH]


def approve_plan(project: str, request: int, *, by: str, because: str) -> Mapping[str, Any]:
    """Record that an operator approved a plan as it was shown. Raises Conflict if nothing of it
    stands any more; what a sweep would do then is asked for anew."""
    with _services() as services:
        approved = approval.approve(
            services.catalog, project, request, actor=f"operator:{by}", because=because
        )
    return {"project": project, "request": request, "approved_by": approved.approved_by}


def clean_uploads(project: str) -> Mapping[str, Any]:
    """Abort uploads that nobody continues, until the store holds nothing of them. What is not right
    with a bucket's own rule is logged: it is a net, and stops nothing."""
    with _services() as services:
        told = cleanup.run(
            services.catalog, services.stores, project, "dag:clean_incomplete_uploads"
        )
    for warning in told["warnings"]:
        _log.warning("%s", warning)
    return _whole(told)


def digest_days(project: str) -> Mapping[str, Any]:
    """Digest the deletions of every day that is over and has no digest yet."""
    from lastgood.flows.auditing import daily_digest

    with _services() as services:
        return daily_digest.make(services.catalog, services.stores, project).to_json()


def drill_project(project: str, sample: int | None) -> Mapping[str, Any]:
    """Drill a project and write the record down; `failed` says what did not pass."""
    from lastgood.flows.drills import drill

    with _services() as services:
        told = drill.run(
            services.catalog, services.stores, project, actor="dag:drill", sample=sample
        )
    return {
        "project": project,
        "drill": str(told.drill_id),
        "passed": told.passed,
        "failed": drill.failures(told)[:20],
    }


def fail_if_drill_failed(told: Mapping[str, Any]) -> None:
    """Raise DrillFailed for what `drill_project` returned, if it did not pass."""
    from lastgood.flows.drills.drill import DrillFailed

    with handed_over_by("restore_and_live"):
        if not told["passed"]:
            failed = "; ".join(told["failed"]) or "it showed nothing"
            raise DrillFailed(drill=told["drill"], project=told["project"], failed=failed)


def report_folder() -> Path:
    """Where reports go: LASTGOOD_REPORTS, else `reports` below LASTGOOD_VAR."""
    named = os.environ.get("LASTGOOD_REPORTS", "").strip()
    return Path(named) if named else Path(os.environ.get("LASTGOOD_VAR", "var")) / "reports"


def _whole(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    if summary["failed"]:
        _log.error("done in part: %s", summary)
        raise DoneInPart(
            failed="; ".join(f"{what}: {why}" for what, why in summary["failed"].items())
        )
    return summary
