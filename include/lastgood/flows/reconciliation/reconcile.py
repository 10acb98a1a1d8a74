"""Reconcile: explain every byte of a project's stores, write the report, follow the findings.

list every store whole      a listing that fails feeds nothing: no findings, no report
carry the findings on       with what the backend accounts for, for admission
let the damaged be validated
check the totals
write the report            to the catalog, then as files
only then say what failed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lastgood.catalog import history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.reconciliation import findings, inventories, quality_results, reports
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project
from lastgood.errors import LastgoodError, Unavailable
from lastgood.flows.capacity import pressure
from lastgood.flows.inventories import by_name as kept_inventories
from lastgood.flows.inventories.by_name import NotKept
from lastgood.flows.inventories.explanation import Inventory
from lastgood.flows.inventories.owners import SHARED
from lastgood.flows.inventories.retention import drop_old
from lastgood.flows.inventories.taking import Progress
from lastgood.flows.policies import policy_of
from lastgood.flows.reconciliation import bursts, damage, report_numbers, store_keeping
from lastgood.flows.reconciliation.at_rest import AtRest, read_back
from lastgood.flows.reconciliation.report import Facts, build, frames, sightings
from lastgood.flows.reconciliation.report_files import write_files
from lastgood.flows.reconciliation.report_numbers import Numbers
from lastgood.flows.reconciliation.store_keeping import StoreKeeping
from lastgood.reports import quality
from lastgood.reports.checks import STORE
from lastgood.reports.quality import CheckResult
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import StoreError
from lastgood.stores.open import Stores
from lastgood.stores.s3_inventory import InventoryReportRefused

_QUIET: Progress = lambda phase, done: None  # noqa: E731


class StoreChecksFailed(LastgoodError):
    """The totals of stores do not agree, whatever each project's do: {failed}."""

    type = "store-checks-failed"


class ChecksFailed(LastgoodError):
    """The report of {project} was written, and {count} of its checks failed, first {first}, which
    {owner} answers for: {failed}. See {report}."""

    type = "checks-failed"


class FilesUnwritten(LastgoodError):
    """Report {report} of {project} in {store} is kept in the catalog, but its files could not be
    written below {folder}: {reason}. Once they can be, `lastgood reports write {report}` does."""

    status = 503
    type = "report-files-unwritten"


