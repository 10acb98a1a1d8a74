from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import InvalidPolicy
from lastgood.rules import policy_text
from lastgood.rules.document import Node
from lastgood.rules.planning import plan
from lastgood.rules.policy import Policy, Prerequisite, Role
from lastgood.rules.policy_sections import EVERY_COMMIT, Bound, Cadence, QuarantinePolicy
from lastgood.rules.quantities import (
    duration_text,
    read_duration,
    read_share,
    read_size,
    rough_size,
    share_text,
    size_text,
)
from lastgood.rules.retention_rules import Best, Every, Level, Newest, Steps

DOCUMENT = """
name: default
timezone: Europe/Berlin
roles:
  hot:    {keep: newest, count: 4, tier: fast, leaves_when: newer_restored}
  warm:   {keep: every, interval: 6h, within: 2d, tier: warm, leaves_when: anchor_verified}
  anchor: {keep: every, interval: 1d, within: 7d, validated: format, leaves_when: age_met}
  best:   {keep: best, metric: eval/loss, mode: min, count: 2}
  every_n: {keep: steps, every: 10000}
gate: {level: restore, receipt_max_age: 7d}
quarantine: {grace: 3d, approve_above: 50TB}
uploads: {abort_after: 4h, margin_over_p99: 2, lifecycle_days: 1}
forensic_retention: 14d
capacity: {soft: 75%, hard: 85%, reserve: measured, spill_store: null}
validate: {checksum: every, format: every, restore: daily, reread_all_within: 30d}
objectives: {rpo: 30m, rto: 15m, max_overhead: 5%}
"""
LEAST: dict[str, Any] = {"name": "p", "roles": {"hot": {"keep": "newest", "count": 1}}}
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(DOCUMENT)
    return loaded


def parse(value: object) -> Policy:
    return Policy.parse(value, where="policies/default.yaml")


def test_every_key_is_read() -> None:
    policy = parse(document())
    assert policy.roles == (
        Role("hot", Newest(4), Prerequisite.NEWER_RESTORED, "fast"),
        Role(
            "warm",
            Every(6 * HOUR, 2 * DAY, zone="Europe/Berlin"),
            Prerequisite.ANCHOR_VERIFIED,
            "warm",
        ),
        Role(
            "anchor",
            Every(DAY, 7 * DAY, Level.FORMAT, "Europe/Berlin"),
            Prerequisite.AGE_MET,
        ),
        Role("best", Best("eval/loss", "min", 2)),
        Role("every_n", Steps(10000)),
    )
    assert policy.gate.level is Level.RESTORE
    assert policy.gate.receipt_max_age == 7 * DAY
    assert policy.quarantine.grace == 3 * DAY
    assert policy.quarantine.approve_above == 50 * 10**12
    assert policy.uploads.abort_after == 4 * HOUR
    assert policy.forensic_retention == 14 * DAY
    assert policy.capacity.soft == Bound(Fraction(3, 4))
    assert policy.capacity.reserve is None
    assert policy.validate.checksum == EVERY_COMMIT
    assert policy.validate.restore == Cadence(interval=DAY)
    assert policy.objectives.rpo == timedelta(minutes=30)


def test_what_is_left_out_has_the_safe_default() -> None:
    policy = parse(LEAST)
    assert policy.timezone == "UTC"
    assert policy.lineage
    assert policy.gate.level is Level.RESTORE
    assert policy.gate.mark_max_age == 2 * HOUR
    assert policy.quarantine == QuarantinePolicy(3 * DAY, 50 * 10**12, Fraction(1, 2), 10)
    assert policy.leases.grant <= policy.leases.writer
    assert policy.validate.restore.never


