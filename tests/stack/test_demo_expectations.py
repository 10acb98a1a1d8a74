"""The demo's expectations: each one can fail, and says what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lastgood.catalog.sweeping.tombstones import Tombstone
from lastgood.stack.demo import report_page
from lastgood.stack.demo.evidence import Deletion, Evidence
from lastgood.stack.demo.expectations import all_of
from lastgood.stack.demo.story import Told

STAGE = "demo/mlp/pretrain"
AT = datetime(2026, 3, 1, tzinfo=UTC)
STATES = {"committed": 4, "validating": 0, "failed": 0, "quarantined": 0, "incomplete": 0}


def deletion(**changes: Any) -> Deletion:
    tombstone = Tombstone(
        tombstone_id=UUID(int=1),
        project="demo",
        stage_id=1,
        number=1,
        previous=None,
        digest="d",
        checkpoint_id=1,
        copy_id=1,
        attempt_id=None,
        store="local",
        prefix="p",
        mark_id=3,
        policy_digest="policy",
        facts={"facts": {"no_hold": {"truth": "true", "evidence": "none"}}},
        bytes=100,
        actor="dag:sweep_quarantine",
        recorded_at=AT,
        proof={"listing": "complete"},
        proved_at=AT,
    )
    of_tombstone = {k: v for k, v in changes.items() if hasattr(tombstone, k)}
    made = Deletion(replace(tombstone, **of_tombstone), 3, 0, 100, 0)
    return replace(made, **{k: v for k, v in changes.items() if not hasattr(tombstone, k)})


def report(**changes: Any) -> dict[str, Any]:
    equation = {
        "lines": {"committed": 400, "control": 50, "unexplained": 0},
        "sum_bytes": 450,
        "backend_bytes": 450,
        "difference_bytes": 0,
    }
    document = {
        "counts": STATES,
        "bytes": dict.fromkeys(STATES, 0),
        "equation": equation,
        "store_equation": equation,
        "checks": [{"name": "equation-closes", "passed": True}],
        "passed": True,
        "trend": ["this one"],
        **changes,
    }
    return {"report_id": 1, "html": "", "json": "", "document": document}


def good() -> Evidence:
    """Twelve checkpoints, of which eight were deleted."""
    names = [f"{STAGE}/2.{n}" for n in range(12, 0, -1)]
    kept, gone = {names[0], names[1], names[-1], names[-2]}, names[2:-2]
    told = Told("mlp", names[-1], names[-2], {"attempt": "a"}, 5, Path(), 0, report())
    return Evidence(
        told=told,
        checkpoints=[
            {"checkpoint": name, "final": True, "step": 1, "objects": 1, "bytes": 1}
            for name in names
        ],
        deletions={name: deletion() for name in gone},
        kept_because={name: ["one of the newest 2"] for name in kept},
        policy_digest="policy",
        partial=deletion(),
        partial_bytes_on_disk=0,
        present_in_project=4,
        latest=names[0],
        downloads={names[0]: "", names[-1]: "", names[-2]: ""},
        restored_weights_equal=True,
        newest_receipts=[proof("restore"), proof("format"), proof("checksum")],
        disk_bytes=450,
        html_fields={f"counts.{state}": str(n) for state, n in STATES.items()},
        html_differs=[],
    )


def proof(level: str, verdict: str = "pass") -> dict[str, str]:
    return {"level": level, "verdict": verdict, "reason": "as it should be"}


PROVEN = "the newest has passed every level, the last by a training step in two processes"


def failed(evidence: Evidence) -> list[str]:
    return [one.claim for one in all_of(evidence) if not one.held]


def with_report(**changes: Any) -> Evidence:
    evidence = good()
    return replace(evidence, told=replace(evidence.told, report=report(**changes)))


def with_deletion(**changes: Any) -> Evidence:
    evidence = good()
    name = next(iter(evidence.deletions))
    return replace(evidence, deletions={**evidence.deletions, name: deletion(**changes)})


def test_all_hold_when_everything_is_as_it_should_be() -> None:
    assert failed(good()) == []


EQUATION = {
    "lines": {"committed": 440, "unexplained": 10},
    "sum_bytes": 450,
    "backend_bytes": 450,
    "difference_bytes": 0,
}
TOMBSTONE = "each has a tombstone with mark, policy, facts and outcome, and its bytes are gone"


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        (lambda: replace(good(), present_in_project=5), "committed: 5"),
        (lambda: with_report(counts={**STATES, "incomplete": 1}), "incomplete: 0"),
        (lambda: with_report(counts={**STATES, "quarantined": 1}), "quarantined: 0"),
        (lambda: with_report(counts={**STATES, "validating": 1}), "validating: 0"),
        (lambda: with_report(counts={**STATES, "failed": 1}), "failed: 0"),
        (
            lambda: with_report(equation=EQUATION),
            "the byte equation of the project closes to the byte",
        ),
        (
            lambda: replace(good(), disk_bytes=451),
            "the store itself held as many bytes as the report says",
        ),
        (
            lambda: replace(good(), partial_bytes_on_disk=1),
            "the partial save is reclaimed, and its attempt closed with proof",
        ),
        (
            lambda: replace(good(), partial=deletion(proved_at=None)),
            "the partial save is reclaimed, and its attempt closed with proof",
        ),
        (
            lambda: replace(good(), downloads={**good().downloads, good().told.held: "gone"}),
            "the checkpoint with a hold survived, and can be downloaded",
        ),
        (
            lambda: replace(good(), kept_because={**good().kept_because, good().told.read: []}),
            "every checkpoint that is left has a reason",
        ),
        (lambda: with_deletion(mark_id=None), TOMBSTONE),
        (lambda: with_deletion(policy_digest="another"), TOMBSTONE),
        (lambda: with_deletion(facts={"facts": {"no_hold": {"truth": "unknown"}}}), TOMBSTONE),
        (lambda: with_deletion(facts={}), TOMBSTONE),
        (lambda: with_deletion(proved_at=None), TOMBSTONE),
        (lambda: with_deletion(keys_refused=1), TOMBSTONE),
        (lambda: with_deletion(bytes_on_disk=1), TOMBSTONE),
        (lambda: with_deletion(freed_bytes=99), TOMBSTONE),
        (
            lambda: with_report(checks=[{"name": "store-fresh", "passed": False}]),
            "the quality checks all passed",
        ),
        (lambda: with_report(passed=False), "the quality checks all passed"),
        (
            lambda: replace(good(), latest=f"{STAGE}/2.11"),
            "latest is the newest checkpoint, the final one",
        ),
        (
            lambda: replace(good(), restored_weights_equal=False),
            "the newest restores, verified by the client, to the uninterrupted run's weights",
        ),
        (
            lambda: replace(
                good(), newest_receipts=[proof("restore", "inconclusive"), proof("checksum")]
            ),
            PROVEN,
        ),
        (lambda: replace(good(), newest_receipts=[proof("format"), proof("checksum")]), PROVEN),
        (
            lambda: replace(good(), html_fields={}),
            "the HTML report shows the numbers of its JSON",
        ),
        (
            lambda: replace(good(), html_differs=["counts.committed shows 3"]),
            "the HTML report shows the numbers of its JSON",
        ),
    ],
)
def test_what_is_wrong_fails_its_expectation_alone(
    evidence: Callable[[], Evidence], claim: str
) -> None:
    assert failed(evidence()) == [claim]


def test_deleting_what_had_a_hold_fails() -> None:
    evidence = good()
    held = evidence.told.held
    kept = {name: why for name, why in evidence.kept_because.items() if name != held}
    deleted = {**evidence.deletions, held: deletion()}

    assert failed(replace(evidence, kept_because=kept, deletions=deleted)) == [
        "the checkpoint with a hold survived, and can be downloaded",
        "neither they nor the newest 2 were among them",
    ]


def test_an_unusual_change_is_right_once_the_store_was_reported_on() -> None:
    unusual = [{"name": "change-in-bounds", "passed": False}]

    assert failed(with_report(checks=unusual)) == ["the quality checks all passed"]
    assert failed(with_report(checks=unusual, trend=["yesterday", "this one"])) == []


def test_page_that_shows_another_number_is_noticed() -> None:
    document = {"counts": {"committed": 1234}, "total": None, "findings": []}
    page = (
        '<b data-field="counts.committed">1,233</b><i>5</i>'
        '<b data-field="total">—</b><b data-field="findings.length">0</b>'
    )

    assert report_page.differing(report_page.fields_of(page), document) == [
        "counts.committed shows 1,233, the document has 1234"
    ]
