"""How long a lock is believed, and what the gate makes of it."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from lastgood.rules import deletion_evidence
from lastgood.rules.copy_locks import LockLook
from lastgood.rules.gate import Fact, GateFacts, Truth

AT = datetime(2026, 3, 1, tzinfo=UTC)
SOON, LATE = AT + timedelta(minutes=5), AT + timedelta(days=400)


@pytest.mark.parametrize(
    ("versions", "ends_at", "seen", "truth", "again_after"),
    [
        (0, None, True, Truth.TRUE, timedelta(0)),
        (1, SOON, True, Truth.FALSE, timedelta(minutes=5)),
        (1, LATE, True, Truth.FALSE, timedelta(days=1)),
        (1, None, True, Truth.FALSE, timedelta(hours=1)),
        (1, None, False, Truth.UNKNOWN, timedelta(hours=1)),
        (1, AT - timedelta(days=1), True, Truth.FALSE, timedelta(days=-1)),
    ],
    ids=["none", "ends soon", "ends late", "nobody knows", "not seen", "over by our clock"],
)
def test_a_lock_is_believed_as_long_as_it_can_be_foreseen(
    versions: int, ends_at: datetime | None, seen: bool, truth: Truth, again_after: timedelta
) -> None:
    look = LockLook(versions, 2048 * versions, ends_at, seen, "as told", AT)
    assert look.fact.truth is truth
    assert look.ask_again_at - AT == again_after


@pytest.mark.parametrize(
    ("versions", "ends_at", "evidence"),
    [
        (0, None, "no version was locked at 2026-03-01T00:00:00Z"),
        (1, SOON, "1 version of 2 kB is locked, until 2026-03-01T00:05:00Z: as told"),
        (2, None, "2 versions of 4.1 kB are locked: as told"),
    ],
)
def test_a_look_says_what_is_locked_and_until_when(
    versions: int, ends_at: datetime | None, evidence: str
) -> None:
    look = LockLook(versions, 2048 * versions, ends_at, True, "as told", AT)
    assert look.fact.evidence == evidence


@pytest.mark.parametrize(
    ("versions", "known", "news"),
    [(1, None, True), (0, None, False), (0, 0, False), (0, 1, True), (1, 1, True)],
)
def test_a_look_is_news_while_something_is_locked_and_once_nothing_is_any_more(
    versions: int, known: int | None, news: bool
) -> None:
    now, before = (
        None if count is None else LockLook(count, 0, None, True, "as told", AT)
        for count in (versions, known)
    )
    assert now is not None
    assert now.is_news_after(before) is news


@pytest.mark.parametrize("name", [field.name for field in fields(GateFacts)])
def test_an_intent_that_was_recorded_before_locks_were_asked_for_lacks_that_fact_alone(
    name: str,
) -> None:
    facts = {field.name: Fact(Truth.TRUE, "seen").to_json() for field in fields(GateFacts)}
    assert list(deletion_evidence._judged(facts)) == []
    del facts[name]
    missing = [] if name == "no_lock" else [f"fact {name} is missing"]
    assert list(deletion_evidence._judged(facts)) == missing
    facts[name] = Fact(Truth.FALSE, "seen").to_json()
    assert f"fact {name} is false" in list(deletion_evidence._judged(facts))