def _set(*path: str, to: object) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        for key in path[:-1]:
            value = value.setdefault(key, {})
        value[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_set("roles", to={}), "roles"),
        (_set("roles", to=None), "roles"),
        (_set("roles", "hot", to={"count": 4}), "roles.hot"),
        (_set("roles", "hot", "keep", to="oldest"), "roles.hot.keep"),
        (_set("roles", "hot", "count", to=0), "roles.hot.count"),
        (_set("roles", "hot", "count", to=-1), "roles.hot.count"),
        (_set("roles", "hot", "count", to=True), "roles.hot.count"),
        (_set("roles", "hot", "count", to="4"), "roles.hot.count"),
        (_set("roles", "hot", "interval", to="1h"), "roles.hot"),
        (_set("roles", "hot", "leaves_when", to="bored"), "roles.hot.leaves_when"),
        (_set("roles", "hot", "leaves_when", to="age_met"), "roles.hot.leaves_when"),
        (_set("roles", "anchor", "leaves_when", to="anchor_verified"), "roles.anchor.leaves_when"),
        (_set("roles", "warm", "interval", to=6), "roles.warm.interval"),
        (_set("roles", "warm", "interval", to="6"), "roles.warm.interval"),
        (_set("roles", "warm", "interval", to="0h"), "roles.warm.interval"),
        (_set("roles", "warm", "interval", to="-6h"), "roles.warm.interval"),
        (_set("roles", "warm", "within", to="1M"), "roles.warm.within"),
        (_set("roles", "anchor", "validated", to="maybe"), "roles.anchor.validated"),
        (_set("roles", "best", "mode", to="least"), "roles.best.mode"),
        (_set("roles", "best", "metric", to=""), "roles.best.metric"),
        (_set("roles", "every_n", "every", to=0), "roles.every_n.every"),
        (_set("roles", "Hot!", to={"keep": "newest", "count": 1}), "roles['Hot!']"),
        (_set("name", to="De fault"), "name"),
        (_set("timezone", to="Mars/Olympus"), "timezone"),
        (_set("timezone", to="../etc/passwd"), "timezone"),
        (_set("timezone", to=1), "timezone"),
        (_set("lineage", to="yes"), "lineage"),
        (_set("gate", "level", to="hope"), "gate.level"),
        (_set("gate", "levle", to="restore"), "gate"),
        (_set("gate", to=[]), "gate"),
        (_set("quarantine", "grace", to="3 days"), "quarantine.grace"),
        (_set("quarantine", "grace", to="0s"), "quarantine.grace"),
        (_set("quarantine", "approve_above", to=50), "quarantine.approve_above"),
        (_set("quarantine", "share_guard", to="0%"), "quarantine.share_guard"),
        (_set("quarantine", "share_guard", to="101%"), "quarantine.share_guard"),
        (_set("quarantine", "share_guard", to=0.5), "quarantine.share_guard"),
        (_set("uploads", "abort_after", to="24h"), "uploads.lifecycle_days"),
        (_set("uploads", "margin_over_p99", to=0.5), "uploads.margin_over_p99"),
        (_set("uploads", "lifecycle_days", to=1.5), "uploads.lifecycle_days"),
        (_set("capacity", "soft", to="85%"), "capacity.soft"),
        (_set("capacity", "hard", to="50 percent"), "capacity.hard"),
        (_set("capacity", "reserve", to="guessed"), "capacity.reserve"),
        (_set("capacity", "spill_store", to="No Store"), "capacity.spill_store"),
        (_set("validate", "restore", to="sometimes"), "validate.restore"),
        (_set("leases", "grant", to="1h"), "leases.grant"),
        (_set("objectives", "rpo", to=None), "objectives.rpo"),
        (_set("forensic_retention", to=14), "forensic_retention"),
        (_set("retention", to={}), "the document"),
    ],
)
def test_wrong_policy_is_refused_with_its_key(
    change: Callable[[dict[str, Any]], None], where: str
) -> None:
    wrong = copy.deepcopy(document())
    change(wrong)
    with pytest.raises(InvalidPolicy) as caught:
        parse(wrong)
    assert caught.value.facts["where"] == where
    assert caught.value.facts["policy"] == "policies/default.yaml"


@pytest.mark.parametrize("value", [None, [], "x", {}, {"name": "x"}, {"roles": {}}])
def test_what_is_no_policy_is_refused(value: object) -> None:
    with pytest.raises(InvalidPolicy):
        parse(value)


def test_anchor_verified_needs_an_anchor() -> None:
    wrong = document()
    del wrong["roles"]["anchor"]
    with pytest.raises(InvalidPolicy, match="anchor") as caught:
        parse(wrong)
    assert caught.value.facts["where"] == "roles.warm.leaves_when"


