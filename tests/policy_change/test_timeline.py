"""One pass over a stage's events decides at every instant as a whole decision there would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.rules import retention
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Level, Position, ReceiptVerdict
from lastgood.rules.timeline import Instants, Span, compare
from lastgood.rules.timeline_events import (
    Committed,
    Ended,
    Event,
    Moved,
    Needed,
    Pressed,
    Received,
    Referred,
    StageState,
    Writing,
)
from lastgood.rules.timeline_loss import reach
from tests.rules.histories import NOON, checkpoint, digest_of

STEP = timedelta(hours=1)
INSTANTS = Instants(NOON, STEP, 60)
ROLES: list[dict[str, Any]] = [
    {"keep": "newest", "count": 1},
    {"keep": "newest", "count": 3},
    {"keep": "every", "interval": "2h", "within": "10h"},
    {"keep": "every", "interval": "6h", "within": "1d", "validated": "format"},
    {"keep": "every", "interval": "1d"},
    {"keep": "best", "metric": "loss", "mode": "min", "count": 2},
    {"keep": "steps", "every": 300},
]


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    chosen = draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=4, unique_by=str))
    names = draw(st.sampled_from([["a", "b", "c", "d"], ["anchor", "b", "c", "d"]]))
    document = {
        "name": "drawn",
        "timezone": "Europe/Berlin",
        "lineage": draw(st.booleans()),
        "validate": {"format": "every"},
        "roles": dict(zip(names, chosen, strict=False)),
    }
    return Policy.parse(document, where="test")


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Whatever can happen to a stage, in the order of time."""
    events: list[Event] = []
    at, generation, copies, standing = NOON - 5 * STEP, 1, list[Position](), set[Any]()
    events.append(Writing(at, 1, None, True))
    late = draw(st.sampled_from([False, False, True]))  # a later sequence may be committed first
    kinds = ["commit"] * 6 + ["receipt"] * 3 + ["hold", "reader", "move", "copy"]
    kinds += ["generation"] * 2
    kinds += draw(st.sampled_from([[], ["press", "end"], ["need", "press", "end"]]))
    for number in range(1, draw(st.integers(2, 45))):
        at += draw(st.sampled_from([timedelta(), timedelta(minutes=17), STEP, 5 * STEP]))
        at += draw(st.sampled_from([timedelta(), timedelta(microseconds=1)]))
        kind = draw(st.sampled_from(kinds)) if copies else "commit"
        pick = draw(st.integers(0, max(0, len(copies) - 1)))
        if kind in ("commit", "copy"):
            sequence = 2 * number + 2 - 3 * (late and draw(st.booleans()))
            position = (generation, sequence) if kind == "commit" else copies[pick]
            base = checkpoint(
                position[1],
                generation=position[0],
                at=at,
                metrics=draw(st.sampled_from([{}, {"loss": float(number % 4)}])),
            )
            needs = [digest_of(copies[pick][0] * 1_000_000 + copies[pick][1])] if copies else []
            chained = "need" in kinds and draw(st.booleans())
            events.append(
                Committed(
                    at,
                    len(copies),
                    number,
                    base,
                    copies[pick] if copies and draw(st.booleans()) else None,
                    needs if chained else (),
                )
            )
            if draw(st.sampled_from([True, True, False])):  # else everything stays
                events.append(Received(at, len(copies), Level.CHECKSUM, ReceiptVerdict.PASS))
            copies.append(position)
        elif kind == "receipt":
            level, verdict = draw(st.sampled_from(Level)), draw(st.sampled_from(ReceiptVerdict))
            events.append(Received(at, pick, level, verdict))
        elif kind == "move":
            state = draw(st.sampled_from(["present", "quarantined", "deleting", "deleted"]))
            events.append(Moved(at, pick, state))
        elif kind == "generation":
            events.append(Writing(at, generation, None, False))
            generation += 1
            events.append(Writing(at, generation, copies[pick], draw(st.booleans())))
        elif kind == "press":
            events.append(Pressed(at, draw(st.sampled_from([None, at, NOON]))))
        else:
            stands = (kind, pick) not in standing
            (standing.add if stands else standing.discard)((kind, pick))
            if kind == "end":
                events.append(Ended(at, "r", stands))
            elif kind == "need":
                manifest = digest_of(copies[pick][0] * 1_000_000 + copies[pick][1])
                events.append(Needed(at, manifest, "another", stands))
            else:
                events.append(Referred(at, kind, copies[pick], "somebody", stands))
    return events


def _whole(events: list[Event], policy: Policy, number: int) -> set[Position]:
    state = StageState()
    for event in events:
        if event.at <= INSTANTS[number]:
            state.apply(event)
    decision = retention.decide(state.history, policy, INSTANTS[number], state.facts())
    return set(decision.kept)