def run(
    catalog: Catalog,
    stores: Stores,
    project: str,
    *,
    window: tuple[datetime, datetime],
    report_dir: Path | str,
    actor: str,
    progress: Progress = _QUIET,
    inventories: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Reconcile every store of a project for a window [start, end) of UTC instants: from the named
    inventory of each (by store), or, with None, from one that is taken now.

    Answers the newest report's id and paths, `passed` (over all stores), what failed, the old
    inventories that could not be deleted (`not_deleted`), and one entry per store. Raises NotFound
    for an unknown project, and StoreError if a store could not be listed whole; the reports of the
    other stores are written before that.
    """
    with catalog.transaction() as tx:
        projects.get(tx, project)
        names = projects.stores_of(tx, project)
    taken: dict[str, Inventory] = {}
    not_deleted: list[str] = []
    unlisted: LastgoodError | None = None
    for name in names:
        try:
            if inventories is None:
                kept = kept_inventories.take(
                    catalog, stores, name, accounts_for=[project], actor=actor, progress=progress
                )
                named = kept.inventory
                dropped = drop_old(catalog, stores.__getitem__, name, actor=actor)
                not_deleted += dropped.failed
            else:
                named = inventories.get(name) or _none_of(name)
            taken[name] = _with(project, kept_inventories.read(catalog, stores, name, named))
        except (StoreError, InventoryReportRefused, Unavailable) as error:
            unlisted = unlisted or error
    reporting = _Reporting(catalog, stores, project, window, Path(report_dir), actor)
    written = reporting.of_each(taken)
    if unlisted is not None:
        raise unlisted
    return {**_result(project, written), "not_deleted": not_deleted}


def again(
    catalog: Catalog,
    stores: Stores,
    project: str,
    *,
    window: tuple[datetime, datetime],
    report_dir: Path | str,
    actor: str,
) -> dict[str, Any]:
    """Make the reports of a past window again, from the inventories that are kept of it. Nothing is
    listed or deleted, and no finding follows. Answers as `run`, or `skipped` with the reason where
    no inventory is kept; `absent` names the stores without one."""
    with catalog.transaction() as tx:
        projects.get(tx, project)
        names = projects.stores_of(tx, project)
    taken: dict[str, Inventory] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            row = kept_inventories.kept_for(catalog, name, *window)
            read = kept_inventories.read(catalog, stores, name, row.inventory)
            taken[name] = _with(project, read)
        except (NotKept, StoreError) as error:
            absent[name] = str(error)
    if not taken:
        return {"project": project, "skipped": " ".join(absent.values()), "absent": sorted(absent)}
    folder = Path(report_dir)
    reporting = _Reporting(catalog, stores, project, window, folder, actor, follows=False)
    written = reporting.of_each(taken)
    return {**_result(project, written), "absent": sorted(absent)}


def _with(project: str, taken: Inventory) -> Inventory:
    if project not in taken.by_project:
        reason = f"its inventory {taken.inventory} has nothing of project {project}, which is newer"
        raise StoreError(store=taken.store, key="", reason=reason)
    return taken


def _none_of(store: str) -> str:
    reason = "no inventory of it was completed: see what its listing tasks say"
    raise StoreError(store=store, key="", reason=reason)


def _result(project: str, written: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    failed = [check for one in written for check in one["failed"]]
    return {
        "project": project,
        "report_id": written[0]["report_id"],
        "passed": all(one["passed"] for one in written),
        "json": written[0]["json"],
        "html": written[0]["html"],
        "csv": written[0]["csv"],
        "failed": failed,
        "reports": written,
    }


def raise_if_failed(result: Mapping[str, Any]) -> None:
    """Raise ChecksFailed for a result of `run` with a failed check that is critical."""
    if not result["passed"]:
        bad = next(one for one in result["reports"] if not one["passed"])
        raise ChecksFailed(
            project=result["project"],
            count=len(result["failed"]),
            failed=", ".join(result["failed"]),
            first=bad["first_failed"]["name"],
            owner=bad["first_failed"]["owner"],
            report=bad["html"],
        )


def raise_if_store_failed(results: Iterable[Mapping[str, Any]]) -> None:
    """Raise StoreChecksFailed for what `run` answered of any number of projects: each store once,
    with whoever answers for it."""
    told: dict[str, str] = {}
    for one in (report for result in results for report in result.get("reports", ())):
        if one["failed_of_store"]:
            names = ", ".join(one["failed_of_store"])
            words = f"{one['store']}, which {one['store_owner']} answers for: {names}"
            told.setdefault(one["store"], f"{words}, see {one['html']}")
    if told:
        raise StoreChecksFailed(failed="; ".join(told.values()))


@dataclass(frozen=True, slots=True)
class _Reporting:
    """The reports of a project for a window, [start, end) in UTC; `follows`: the findings, too."""

    catalog: Catalog
    stores: Stores
    project: str
    window: tuple[datetime, datetime]
    report_dir: Path
    actor: str
    follows: bool = True

    def of_each(self, taken: Mapping[str, Inventory]) -> list[dict[str, Any]]:
        """A report for each store, by name in `taken`. FilesUnwritten only after each has one."""
        ends = {name: one.finished_at for name, one in taken.items()}
        written: list[dict[str, Any]] = []
        unwritten: FilesUnwritten | None = None
        for one in taken.values():
            try:
                written.append(self._report(one, ends))
            except FilesUnwritten as error:
                unwritten = unwritten or error
        if unwritten is not None:
            raise unwritten
        return written

    def _report(self, taken: Inventory, ends: Mapping[str, datetime]) -> dict[str, Any]:
        at_rest = read_back(self.catalog, self.stores, taken.store, self.project)
        if self.follows:
            with self.catalog.transaction() as tx:
                carry_on(tx, self.project, taken, self.actor)
            asked = damage.ask_for_validation(self.catalog, self.project, taken, self.actor)
        else:
            asked = damage.not_asked_for(self.catalog, self.project, taken)
        cause = f"a listing of {taken.store}"
        pressure.observe(self.catalog, self.project, cause=cause, actor=self.actor)
        with self.catalog.transaction() as tx:  # not under the counters' lock: it may take seconds
            numbers = report_numbers.gather(tx, self.project, taken.store, self.window)
        with self.catalog.transaction() as tx:
            facts = self._facts(tx, taken, ends, numbers, at_rest, asked)
            keeping = store_keeping.of_store(tx, taken.store, facts.project)
        owners = {**facts.project.config.get("check_owners", {}), STORE: keeping.owner}
        checks = quality.run(frames(facts), owner=facts.project.owner, owners=owners)
        report_id, document = self._record(facts, checks)
        paths = self._files(report_id, document)
        return {
            "report_id": report_id,
            "store": taken.store,
            "passed": not quality.critical_of(checks),
            "failed": [one.name for one in quality.critical_of(checks)],
            "first_failed": document["verdict"]["first_failed"],
            "failed_of_store": document["verdict"]["failed_of_store"],
            "store_owner": keeping.owner,
            "validations_asked": len(asked.copy_ids),
            "validations_left": asked.left,
            "json": str(paths["json"]),
            "html": str(paths["html"]),
            "csv": str(paths["csv"]),
        }

    def _files(self, report_id: int, document: Mapping[str, Any]) -> dict[str, Path]:
        try:
            return write_files(document, self.report_dir)
        except OSError as error:
            raise FilesUnwritten(
                report=report_id,
                project=self.project,
                store=document["store"]["name"],
                folder=str(self.report_dir),
                reason=error.strerror or type(error).__name__,
            ) from error

    def _record(self, facts: Facts, checks: list[CheckResult]) -> tuple[int, dict[str, Any]]:
        store = facts.store.name
        with self.catalog.transaction() as tx:
            report_id = reports.add(
                tx,
                project=self.project,
                store=store,
                window=self.window,
                document=build(facts, checks),
                passed=not quality.critical_of(checks),
                recorded_at=facts.at,
            )
            quality_results.add(
                tx, report_id, project=self.project, store=store, results=checks, at=facts.at
            )
            return report_id, dict(reports.get(tx, report_id).document)

    def _facts(
        self,
        tx: Transaction,
        taken: Inventory,
        ends: Mapping[str, datetime],
        numbers: Numbers,
        at_rest: AtRest,
        asked: damage.Asked,
    ) -> Facts:
        use = capacity.locked_use(tx, self.project, taken.store)
        names = projects.stores_of(tx, self.project)
        marks = policy_of(tx, self.project).capacity
        return Facts(
            project=projects.get(tx, self.project),
            store=projects.store(tx, taken.store),
            window=self.window,
            at=history.now(tx),
            taken=taken,
            counts={state: (one[0], one[1]) for state, one in taken.counts[self.project].items()},
            activity=reports.activity(tx, self.project, self.window),
            lost=reports.lost(tx, self.project, self.window),
            standing=pressure.standing_in(tx, self.project, taken.store, marks, use).standing,
            findings=findings.current(tx, projects=[self.project, SHARED], store=taken.store),
            numbers=numbers,
            store_ages=self._ages(tx, names, ends),
            at_rest=at_rest,
            asked=asked,
        )

    def _ages(
        self, tx: Transaction, names: Sequence[str], ends: Mapping[str, datetime]
    ) -> Mapping[str, timedelta | None]:
        """Since each store was listed whole: until now, or, of a report that is made again, until
        the instant by which the inventory of its window had to begin."""
        at = history.now(tx)
        if not self.follows:
            start, end = self.window
            at = min(at, end + (end - start))
        listed = {**inventories.listed_at(tx, names, at), **ends}
        return {
            store: None if one is None else max(at - one, timedelta())
            for store, one in listed.items()
        }


def carry_on(tx: Transaction, project: str, taken: Inventory, actor: str) -> None:
    """Follow the findings of a project, and those of no project, with what an inventory shows.

    The store's counters are locked first: two reconciliations of a store take turns here, and
    one whose listing is the older neither reopens nor closes what the other found."""
    configured = projects.get(tx, project)
    locks.store_capacity(tx, taken.store)
    projects.store(tx, taken.store)  # unregistered meanwhile, it has no findings any more
    newest = reports.newest_backend_at(tx, taken.store)
    is_newest = reports.note_backend(
        tx,
        project,
        taken.store,
        backend_bytes=taken.whole.backend_bytes,
        backend_total=taken.whole.backend_total,
        known_bytes=_known_bytes(taken),
        at=taken.finished_at,
    )
    answering: dict[str, Project | StoreKeeping] = {project: configured} if is_newest else {}
    if is_newest and (newest is None or newest <= taken.finished_at):
        # which every project of the store carries on, and the same people answer for
        answering[SHARED] = store_keeping.of_store(tx, taken.store, configured)
    for owner, answers in answering.items():
        findings.follow(
            tx,
            owner,
            taken.store,
            [*sightings(taken, owner), *bursts.sightings(tx, owner, taken.store)],
            owners=answers.finding_owners,
            deadline=answers.finding_deadline,
            actor=actor,
            at=history.now(tx),
        )


def _known_bytes(taken: Inventory) -> int:
    """Of what was listed, the part that the counters have, too: of copies and of attempts."""
    totals = taken.whole.equation.totals
    beside = {Line.CONTROL, Line.NONCURRENT, Line.UNEXPLAINED}
    return sum(totals[line].size_bytes for line in Line if line not in beside)