# --- identity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [document(), LEAST])
def test_policy_reads_back_from_its_document(value: object) -> None:
    policy = parse(value)
    again = parse(policy.to_json())
    assert again == policy
    assert again.digest == policy.digest


def test_digest_is_of_the_meaning_not_of_the_writing() -> None:
    other = document()
    other["roles"] = dict(reversed(other["roles"].items()))
    other["roles"]["warm"]["within"] = "48h"
    other["forensic_retention"] = "2w"
    other["validate"]["restore"] = "24h"
    other["quarantine"]["share_guard"] = "50.0%"
    assert parse(other).digest == parse(document()).digest
    other["quarantine"]["grace"] = "4d"
    assert parse(other).digest != parse(document()).digest


def test_digest_is_pinned() -> None:
    assert (
        parse(document()).digest
        == "0ed2894e87e8b90ae592e1c400e85471c08b203e9dc609d87d3571fbd039f78c"
    )


# --- what it says of itself ---------------------------------------------------------------------


def test_policy_says_itself_in_sentences() -> None:
    assert policy_text.sentences(parse(document())).splitlines() == [
        "Policy default, by the calendar of Europe/Berlin.",
        "As hot (tier fast), keep the newest 4 checkpoints; one leaves when a newer one has passed"
        " at the gate's level.",
        "As warm (tier warm), keep the newest checkpoint of each 6h for 2d; one leaves when the"
        " stage has a verified anchor.",
        "As anchor, keep the newest checkpoint with a passing format receipt of each 1d for 7d; one"
        " leaves when it is older than that.",
        "As best, keep the 2 with the lowest eval/loss.",
        "As every_n, keep each checkpoint at a multiple of 10000 steps.",
        "Always keep the newest checkpoint, whatever is held, read, resumed from or depended on,"
        " and the newest copy that passed a validation.",
        "A copy goes only if a newer one passed at level restore in the last 7d.",
        "It waits 3d in quarantine; more than 50TB at once needs approval.",
        "A sweep stops if it would take more than 50% of a project's copies and more than 10 of"
        " them.",
        "What is retired gives up its last copy, too, once a second operator approved it and nobody"
        " undid it for 14d.",
        "Incomplete uploads go after 4h without a live lease.",
        "Failed attempts, and copies that fail a validation, stay as evidence for 14d.",
        "Validation: checksum of every commit, format of every commit, restore of the newest every"
        " 1d; every byte is read again within 30d.",
        "A job may lose 30m of work, must run again within 15m, and may give 5% of its time to"
        " checkpoints.",
        "Collection begins at 75% of the store; nothing new is admitted above 85%.",
    ]


def test_good_policy_has_no_warnings() -> None:
    assert policy_text.warnings(parse(document())) == ()


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (_set("gate", "level", to="checksum"), "THE GATE IS WEAKER THAN RESTORE"),
        (_set("gate", "level", to="format"), "THE GATE IS WEAKER THAN RESTORE"),
        (_set("validate", "restore", to="never"), "NOTHING WILL EVER BE DELETED"),
        (_set("validate", "restore", to="weekly"), "Collection will stall"),
        (_set("quarantine", "grace", to="2s"), "nobody will notice"),
        (_set("quarantine", "share_guard", to="100%"), "share guard is off"),
        (_set("lineage", to=False), "resumed from may go"),
        (_set("roles", "warm", "interval", to="3d"), "none for a part of each interval"),
        (_set("roles", "warm", "interval", to="2d"), "Role warm never keeps more than one"),
        (_set("roles", to=LEAST["roles"]), "a burst of commits"),
    ],
)
def test_danger_is_told(change: Callable[[dict[str, Any]], None], warning: str) -> None:
    dangerous = document()
    change(dangerous)
    told = policy_text.warnings(parse(dangerous))
    assert len(told) == 1
    assert warning in told[0]


# --- planning -----------------------------------------------------------------------------------


def test_hot_4_warm_8_anchor_7_of_600_gb_are_11_4_tb() -> None:
    three = document()
    del three["roles"]["best"], three["roles"]["every_n"]
    planned = plan(parse(three), 600 * 10**9)
    assert planned.by_role == {"hot": 4, "warm": 8, "anchor": 7}
    assert planned.separate_bytes == 11_400_000_000_000
    assert planned.checkpoints == 19
    assert str(planned) == (
        "hot 4 + warm 8 + anchor 7 separate copies of 600 GB are 11.4 TB at most.\n"
        "As labels on one copy: the union, at most 19 checkpoints."
    )


