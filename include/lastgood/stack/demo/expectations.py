"""What must hold at the end of the demo. Each rule answers from the evidence alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastgood.stack.demo.evidence import Deletion, Evidence
from lastgood.stack.demo.screen import Expectation

LEAST_DELETED = 5
HOT = 2
"""How many of the newest the demo's policy keeps, whatever their age."""


def all_of(evidence: Evidence) -> Iterator[Expectation]:
    """Every expectation, in the order in which they are shown."""
    yield from _counts(evidence)
    yield from _equations(evidence)
    yield _disk(evidence)
    yield _partial(evidence)
    yield from _kept(evidence)
    yield from _deleted(evidence)
    yield _checks(evidence)
    yield from _latest(evidence)
    yield _restored(evidence)
    yield _page(evidence)


def _counts(evidence: Evidence) -> Iterator[Expectation]:
    wanted = {
        "committed": evidence.present_in_project,
        "validating": 0,
        "failed": evidence.told.failed_before,
        "quarantined": 0,
        "incomplete": 0,
    }
    for state, number in wanted.items():
        counted = evidence.report["counts"][state]
        size = evidence.report["bytes"][state]
        yield Expectation(
            f"{state}: {number}", counted == number, f"the report counts {counted}, {size} bytes"
        )


def _equations(evidence: Evidence) -> Iterator[Expectation]:
    scopes = {"project": "equation", "whole store": "store_equation"}
    for scope, name in scopes.items():
        equation = evidence.report[name]
        closes = (
            equation["difference_bytes"] == 0
            and equation["lines"]["unexplained"] == 0
            and sum(equation["lines"].values()) == equation["sum_bytes"]
        )
        yield Expectation(
            f"the byte equation of the {scope} closes to the byte",
            closes,
            f"lines {equation['sum_bytes']}, backend {equation['backend_bytes']}, difference"
            f" {equation['difference_bytes']}, unexplained {equation['lines']['unexplained']}",
        )


def _disk(evidence: Evidence) -> Expectation:
    backend = evidence.report["store_equation"]["backend_bytes"]
    return Expectation(
        "the store itself held as many bytes as the report says",
        evidence.disk_bytes == backend,
        f"disk {evidence.disk_bytes}, report {backend}",
    )


def _partial(evidence: Evidence) -> Expectation:
    deletion, before = evidence.partial, evidence.told.partial_bytes
    return Expectation(
        "the partial save is reclaimed, and its attempt closed with proof",
        deletion is not None
        and deletion.tombstone.proved_at is not None
        and evidence.partial_bytes_on_disk == 0,
        f"{before} bytes then, {evidence.partial_bytes_on_disk} now; "
        + ("no tombstone" if deletion is None else _proof(deletion)),
    )


def _kept(evidence: Evidence) -> Iterator[Expectation]:
    for what, name in (("hold", evidence.told.held), ("reader", evidence.told.read)):
        reasons = evidence.kept_because.get(name)
        failure = evidence.downloads[name]
        yield Expectation(
            f"the checkpoint with a {what} survived, and can be downloaded",
            reasons is not None and not failure,
            f"{name}: {failure or '; '.join(reasons or ['no present copy'])}",
        )
    silent = [name for name, reasons in evidence.kept_because.items() if not reasons]
    yield Expectation(
        "every checkpoint that is left has a reason",
        not silent and len(evidence.kept_because) + len(evidence.deletions) == _total(evidence),
        f"{len(evidence.kept_because)} left, {len(evidence.deletions)} deleted of"
        f" {_total(evidence)}" + (f"; none for {', '.join(silent)}" if silent else ""),
    )


def _total(evidence: Evidence) -> int:
    return len(evidence.checkpoints)


