from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.byte_equation import (
    AttemptState,
    CopyState,
    Equation,
    KeyFacts,
    Line,
    LineTotal,
    Tally,
    classify,
)
from lastgood.rules.layout import AttemptKey, AttemptPart, ControlKey, ControlKind
from lastgood.rules.names import AttemptId, CheckpointId

CHECKPOINT = CheckpointId.parse("lab/llm/sft/3.14")
ATTEMPT = AttemptId("6f1d9c3e-1111-4222-8333-444455556666")
OBJECT = AttemptKey(CHECKPOINT, ATTEMPT, AttemptPart.OBJECT, "a.bin")
MARKER = AttemptKey(CHECKPOINT, ATTEMPT, AttemptPart.MARKER)
CONTROL = ControlKey(ControlKind.INCARNATION, None, 1)
OPEN, SEALED, COMMITTED, FAILED, ABORTING, CLOSED = AttemptState
PRESENT, QUARANTINED, DELETING, DELETED, LOST = CopyState

ROWS: dict[str, tuple[KeyFacts, Line]] = {
    "control key": (KeyFacts(CONTROL), Line.CONTROL),
    "old version of a control key": (KeyFacts(CONTROL, is_latest=False), Line.NONCURRENT),
    "key that we could not have written": (KeyFacts(None), Line.UNEXPLAINED),
    "old version of such a key": (KeyFacts(None, is_latest=False), Line.NONCURRENT),
    "delete marker": (KeyFacts(None, is_delete_marker=True), Line.NONCURRENT),
    "our form, but an attempt nobody knows": (KeyFacts(OBJECT), Line.UNEXPLAINED),
    "unknown upload": (KeyFacts(None, pending_upload=True), Line.UNEXPLAINED),
    "open, lease live": (KeyFacts(OBJECT, OPEN, lease_live=True, expected=True), Line.OPEN),
    "open, lease live, stray": (KeyFacts(OBJECT, OPEN, lease_live=True), Line.OPEN),
    "parts of an open attempt": (
        KeyFacts(OBJECT, OPEN, lease_live=True, pending_upload=True),
        Line.OPEN,
    ),
    "open, lease over": (KeyFacts(OBJECT, OPEN, expected=True), Line.INCOMPLETE),
    "parts, lease over": (KeyFacts(OBJECT, OPEN, pending_upload=True), Line.INCOMPLETE),
    "aborting": (KeyFacts(OBJECT, ABORTING, lease_live=True), Line.INCOMPLETE),
    "sealed": (KeyFacts(OBJECT, SEALED, expected=True), Line.SEALED),
    "failed": (KeyFacts(OBJECT, FAILED, expected=True), Line.FAILED_EVIDENCE),
    "closed, and yet there": (KeyFacts(OBJECT, CLOSED), Line.UNEXPLAINED),
    "present": (KeyFacts(OBJECT, COMMITTED, PRESENT, expected=True), Line.COMMITTED),
    "marker of a present copy": (
        KeyFacts(MARKER, COMMITTED, PRESENT, expected=True),
        Line.COMMITTED,
    ),
    "beside a present copy": (KeyFacts(OBJECT, COMMITTED, PRESENT), Line.UNEXPLAINED),
    "late parts beside a copy": (
        KeyFacts(OBJECT, COMMITTED, PRESENT, pending_upload=True),
        Line.INCOMPLETE,
    ),
    "old version of a present object": (
        KeyFacts(OBJECT, COMMITTED, PRESENT, is_latest=False),
        Line.NONCURRENT,
    ),
    "quarantined": (KeyFacts(OBJECT, COMMITTED, QUARANTINED, expected=True), Line.QUARANTINED),
    "quarantined below a delete marker": (
        KeyFacts(OBJECT, COMMITTED, QUARANTINED, expected=True, is_latest=False),
        Line.QUARANTINED,
    ),
    "being deleted": (KeyFacts(OBJECT, COMMITTED, DELETING, expected=True), Line.QUARANTINED),
    "stray in quarantine": (KeyFacts(OBJECT, COMMITTED, QUARANTINED), Line.UNEXPLAINED),
    "deleted, and yet there": (
        KeyFacts(OBJECT, COMMITTED, DELETED, expected=True),
        Line.UNEXPLAINED,
    ),
    "lost with its store, which came back": (
        KeyFacts(OBJECT, COMMITTED, LOST, expected=True),
        Line.UNEXPLAINED,
    ),
}


@pytest.mark.parametrize(("facts", "line"), list(ROWS.values()), ids=list(ROWS))
def test_bytes_belong_to_one_line(facts: KeyFacts, line: Line) -> None:
    assert classify(facts) is line


@given(
    st.builds(
        KeyFacts,
        st.sampled_from([OBJECT, MARKER, CONTROL, None]),
        st.sampled_from([None, *AttemptState]),
        st.sampled_from([None, *CopyState]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    )
)
def test_every_combination_has_a_line_and_unknown_bytes_are_never_committed(
    facts: KeyFacts,
) -> None:
    line = classify(facts)
    assert line in Line
    if line is Line.COMMITTED:
        assert facts.key is not None
        assert (facts.attempt, facts.copy, facts.expected) == (COMMITTED, PRESENT, True)


def test_equation_closes_to_the_byte() -> None:
    tally = Tally()
    tally.add(Line.COMMITTED, 600)
    tally.add(Line.COMMITTED, 17)
    tally.add(Line.CONTROL, 3, keys=2)
    equation = tally.equation(620)
    assert equation.closes()
    assert equation.faults() == ()
    assert equation.totals[Line.COMMITTED] == LineTotal(617, 2)
    assert equation.to_json()["lines"]["control"] == {"bytes": 3, "keys": 2}  # type: ignore[index]
    assert set(equation.totals) == set(Line)


@pytest.mark.parametrize(
    ("backend", "difference", "fault"),
    [
        (621, 1, "the backend accounts +1 bytes against the lines"),
        (619, -1, "the backend accounts -1 bytes against the lines"),
        (None, None, "the backend's own total is unknown"),
    ],
)
def test_gap_is_told(backend: int | None, difference: int | None, fault: str) -> None:
    tally = Tally()
    tally.add(Line.COMMITTED, 620)
    equation = tally.equation(backend)
    assert not equation.closes()
    assert equation.difference_bytes == difference
    assert equation.faults() == (fault,)


def test_negative_and_missing_lines_are_faults() -> None:
    whole = Tally().equation(0)
    totals = {line: total for line, total in whole.totals.items() if line is not Line.OPEN}
    totals[Line.SEALED] = LineTotal(-5, 0)
    faults = Equation(totals, -5).faults()
    assert faults == ("line open is missing", "line sealed is negative: -5 bytes")
