"""What each rule keeps, as tables: the numbers are sequences, in ascending order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from lastgood.rules.retention_rules import (
    Best,
    Candidate,
    Every,
    Level,
    Newest,
    ReceiptVerdict,
    Steps,
)
from tests.rules.histories import NOON, checkpoint, committed, local, sequences, ticks, walls

PASS, FAIL, INCONCLUSIVE = ReceiptVerdict
TICK = timedelta(microseconds=1)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

# --- what qualifies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receipts", "level", "passes"),
    [
        ({}, Level.CHECKSUM, False),
        ({Level.CHECKSUM: PASS}, Level.CHECKSUM, True),
        ({Level.CHECKSUM: PASS}, Level.FORMAT, False),
        ({Level.RESTORE: PASS}, Level.CHECKSUM, True),
        ({Level.RESTORE: PASS, Level.FORMAT: INCONCLUSIVE}, Level.FORMAT, True),
        ({Level.FORMAT: INCONCLUSIVE}, Level.FORMAT, False),
        ({Level.FORMAT: FAIL}, Level.CHECKSUM, False),
        ({Level.FORMAT: FAIL, Level.CHECKSUM: PASS}, Level.CHECKSUM, False),
        ({Level.CHECKSUM: FAIL, Level.RESTORE: PASS}, Level.RESTORE, False),
    ],
)
def test_a_stronger_proof_is_also_a_weaker_one(
    receipts: dict[Level, ReceiptVerdict], level: Level, passes: bool
) -> None:
    assert checkpoint(1, receipts=receipts).passes(level) is passes


@pytest.mark.parametrize(
    ("candidate", "qualifies", "proven"),
    [
        (checkpoint(1), True, True),
        (checkpoint(1, receipts={}), True, False),
        (checkpoint(1, failed=True), False, False),
        (checkpoint(1, receipts={Level.FORMAT: FAIL, Level.CHECKSUM: PASS}), False, False),
        (checkpoint(1, present=False, quarantined=True), True, False),
        (checkpoint(1, present=False), False, False),
        (checkpoint(1, receipts={Level.FORMAT: INCONCLUSIVE}), True, False),
        (
            checkpoint(1, receipts={Level.FORMAT: FAIL, Level.CHECKSUM: PASS}, failed=True),
            False,
            False,
        ),
    ],
)
def test_only_bytes_that_are_there_and_did_not_fail_count(
    candidate: Candidate, qualifies: bool, proven: bool
) -> None:
    assert candidate.qualifies is qualifies
    assert candidate.proven is proven
    assert (candidate.position in Newest(1).keeps([candidate], NOON)) is qualifies


# --- the newest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "history", "kept"),
    [
        (0, range(1, 6), []),
        (1, range(1, 6), [5]),
        (4, range(1, 6), [2, 3, 4, 5]),
        (4, range(1, 3), [1, 2]),
        (4, [], []),
        (1, [9000, 10000], [10000]),
        (2, [999, 9000, 10000], [9000, 10000]),
    ],
)
def test_newest_counts_integers(count: int, history: list[int], kept: list[int]) -> None:
    found = Newest(count).keeps([checkpoint(number) for number in history], NOON)
    assert sequences(found) == kept


def test_newest_of_all_is_of_the_last_generation_whatever_its_sequence_and_time() -> None:
    history = [
        checkpoint(900, generation=1, at=NOON + DAY),
        checkpoint(1, generation=2, at=NOON),
        checkpoint(0, generation=10, at=NOON - DAY),
    ]
    assert list(Newest(2).keeps(history, NOON)) == [(10, 0), (2, 1)]


def test_failed_and_deleted_take_no_slot() -> None:
    history = [
        checkpoint(1),
        checkpoint(2),
        checkpoint(3, present=False),
        checkpoint(4, failed=True),
        checkpoint(5),
    ]
    assert sequences(Newest(2).keeps(history, NOON)) == [2, 5]


# --- every interval -----------------------------------------------------------------------------

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
BERLIN_BACK = walls(
    BERLIN, "2026-10-24 23:30", "2026-10-25 00:30", "2026-10-25 23:30", "2026-10-26 00:30"
)
EVERY: dict[str, tuple[Every, list[datetime], datetime, list[int]]] = {
    "nothing": (Every(HOUR, DAY), [], NOON, []),
    "one": (Every(HOUR, DAY), [NOON], NOON, [1]),
    "within a bucket": (Every(HOUR, DAY), ticks(NOON, 10 * MINUTE, 6), NOON + HOUR, [6]),
    "over a bucket's edge": (Every(HOUR, DAY), ticks(NOON, 10 * MINUTE, 7), NOON + HOUR, [6, 7]),
    "at the window's edge": (Every(HOUR, HOUR), [NOON], NOON + HOUR, [1]),
    "over the window's edge": (Every(HOUR, HOUR), [NOON], NOON + HOUR + TICK, []),
    "for ever": (Every(DAY), ticks(NOON, DAY, 400), NOON + 999 * DAY, list(range(1, 401))),
    "8 of 6h in 2d, although 48 hours touch 9": (
        Every(6 * HOUR, 2 * DAY),
        ticks(NOON, HOUR, 72),
        NOON + 71 * HOUR,
        [30, 36, 42, 48, 54, 60, 66, 72],
    ),
    "7 days, the newest of each, today's so far": (
        Every(DAY, 7 * DAY),
        ticks(NOON, 6 * HOUR, 60),
        NOON + 59 * 6 * HOUR,
        [38, 42, 46, 50, 54, 58, 60],
    ),
    "over a month's end": (
        Every(DAY, 5 * DAY),
        ticks(datetime(2026, 1, 29, 12, tzinfo=UTC), DAY, 5),
        datetime(2026, 2, 2, 12, tzinfo=UTC),
        [1, 2, 3, 4, 5],
    ),
    "over a leap day": (
        Every(DAY, 5 * DAY),
        ticks(datetime(2028, 2, 27, 12, tzinfo=UTC), 12 * HOUR, 8),
        datetime(2028, 3, 2, tzinfo=UTC),
        [1, 3, 5, 7, 8],
    ),
    "a burst of 100 in a minute takes one slot": (
        Every(6 * HOUR, 2 * DAY),
        [NOON - DAY, NOON - 7 * HOUR, *ticks(NOON, timedelta(milliseconds=600), 100)],
        NOON + MINUTE,
        [1, 2, 102],
    ),
    "over the end of a February without a leap day": (
        Every(DAY, 3 * DAY),
        ticks(datetime(2026, 2, 27, 12, tzinfo=UTC), 12 * HOUR, 5),
        datetime(2026, 3, 1, 13, tzinfo=UTC),
        [1, 3, 5],
    ),
    "over the end of a month of 30 days, and of a year": (
        Every(DAY, 400 * DAY),
        walls(
            "UTC", "2026-04-30 23:59", "2026-05-01 00:00", "2026-12-31 23:59", "2027-01-01 00:00"
        ),
        datetime(2027, 1, 1, tzinfo=UTC),
        [1, 2, 3, 4],
    ),
    "two of one instant": (Every(HOUR, DAY), [NOON, NOON, NOON + HOUR], NOON + HOUR, [2, 3]),
    "from the future, after the clock stepped back": (
        Every(HOUR, DAY),
        [NOON - 2 * HOUR, NOON - HOUR, NOON + 5 * HOUR, NOON],
        NOON,
        [1, 2, 3, 4],
    ),
    "at the future's own end of its window": (Every(DAY, DAY), [NOON + DAY], NOON, [1]),
    "Berlin, a day of 23 hours": (
        Every(DAY, 3 * DAY, zone=BERLIN),
        walls(
            BERLIN, "2026-03-28 23:30", "2026-03-29 00:30", "2026-03-29 23:30", "2026-03-30 00:30"
        ),
        local(BERLIN, "2026-03-30 01:00"),
        [1, 3, 4],
    ),
    "Berlin, a day of 25 hours": (
        Every(DAY, 3 * DAY, zone=BERLIN),
        BERLIN_BACK,
        local(BERLIN, "2026-10-26 01:00"),
        [1, 3, 4],
    ),
    "the same instants by UTC's days": (
        Every(DAY, 3 * DAY),
        BERLIN_BACK,
        local(BERLIN, "2026-10-26 01:00"),
        [2, 4],
    ),
    "New York, the hour that comes twice": (
        Every(HOUR, DAY, zone=NEW_YORK),
        [
            local(NEW_YORK, "2026-11-01 01:10"),
            local(NEW_YORK, "2026-11-01 01:50"),
            local(NEW_YORK, "2026-11-01 01:10", fold=1),
            local(NEW_YORK, "2026-11-01 01:50", fold=1),
        ],
        local(NEW_YORK, "2026-11-01 03:00"),
        [2, 4],
    ),
    "New York, a day of 23 hours": (
        Every(DAY, 3 * DAY, zone=NEW_YORK),
        walls(
            NEW_YORK, "2026-03-07 23:30", "2026-03-08 00:30", "2026-03-08 23:30", "2026-03-09 00:30"
        ),
        local(NEW_YORK, "2026-03-09 01:00"),
        [1, 3, 4],
    ),
    "New York, a day of 25 hours": (
        Every(DAY, 3 * DAY, zone=NEW_YORK),
        walls(
            NEW_YORK, "2026-10-31 23:30", "2026-11-01 00:30", "2026-11-01 23:30", "2026-11-02 00:30"
        ),
        local(NEW_YORK, "2026-11-02 01:00"),
        [1, 3, 4],
    ),
    "New York, the hour that never comes": (
        Every(HOUR, DAY, zone=NEW_YORK),
        walls(NEW_YORK, "2026-03-08 01:50", "2026-03-08 03:10", "2026-03-08 03:50"),
        local(NEW_YORK, "2026-03-08 05:00"),
        [1, 3],
    ),
    "Lord Howe, a day of 23 and a half hours": (
        Every(DAY, 3 * DAY, zone=LORD_HOWE),
        walls(
            LORD_HOWE,
            "2026-10-03 23:30",
            "2026-10-04 00:30",
            "2026-10-04 23:30",
            "2026-10-05 00:30",
        ),
        local(LORD_HOWE, "2026-10-05 01:00"),
        [1, 3, 4],
    ),
    "Lord Howe, a change of half an hour": (
        Every(DAY, 2 * DAY, zone=LORD_HOWE),
        walls(
            LORD_HOWE,
            "2026-04-04 23:59",
            "2026-04-05 00:01",
            "2026-04-05 23:59",
            "2026-04-06 00:00",
        ),
        local(LORD_HOWE, "2026-04-06 01:00"),
        [3, 4],
    ),
}


@pytest.mark.parametrize(("rule", "instants", "at", "kept"), list(EVERY.values()), ids=list(EVERY))
def test_every(rule: Every, instants: list[datetime], at: datetime, kept: list[int]) -> None:
    assert sequences(rule.keeps(committed(instants), at)) == kept


def test_newest_qualifying_of_a_bucket_stands_for_it() -> None:
    history = [
        checkpoint(1, at=NOON, receipts={Level.FORMAT: PASS}),
        checkpoint(2, at=NOON + MINUTE, receipts={Level.RESTORE: PASS}),
        checkpoint(3, at=NOON + 2 * MINUTE, receipts={Level.CHECKSUM: PASS}),
        checkpoint(4, at=NOON + 3 * MINUTE, receipts={Level.FORMAT: PASS}, failed=True),
    ]
    assert sequences(Every(DAY, DAY, Level.FORMAT).keeps(history, NOON + HOUR)) == [2]
    assert sequences(Every(DAY, DAY).keeps(history, NOON + HOUR)) == [3]


def test_order_within_a_bucket_is_that_of_history_not_of_time() -> None:
    history = [
        checkpoint(7, generation=1, at=NOON + MINUTE),
        checkpoint(1, generation=2, at=NOON),
    ]
    assert list(Every(DAY, DAY).keeps(history, NOON + HOUR)) == [(2, 1)]


def test_newest_of_the_buckets_is_by_history_too() -> None:
    history = [
        checkpoint(1, at=NOON - 20 * HOUR),
        checkpoint(2, at=NOON),
        checkpoint(3, at=NOON - 19 * HOUR),
    ]
    assert sequences(Every(DAY, DAY).keeps(history, NOON)) == [3]


def test_every_tells_apart_those_whose_time_is_over() -> None:
    history = committed(ticks(NOON, 12 * HOUR, 8))
    kept, aged = Every(DAY, 2 * DAY).split(history, NOON + 84 * HOUR)
    assert [item.sequence for item in kept] == [8, 7]
    assert [item.sequence for item in aged] == [5, 3, 1]


# --- the best -----------------------------------------------------------------------------------

LOSSES = [3.0, 1.0, 2.0, 1.0, 5.0]


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Best("loss", "min", 0), []),
        (Best("loss", "min", 1), [4]),  # of equal ones the newer
        (Best("loss", "min", 2), [2, 4]),
        (Best("loss", "min", 3), [2, 3, 4]),
        (Best("loss", "max", 1), [5]),
        (Best("loss", "max", 2), [1, 5]),
        (Best("loss", "min", 9), [1, 2, 3, 4, 5]),
        (Best("accuracy", "max", 2), []),
    ],
)
def test_best(rule: Best, kept: list[int]) -> None:
    history = [
        checkpoint(number, metrics={"loss": loss}) for number, loss in enumerate(LOSSES, start=1)
    ]
    assert sequences(rule.keeps([*history, checkpoint(6)], NOON)) == kept


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "mode", "kept"),
    [
        ([NAN, 2.0, 1.0], "min", [2, 3]),
        ([2.0, NAN, 1.0, NAN], "max", [1, 3]),
        ([NAN, NAN], "min", []),
        ([-INFINITE, INFINITE, 3.0], "min", [3]),
        ([None, 1.0, None], "max", [2]),
        ([1, 1.0, 1, 2], "min", [2, 3]),  # ties between whole and other numbers: the newer
        ([0.0, -0.0, 0.0], "min", [2, 3]),
        ([-5.0, -7.0, 2.0], "min", [1, 2]),
    ],
)
def test_best_takes_finite_values_alone_and_of_ties_the_newer(
    values: list[float | None], mode: Literal["min", "max"], kept: list[int]
) -> None:
    history = [
        checkpoint(number, metrics={} if value is None else {"loss": value})
        for number, value in enumerate(values, start=1)
    ]
    assert sequences(Best("loss", mode, 2).keeps(history, NOON)) == kept


def test_best_skips_the_failed() -> None:
    history = [
        checkpoint(1, metrics={"loss": 2.0}),
        checkpoint(2, metrics={"loss": 1.0}, failed=True),
        checkpoint(3, metrics={"loss": 3.0}),
    ]
    assert sequences(Best("loss", "min", 1).keeps(history, NOON)) == [1]


# --- steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "steps", "kept"),
    [
        (10000, [9000, 10000, 11000, 20000, 100000], [2, 4, 5]),
        (1000, [9000, 10000], [1, 2]),
        (1, [1, 2, 3], [1, 2, 3]),
        (7, [1, 2, 3], []),
        (10, [0, 5, 10], [1, 3]),
        (10, [10, 20, 10, 20], [3, 4]),  # after a restart the newer of equal steps
    ],
)
def test_steps(every: int, steps: list[int], kept: list[int]) -> None:
    history = [checkpoint(number, step=step) for number, step in enumerate(steps, start=1)]
    assert sequences(Steps(every).keeps(history, NOON)) == kept


# --- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "most", "sentence"),
    [
        (Newest(1), 1, "the newest checkpoint"),
        (Newest(4), 4, "the newest 4 checkpoints"),
        (Every(6 * HOUR, 2 * DAY), 8, "the newest checkpoint of each 6h for 2d"),
        (Every(5 * HOUR, 2 * DAY), 10, "the newest checkpoint of each 5h for 2d"),
        (Every(DAY), None, "the newest checkpoint of each 1d for ever"),
        (
            Every(DAY, 7 * DAY, Level.FORMAT),
            7,
            "the newest checkpoint with a passing format receipt of each 1d for 7d",
        ),
        (Best("eval/loss", "min", 2), 2, "the 2 with the lowest eval/loss"),
        (Best("acc", "max", 1), 1, "the 1 with the highest acc"),
        (Steps(500), None, "each checkpoint at a multiple of 500 steps"),
    ],
)
def test_rule_says_itself_and_its_bound(
    rule: Newest | Every | Best | Steps, most: int | None, sentence: str
) -> None:
    assert rule.most() == most
    assert str(rule) == sentence
