"""A bucket's own rule against abandoned uploads, judged among the rules of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lastgood.rules.lifecycle import ABORT, Assessment, assess, destroying, our_rule

OURS = "team/a/checkpoints/"
NEEDED = (OURS, "team/a/control/")
LONGEST = timedelta(hours=30)


def abort(days: int, prefix: str = "", name: str = "theirs", **more: Any) -> dict[str, Any]:
    return {
        "ID": name,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        ABORT: {"DaysAfterInitiation": days},
        **more,
    }


MINE = our_rule("cloud", OURS, 2)
EXPIRES = {"ID": "e", "Status": "Enabled", "Prefix": "team/", "Expiration": {"Days": 30}}
ELSEWHERE = {"ID": "x", "Status": "Enabled", "Prefix": "logs/", "Expiration": {"Days": 3}}


def judged(rules: list[dict[str, Any]]) -> Assessment:
    return assess(rules, store="cloud", prefix=OURS, needed=NEEDED, needed_days=2, longest=LONGEST)


@pytest.mark.parametrize(
    ("rules", "state", "days", "proposes"),
    [
        ([], "absent", None, True),
        ([MINE], "kept", 2, False),
        ([ELSEWHERE], "absent", None, True),
        ([abort(7)], "kept", 7, False),
        ([abort(7, "team/")], "kept", 7, False),
        ([abort(7, "team/b/")], "absent", None, True),
        ([abort(7, OURS + "vision/")], "absent", 7, True),
        ([{**abort(7), "Status": "Disabled"}], "absent", None, True),
        ([{**abort(7), "Filter": {"And": {"Prefix": "team/", "Tags": []}}}], "absent", 7, True),
        ([{**abort(7, "x"), "Filter": {}, "Prefix": "team/"}], "kept", 7, False),
        ([abort(1, "team/")], "too-short", 1, True),
        ([abort(1, OURS + "vision/"), MINE], "too-short", 1, False),
        ([our_rule("cloud", OURS, 1)], "too-short", 1, True),
        ([our_rule("cloud", OURS, 9)], "kept", 9, True),
        ([our_rule("cloud", "team/b/", 2)], "absent", None, True),
        ([{**MINE, "Status": "Disabled"}], "absent", None, True),
        ([{**MINE, "Expiration": {"Days": 1}}], "kept", 2, True),
        ([our_rule("other", OURS, 2)], "kept", 2, False),
    ],
)
def test_a_rule_is_kept_absent_or_too_short(
    rules: list[dict[str, Any]], state: str, days: int | None, proposes: bool
) -> None:
    found = judged(rules)
    assert (found.state.value, found.days) == (state, days)
    assert (found.proposal is not None) is proposes
    if found.proposal is not None:
        others = [rule for rule in rules if rule["ID"] != MINE["ID"]]
        assert list(found.proposal) == [*others, MINE]


def test_a_foreign_rule_that_reaches_our_objects_is_named_and_left() -> None:
    rules = [EXPIRES, abort(1, "team/", "hasty"), ELSEWHERE]
    found = judged(rules)
    assert list(found.warnings) == [
        "rule 'hasty' is not ours: change it yourself, or its prefix",
        "rule 'e' deletes objects below 'team/a/checkpoints/': no checkpoint is safe from it",
    ]
    assert list(found.proposal or ()) == [*rules, MINE]


@pytest.mark.parametrize(
    ("changed", "below"),
    [
        ({}, OURS),
        ({"Prefix": "team/a/control/stages/"}, "team/a/control/"),
        ({"Prefix": "team/a/probe/"}, None),
        ({"Status": "Disabled"}, None),
        ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, None),
    ],
)
def test_a_rule_destroys_what_it_deletes_of_what_is_needed(
    changed: dict[str, Any], below: str | None
) -> None:
    told = [f"rule 'e' deletes objects below {below!r}: no checkpoint is safe from it"]
    assert list(destroying([{**EXPIRES, **changed}], NEEDED)) == (told if below else [])