def test_roles_that_only_history_bounds_are_named() -> None:
    planned = plan(parse(document()), 10**9)
    assert planned.checkpoints == 21
    assert planned.unbounded == ("every_n",)
    assert str(planned).endswith("every_n.")


# --- sections -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "copies", "stops"),
    [(10, 10, False), (11, 22, False), (12, 22, True), (11, 11, True), (0, 0, False)],
)
def test_share_guard_stops_a_sweep_that_takes_too_much(
    taken: int, copies: int, stops: bool
) -> None:
    assert QuarantinePolicy().stops_at(taken, copies) is stops


@pytest.mark.parametrize(
    ("p99", "threshold"), [(None, 4 * HOUR), (HOUR, 4 * HOUR), (3 * HOUR, 6 * HOUR)]
)
def test_uploads_are_given_up_beyond_the_measured_p99(
    p99: timedelta | None, threshold: timedelta
) -> None:
    assert parse(document()).uploads.threshold(p99) == threshold


# --- quantities ---------------------------------------------------------------------------------


def node(value: object) -> Node:
    return Node(
        value, "x", lambda where, reason: InvalidPolicy(policy="p", where=where, reason=reason)
    )


@pytest.mark.parametrize(
    ("text", "duration", "written"),
    [
        ("500ms", timedelta(milliseconds=500), "500ms"),
        ("90s", timedelta(seconds=90), "90s"),
        ("60s", timedelta(minutes=1), "1m"),
        ("30m", timedelta(minutes=30), "30m"),
        ("24h", DAY, "1d"),
        ("25h", 25 * HOUR, "25h"),
        ("2w", 14 * DAY, "14d"),
    ],
)
def test_duration(text: str, duration: timedelta, written: str) -> None:
    assert read_duration(node(text)) == duration
    assert duration_text(duration) == written


def test_no_time_is_written_in_seconds() -> None:
    assert duration_text(timedelta(0)) == "0s"


@pytest.mark.parametrize(
    "text", ["", "h", "1", "1.5h", " 1h", "1h ", "1H", "1h30m", "٣h", "999999999w", None, 60, "0s"]
)
def test_bad_duration_is_refused(text: object) -> None:
    with pytest.raises(InvalidPolicy):
        read_duration(node(text))


@pytest.mark.parametrize(
    ("text", "size", "written"),
    [
        ("0B", 0, "0B"),
        ("1B", 1, "1B"),
        ("50TB", 50 * 10**12, "50TB"),
        ("1.5 GB", 1_500_000_000, "1500MB"),
        ("512GiB", 512 * 2**30, "512GiB"),
        ("1kB", 1000, "1kB"),
        ("1KB", 1000, "1kB"),
        ("1KiB", 1024, "1KiB"),
        ("1000KiB", 1_024_000, "1024kB"),
    ],
)
def test_size(text: str, size: int, written: str) -> None:
    assert read_size(node(text)) == size
    assert size_text(size) == written


@pytest.mark.parametrize(
    "text", ["", "50", "TB", "-1B", "1.5B", "1e3B", "9PiBs", "9999EB", 5, None]
)
def test_bad_size_is_refused(text: object) -> None:
    with pytest.raises(InvalidPolicy):
        read_size(node(text))


@given(st.integers(0, 2**53 - 1))
def test_every_size_reads_back(size: int) -> None:
    assert read_size(node(size_text(size))) == size


@given(st.integers(1, 10**9))
def test_every_duration_reads_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert read_duration(node(duration_text(duration))) == duration


@given(st.integers(1, 1_000_000))
def test_every_share_reads_back(millionths: int) -> None:
    share = Fraction(millionths, 1_000_000)
    assert read_share(node(share_text(share))) == share


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (11_400_000_000_000, "11.4 TB"),
        (600 * 10**9, "600 GB"),
    ],
)
def test_rough_size(size: int, text: str) -> None:
    assert rough_size(size) == text


def test_policy_is_a_value() -> None:
    policy = parse(document())
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.name = "other"  # type: ignore[misc]