def _deleted(evidence: Evidence) -> Iterator[Expectation]:
    deleted = evidence.deletions
    names = ", ".join(name.rpartition("/")[2] for name in sorted(deleted)) or "none"
    yield Expectation(
        f"at least {LEAST_DELETED} checkpoints were deleted", len(deleted) >= LEAST_DELETED, names
    )
    spared = {evidence.told.held, evidence.told.read}
    spared |= {one["checkpoint"] for one in evidence.checkpoints[:HOT]}
    wrong = sorted(spared & deleted.keys())
    yield Expectation(
        f"neither they nor the newest {HOT} were among them", not wrong, ", ".join(wrong) or "none"
    )
    flaws = [flaw for name, one in deleted.items() for flaw in _flaws(name, one, evidence)]
    freed = sum(one.freed_bytes for one in deleted.values())
    yield Expectation(
        "each has a tombstone with mark, policy, facts and outcome, and its bytes are gone",
        not flaws,
        "; ".join(flaws) or f"{len(deleted)} tombstones, {freed} bytes freed",
    )


def _flaws(name: str, one: Deletion, evidence: Evidence) -> Iterator[str]:
    tombstone = one.tombstone
    if tombstone.mark_id is None:
        yield f"{name} names no mark"
    if tombstone.policy_digest != evidence.policy_digest:
        yield f"{name} names policy {tombstone.policy_digest}"
    if not _all_true(tombstone.facts):
        yield f"{name} was deleted although {tombstone.facts}"
    if tombstone.proved_at is None or not one.keys_gone or one.keys_refused:
        yield f"{name}: {_proof(one)}"
    if one.bytes_on_disk or one.freed_bytes < tombstone.bytes:
        yield f"{name}: {one.bytes_on_disk} bytes are still on disk, {one.freed_bytes} were freed"


def _all_true(verdict: Mapping[str, Any]) -> bool:
    facts = verdict.get("facts", {})
    return bool(facts) and all(fact["truth"] == "true" for fact in facts.values())


def _proof(one: Deletion) -> str:
    told = f"{one.keys_gone} keys gone, {one.keys_refused} refused, {one.freed_bytes} bytes freed"
    return f"{told}, {'proven' if one.tombstone.proved_at else 'not proven'}"


def _checks(evidence: Evidence) -> Expectation:
    """A whole demo more is an unusual change of a store that was reported on before: that one
    warning is right then."""
    failed = [one for one in evidence.report["checks"] if not one["passed"]]
    allowed = {"change-in-bounds"} if len(evidence.report["trend"]) > 1 else set[str]()
    names = [one["name"] for one in failed]
    return Expectation(
        "the quality checks all passed",
        not set(names) - allowed and bool(evidence.report["checks"]) and evidence.report["passed"],
        f"{len(evidence.report['checks']) - len(failed)} of {len(evidence.report['checks'])} passed"
        + (f"; failed: {', '.join(names)}" if names else ""),
    )


def _latest(evidence: Evidence) -> Iterator[Expectation]:
    newest = evidence.checkpoints[0]
    yield Expectation(
        "latest is the newest checkpoint, the final one",
        evidence.latest == newest["checkpoint"] and newest["final"],
        f"{evidence.latest} at step {newest['step']}",
    )
    failure = evidence.downloads[newest["checkpoint"]]
    yield Expectation(
        "the newest restores, verified by the client, to the uninterrupted run's weights",
        not failure and evidence.restored_weights_equal,
        failure or f"{newest['objects']} objects, {newest['bytes']} bytes",
    )


def _restored(evidence: Evidence) -> Expectation:
    """The reason of such a receipt has the step, its loss and the loss that the job recorded."""
    passed = {one["level"]: one for one in evidence.newest_receipts if one["verdict"] == "pass"}
    restore = passed.get("restore")
    return Expectation(
        "the newest has passed every level, the last by a training step in two processes",
        passed.keys() == {"checksum", "format", "restore"},
        f"passed {', '.join(sorted(passed)) or 'none'}"
        + ("" if restore is None else f"; {restore['reason']}"),
    )


def _page(evidence: Evidence) -> Expectation:
    shown = evidence.html_fields
    needed = {f"counts.{state}" for state in evidence.report["counts"]}
    missing = sorted(needed - shown.keys())
    return Expectation(
        "the HTML report shows the numbers of its JSON",
        not missing and not evidence.html_differs,
        "; ".join([*evidence.html_differs, *(f"{one} is not shown" for one in missing)])
        or f"{len(shown)} numbers",
    )
