from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from lastgood.rules.cadence import CopySeen, Due, Seen, Why, due
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Level, ReceiptVerdict
from tests.rules.histories import NOON

PASS, FAIL, INCONCLUSIVE = ReceiptVerdict
CHECKSUM, FORMAT, RESTORE = Level
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
VERSIONS = {CHECKSUM: "1", FORMAT: "1", RESTORE: "1"}


def policy(**validate: str) -> Policy:
    document: dict[str, Any] = {
        "name": "p",
        "roles": {"hot": {"keep": "newest", "count": 1}},
        "gate": {"level": "restore", "receipt_max_age": "8d"},
        "validate": {"checksum": "never", "reread_all_within": "40d"} | validate,
    }
    return Policy.parse(document, where="test")


def seen(verdict: ReceiptVerdict, age: timedelta, version: str = "1") -> Seen:
    return Seen(verdict, NOON - age, version)


def copies(*receipts: Mapping[Level, Seen]) -> list[CopySeen]:
    """Copies 1.1, 1.2 … with these receipts."""
    return [CopySeen((1, number), found) for number, found in enumerate(receipts, start=1)]


def told(found: list[Due]) -> list[tuple[int, str, Why]]:
    return [(item.position[1], item.level.value, item.why) for item in found]


def test_every_new_commit_is_due_newest_first() -> None:
    found = due(copies({}, {}, {}), policy(checksum="every"), VERSIONS, NOON)
    assert told(found) == [(number, "checksum", Why.NEVER_VALIDATED) for number in (3, 2, 1)]


def test_never_is_never_due() -> None:
    assert due(copies({}, {}), policy(), VERSIONS, NOON) == []
    assert due([], policy(checksum="every", restore="daily"), VERSIONS, NOON) == []


def test_level_without_a_validator_is_not_run() -> None:
    assert due(copies({}), policy(format="every"), {CHECKSUM: "1"}, NOON) == []


@pytest.mark.parametrize(
    ("receipt", "why"),
    [
        (seen(PASS, HOUR), None),
        (seen(PASS, HOUR, "0"), Why.VALIDATOR_CHANGED),
        (seen(FAIL, HOUR, "0"), Why.VALIDATOR_CHANGED),
        (seen(FAIL, 99 * DAY), None),
        (seen(INCONCLUSIVE, HOUR), Why.INCONCLUSIVE),
        (seen(PASS, 30 * DAY - HOUR), None),
        (seen(PASS, 30 * DAY), Why.REREAD),
    ],
)
def test_checksum_is_taken_again(receipt: Seen, why: Why | None) -> None:
    found = due(copies({CHECKSUM: receipt}), policy(checksum="every"), VERSIONS, NOON)
    assert told(found) == ([] if why is None else [(1, "checksum", why)])


def test_only_checksum_is_read_again_for_age() -> None:
    found = due(copies({FORMAT: seen(PASS, 99 * DAY)}), policy(format="every"), VERSIONS, NOON)
    assert found == []


@pytest.mark.parametrize(
    ("receipts", "numbers"),
    [
        ([{}, {}], [2]),
        ([{RESTORE: seen(PASS, 23 * HOUR)}, {}], []),
        ([{RESTORE: seen(PASS, 24 * HOUR)}, {}], [2]),
        ([{RESTORE: seen(PASS, HOUR)}, {RESTORE: seen(PASS, 25 * HOUR)}], []),
    ],
)
def test_drill_takes_the_newest_copy_once_in_its_interval(
    receipts: list[Mapping[Level, Seen]], numbers: list[int]
) -> None:
    found = due(copies(*receipts), policy(restore="daily"), VERSIONS, NOON)
    assert told(found) == [(number, "restore", Why.DRILL) for number in numbers]


def test_newest_copy_is_known_by_its_position() -> None:
    stage = list(reversed(copies({}, {}, {})))
    found = due(stage, policy(restore="daily"), VERSIONS, NOON)
    assert told(found) == [(3, "restore", Why.DRILL)]


def test_stage_that_waits_only_for_a_receipt_does_not_wait_for_the_drill() -> None:
    stage = copies({RESTORE: seen(PASS, HOUR)}, {})
    assert due(stage, policy(restore="daily"), VERSIONS, NOON) == []
    hurried = due(stage, policy(restore="daily"), VERSIONS, NOON, hurry=True)
    assert told(hurried) == [(2, "restore", Why.DRILL)]
    assert due(copies({RESTORE: seen(PASS, HOUR)}), policy(restore="daily"), VERSIONS, NOON) == []


def test_newest_pass_of_the_gate_is_renewed_before_it_is_too_old() -> None:
    stage = copies({RESTORE: seen(PASS, 9 * DAY)}, {RESTORE: seen(PASS, 6 * DAY)})
    found = due(stage, policy(restore="weekly"), VERSIONS, NOON)
    assert told(found) == [(2, "restore", Why.GATE_RECEIPT_AGES)]
    fresh = copies({RESTORE: seen(PASS, 9 * DAY)}, {RESTORE: seen(PASS, 6 * DAY - HOUR)})
    assert due(fresh, policy(restore="weekly"), VERSIONS, NOON) == []


def test_where_the_gate_asks_for_a_format_the_bytes_are_compared_anew_with_it() -> None:
    document = policy(checksum="every", format="every").to_json()
    asking = Policy.parse(
        {**document, "gate": {"level": "format", "receipt_max_age": "8d"}}, where="test"
    )
    receipts = {CHECKSUM: seen(PASS, 6 * DAY), FORMAT: seen(PASS, 6 * DAY)}
    found = due(copies(receipts, receipts), asking, VERSIONS, NOON)
    assert sorted(told(found)) == [
        (2, "checksum", Why.GATE_RECEIPT_AGES),
        (2, "format", Why.GATE_RECEIPT_AGES),
    ]


def test_first_the_never_tried_newest_first_then_the_oldest_receipt() -> None:
    stage = copies(
        {CHECKSUM: seen(PASS, 31 * DAY)},
        {},
        {CHECKSUM: seen(INCONCLUSIVE, HOUR)},
        {CHECKSUM: seen(PASS, 32 * DAY)},
        {},
    )
    found = due(list(reversed(stage)), policy(checksum="every"), VERSIONS, NOON)
    assert [item.position[1] for item in found] == [5, 2, 4, 1, 3]
    assert found[2].last_at == datetime.fromisoformat("2026-05-14T12:00:00+00:00")