def _at(spans: dict[Position, list[Span]], number: int) -> set[Position]:
    return {
        position
        for position, pieces in spans.items()
        if any(since <= number < until for since, until in pieces)
    }


@settings(max_examples=150)
@given(events=histories(), current=policies(), candidate=policies())
def test_a_pass_decides_as_whole_decisions_do(
    events: list[Event], current: Policy, candidate: Policy
) -> None:
    found = compare(events, current, candidate, INSTANTS)
    for number in range(0, INSTANTS.count, 3):
        assert _at(found.current.spans, number) == _whole(events, current, number), number
        assert _at(found.candidate.spans, number) == _whole(events, candidate, number), number


@settings(max_examples=40)
@given(events=histories(), policy=policies())
def test_a_policy_differs_in_nothing_from_itself(events: list[Event], policy: Policy) -> None:
    found = compare(events, policy, policy, INSTANTS)
    assert list(found.differing()) == []
    assert found.current.changes == found.candidate.changes


def test_nothing_is_decided_while_nothing_can_change() -> None:
    """A role of 10 hours and one event: decided at the start, at the event, and at its age."""
    policy = Policy.parse({"name": "p", "roles": {"a": ROLES[2], "b": ROLES[0]}}, where="test")
    first = checkpoint(1, at=NOON - 2 * STEP)
    events = [
        Committed(first.committed_at, 1, 600, first),
        Received(first.committed_at, 1, Level.CHECKSUM, ReceiptVerdict.PASS),
    ]
    found = compare(events, policy, policy, INSTANTS)
    assert found.decided == 2  # at the start, and when `a` ends: `newest` keeps it for ever
    assert found.current.spans == {(1, 1): [(0, INSTANTS.count)]}


def _committed(*offsets: tuple[int, int]) -> list[Event]:
    """Commits of (sequence, hours after noon), each with a passing receipt."""
    events: list[Event] = []
    for sequence, hours in offsets:
        one = checkpoint(sequence, at=NOON + hours * STEP)
        events.append(Committed(one.committed_at, sequence, 600, one))
        events.append(Received(one.committed_at, sequence, Level.CHECKSUM, ReceiptVerdict.PASS))
    return events


NEEDED = checkpoint(1).manifest


@pytest.mark.parametrize(
    ("roles", "events", "changes_at"),
    [
        pytest.param(
            {"a": ROLES[2], "anchor": ROLES[4]},
            [
                Pressed(NOON - STEP, NOON - STEP),
                *_committed((1, 2), (2, 4), (3, 6)),
                Pressed(NOON + 7 * STEP, None),
            ],
            7,
            id="the project stands open again",
        ),
        pytest.param(
            {"a": ROLES[2], "b": ROLES[0]},
            _committed((2, 0), (3, 2), (1, 4)),
            11,
            id="the first of the stage was committed last",
        ),
        pytest.param(
            {"a": ROLES[0]},
            [*_committed((1, 0), (2, 1)), Needed(NOON + 5 * STEP, NEEDED, "another", True)],
            5,
            id="another stage comes to need it",
        ),
    ],
)
def test_what_no_rule_knows_of_is_decided_whole(
    roles: dict[str, Any], events: list[Event], changes_at: int
) -> None:
    policy = Policy.parse({"name": "p", "roles": roles}, where="test")
    found = compare(events, policy, policy, INSTANTS)
    for number in range(INSTANTS.count):
        assert _at(found.current.spans, number) == _whole(events, policy, number), number
    assert _at(found.current.spans, changes_at - 1) != _at(found.current.spans, changes_at)


def test_what_can_be_gone_back_to_is_sound_and_may_come_back_from_quarantine() -> None:
    state = StageState()
    events = _committed((1, 0), (3, 9), (2, 4), (4, 10))
    failed = Received(NOON + 11 * STEP, 2, Level.CHECKSUM, ReceiptVerdict.FAIL)
    for event in (*events, failed, Moved(NOON + 11 * STEP, 1, "quarantined")):
        state.apply(event)
    found = reach(state, {(1, 1), (1, 2), (1, 3)}, NOON + 12 * STEP, 3 * STEP)
    assert (found.kept, found.kept_bytes, found.restorable) == (3, 3 * 600, 2)
    assert (found.oldest, found.largest_gap) == (NOON, 9 * STEP)
    assert found.old_enough == 2  # one of them to the hour


def test_an_instant_sees_what_happened_at_it_and_ages_only_after_it() -> None:
    assert INSTANTS.at_or_after(NOON) == 0
    assert INSTANTS.at_or_after(NOON + timedelta(microseconds=1)) == 1
    assert INSTANTS.after(NOON) == 1
    assert INSTANTS.after(NOON - timedelta(microseconds=1)) == 0
    assert INSTANTS.at_or_after(NOON + 1000 * STEP) == INSTANTS.count
