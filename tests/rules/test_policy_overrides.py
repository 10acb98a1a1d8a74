"""Other rules for some workloads, inside the one policy of a project."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import InvalidPolicy
from lastgood.rules import policy_text
from lastgood.rules.globs import Glob
from lastgood.rules.planning import plan
from lastgood.rules.policy import Override, Policy, Role
from lastgood.rules.retention import decide
from lastgood.rules.retention_rules import Level, Newest
from tests.rules.histories import NOON, checkpoint, sequences

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DOCUMENT = """
name: default
timezone: Europe/Berlin
roles:
  hot:    {keep: newest, count: 4, leaves_when: newer_restored}
  warm:   {keep: every, interval: 6h, within: 2d, leaves_when: anchor_verified}
  anchor: {keep: every, interval: 1d, within: 7d, validated: format, leaves_when: age_met}
gate: {level: restore, receipt_max_age: 7d, mark_max_age: 6h}
quarantine: {grace: 3d, approve_above: 50TB, share_guard: 40%}
uploads: {abort_after: 4h, lifecycle_days: 2}
forensic_retention: 14d
validate: {checksum: every, format: every, restore: daily}
overrides:
  - workloads: "ablation-*"
    stages: "sft"
    roles: {hot: {keep: newest, count: 1}}
    gate: {level: checksum}
    quarantine: {grace: 1h}
    uploads: {abort_after: 1h}
    forensic_retention: 1d
    lineage: false
  - workloads: "ablation-*"
    roles:
      hot:  {keep: newest, count: 2}
      days: {keep: every, interval: 1d, within: 3d}
    validate: {checksum: every, restore: weekly}
    objectives: {rpo: 2h, rto: 1h, max_overhead: 10%}
"""


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(DOCUMENT)
    return loaded


def parse(value: object) -> Policy:
    return Policy.parse(value, where="policies/default.yaml")


# --- which one holds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "stage", "hot"),
    [
        ("ablation-7", "sft", 1),
        ("ablation-7", "pretrain", 2),
        ("ablation-", "sft", 1),
        ("ablation", "sft", 4),
        ("my-ablation-7", "sft", 4),
        ("gpt", "sft", 4),
    ],
)
def test_the_first_override_that_matches_a_stage_holds(workload: str, stage: str, hot: int) -> None:
    rules = parse(document()).for_stage(workload, stage)
    role = rules.role("hot")
    assert role is not None
    assert role.rule == Newest(hot)


def test_a_section_that_is_named_is_replaced_whole_and_no_other() -> None:
    policy = parse(document())
    rules = policy.for_stage("ablation-7", "sft")
    assert rules.roles == (Role("hot", Newest(1)),)
    assert rules.gate.level is Level.CHECKSUM
    assert rules.quarantine.grace == HOUR
    assert rules.uploads.abort_after == HOUR
    assert rules.forensic_retention == DAY
    assert not rules.lineage
    assert rules.validate == policy.validate
    assert rules.objectives == policy.objectives
    second = policy.for_stage("ablation-7", "pretrain")
    assert second.validate.format.never  # not that of the policy's own section
    assert second.objectives.rpo == 2 * HOUR
    assert second.gate == policy.gate


def test_what_is_the_whole_projects_stays_so_in_a_replaced_section() -> None:
    policy = parse(document())
    rules = policy.for_stage("ablation-7", "sft")
    assert rules.gate.mark_max_age == policy.gate.mark_max_age == 6 * HOUR
    assert rules.quarantine.share_guard == policy.quarantine.share_guard
    assert rules.quarantine.approve_above == policy.quarantine.approve_above
    assert rules.uploads.lifecycle_days == 2
    assert rules.timezone == "Europe/Berlin"
    assert rules.capacity == policy.capacity


def test_calendar_rules_of_an_override_are_in_the_policys_zone() -> None:
    role = parse(document()).for_stage("ablation-7", "pretrain").role("days")
    assert role is not None
    assert "Europe/Berlin" in role.rule.reason  # type: ignore[union-attr]


def test_two_policies_for_one_stage_by_name_decide_otherwise_over_the_same_history() -> None:
    policy = parse(document())
    history = [checkpoint(number) for number in range(1, 9)]
    kept = {
        stage: sequences(decide(history, policy.for_stage("ablation-7", stage), NOON).kept)
        for stage in ("sft", "pretrain")
    }
    own = sequences(decide(history, policy.for_stage("gpt", "sft"), NOON).kept)
    assert kept == {"sft": [8], "pretrain": [7, 8]}
    assert own == [5, 6, 7, 8]


# --- identity -------------------------------------------------------------------------------------


def test_overrides_are_part_of_the_one_digest_and_read_back() -> None:
    policy = parse(document())
    again = parse(policy.to_json())
    assert again == policy
    assert again.digest == policy.digest
    other = document()
    other["overrides"][0]["quarantine"]["grace"] = "60m"
    assert parse(other).digest == policy.digest
    other["overrides"][0]["quarantine"]["grace"] = "61m"
    assert parse(other).digest != policy.digest
    swapped = document()
    swapped["overrides"][1]["workloads"] = "ablation*"
    assert parse(swapped).digest != policy.digest


def test_a_document_without_overrides_has_the_digest_that_it_always_had() -> None:
    bare = document()
    del bare["overrides"]
    assert "overrides" not in parse(bare).to_json()
    assert parse({**bare, "overrides": []}).digest == parse(bare).digest


# --- what is refused ------------------------------------------------------------------------------


def _over(number: int, **changes: object) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        value["overrides"][number].update(changes)

    return change


def _add(**override: object) -> Callable[[dict[str, Any]], None]:
    return lambda value: value["overrides"].append(override)


HOT = {"hot": {"keep": "newest", "count": 1}}
REFUSED = [
    (_over(0, workloads="Ablation-*"), "overrides[0].workloads", "matches nothing"),
    (_over(0, workloads="a b"), "overrides[0].workloads", "matches nothing"),
    (_over(0, workloads=""), "overrides[0].workloads", "characters"),
    (_over(0, workloads="a" * 64), "overrides[0].workloads", "matches nothing"),
    (_over(0, workloads="a?"), "overrides[0].workloads", "matches nothing"),
    (_over(0, workloads=7), "overrides[0].workloads", "not text"),
    (_over(0, stages="-*"), "overrides[0].stages", "matches nothing"),
    (_over(0, roles={}), "overrides[0].roles", "no role keeps anything"),
    (_over(0, roles=None), "overrides[0].roles", "not an object"),
    (
        _over(0, roles={"hot": {"keep": "newest", "count": 0}}),
        "overrides[0].roles.hot.count",
        "whole number",
    ),
    (
        _over(
            1, roles={"w": {"keep": "every", "interval": "6h", "leaves_when": "anchor_verified"}}
        ),
        "overrides[1].roles.w.leaves_when",
        "another role named anchor",
    ),
    (
        _over(
            1,
            roles={"a": {"keep": "every", "interval": "6h", "validated": "restore"}},
            validate={"restore": "never"},
        ),
        "overrides[1].roles",
        "receipts that validate never makes",
    ),
    (
        _add(
            workloads="x",
            validate={"checksum": "every"},
            roles={"a": {"keep": "every", "interval": "6h", "validated": "format"}},
        ),
        "overrides[2].roles",
        "receipts that validate never makes",
    ),
    (_over(0, gate={"level": "hope"}), "overrides[0].gate.level", "one of"),
    (_over(0, gate={"levle": "restore"}), "overrides[0].gate", "unknown key"),
    (_over(0, gate={"mark_max_age": "1h"}), "overrides[0].gate.mark_max_age", "whole project's"),
    (
        _over(0, quarantine={"share_guard": "1%"}),
        "overrides[0].quarantine.share_guard",
        "whole project's",
    ),
    (
        _over(0, uploads={"lifecycle_days": 9}),
        "overrides[0].uploads.lifecycle_days",
        "whole project's",
    ),
    (
        _over(0, uploads={"abort_after": "3d"}),
        "overrides[0].uploads.abort_after",
        "shorter than the policy's uploads.lifecycle_days",
    ),
    (_over(0, capacity={"soft": "50%"}), "overrides[0].capacity", "whole project's"),
    (_over(0, timezone="UTC"), "overrides[0].timezone", "whole project's"),
    (_over(0, leases={}), "overrides[0].leases", "whole project's"),
    (_over(0, retire={}), "overrides[0].retire", "whole project's"),
    (_over(0, colour="red"), "overrides[0]", "unknown key"),
    (_add(roles=HOT), "overrides[2]", "workloads is missing"),
    (_add(workloads="x"), "overrides[2]", "changes nothing"),
    (_add(workloads="*", roles=HOT), "overrides[2].workloads", "every stage"),
    (_add(workloads="**", stages="*", roles=HOT), "overrides[2].workloads", "every stage"),
    (_add(workloads="ablation-9", roles=HOT), "overrides[2]", "overrides[1]"),
    (_add(workloads="ablation-*-b*", stages="sft", roles=HOT), "overrides[2]", "overrides[0]"),
    (lambda value: value.update(overrides={}), "overrides", "not an array"),
]


@pytest.mark.parametrize(("change", "where", "reason"), REFUSED)
def test_a_wrong_override_is_refused_with_its_key(
    change: Callable[[dict[str, Any]], None], where: str, reason: str
) -> None:
    wrong = copy.deepcopy(document())
    change(wrong)
    with pytest.raises(InvalidPolicy) as caught:
        parse(wrong)
    assert caught.value.facts["where"] == where
    assert reason in caught.value.facts["reason"]


def test_an_override_that_keeps_nothing_cannot_be_built() -> None:
    nothing = Override(Glob("a*"), roles=(Role("hot", Newest(0)),))
    with pytest.raises(InvalidPolicy) as caught:
        Policy("p", (Role("hot", Newest(1)),), overrides=(nothing,))
    assert caught.value.facts["where"] == "overrides[0].roles"


# --- what it says of itself -----------------------------------------------------------------------


def test_overrides_are_said_in_sentences_and_overlaps_are_named() -> None:
    told = policy_text.sentences(parse(document())).splitlines()
    assert told[told.index("Override 0, for workloads ablation-*, stages sft:") :] == [
        "Override 0, for workloads ablation-*, stages sft:",
        "  As hot, keep the newest checkpoint.",
        "  What kept checkpoints were resumed from may go.",
        "  Failed attempts, and copies that fail a validation, stay as evidence for 1d.",
        "  A copy goes only if a newer one passed at level checksum in the last 7d.",
        "  A copy waits 1h in quarantine.",
        "  Incomplete uploads go after 1h without a live lease.",
        "Override 1, for workloads ablation-*:",
        "  As hot, keep the newest 2 checkpoints.",
        "  As days, keep the newest checkpoint of each 1d for 3d.",
        "  Validation: checksum of every commit, format never, restore of the newest every 7d;"
        " every byte is read again within 30d.",
        "  A job may lose 2h of work, must run again within 1h, and may give 10% of its time to"
        " checkpoints.",
        "Overrides 0 and 1 overlap: for what both match, override 0 holds.",
    ]


def test_the_danger_of_an_override_is_told_with_whom_it_meets() -> None:
    told = policy_text.warnings(parse(document()))
    assert [warning.partition(":")[0] for warning in told] == [
        "For workloads ablation-*, stages sft",
        "For workloads ablation-*, stages sft",
        "For workloads ablation-*, stages sft",
        "For workloads ablation-*",
    ]
    assert "THE GATE IS WEAKER THAN RESTORE" in told[0]
    assert "No role keeps by time" in told[1]
    assert "resumed from may go" in told[2]
    assert "Collection will stall" in told[3]


def test_a_role_that_asks_for_receipts_that_never_come_is_told() -> None:
    value = document()
    value["validate"] = {"checksum": "every", "format": "never", "restore": "never"}
    value["gate"] = {"level": "checksum"}
    assert any("Role anchor keeps nothing" in one for one in policy_text.warnings(parse(value)))


def test_the_space_is_told_for_each_override_with_roles_of_its_own() -> None:
    planned = plan(parse(document()), 600 * 10**9)
    assert (planned.separate_bytes, planned.checkpoints) == (11_400 * 10**9, 19)
    assert {words: space.checkpoints for words, space in planned.overrides.items()} == {
        "workloads ablation-*, stages sft": 1,
        "workloads ablation-*": 5,
    }
    assert str(planned).splitlines()[2:] == [
        "Each stage of workloads ablation-*, stages sft:",
        "  hot 1 separate copies of 600 GB are 600 GB at most.",
        "  As labels on one copy: the union, at most 1 checkpoint.",
        "Each stage of workloads ablation-*:",
        "  hot 2 + days 3 separate copies of 600 GB are 3 TB at most.",
        "  As labels on one copy: the union, at most 5 checkpoints.",
    ]


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "covers", "meets"),
    [
        ("*", "a*", True, True),
        ("a*", "*", False, True),
        ("a*", "a", True, True),
        ("a*", "b*", False, False),
        ("a*", "*b", False, True),
        ("*a*", "a*", True, True),
        ("*a*", "*b*", False, True),
        ("a*b*c", "a*c", False, True),
        ("a*c", "a*b*c", True, True),
        ("a*a", "a", False, False),
        ("a.c", "abc", False, False),
        ("a*b", "a*bb", True, True),
        ("ab*", "a*b", False, True),
        ("ab*ba", "aba", False, False),
    ],
)
def test_patterns_cover_and_meet(one: str, other: str, covers: bool, meets: bool) -> None:
    assert Glob(one).covers(Glob(other)) is covers
    assert Glob(one).meets(Glob(other)) is meets
    assert Glob(other).meets(Glob(one)) is meets


PATTERNS = st.text("ab*", min_size=1, max_size=6).map(Glob)


@given(PATTERNS, PATTERNS, st.text("abc", min_size=1, max_size=6))
def test_what_patterns_say_of_each_other_is_true_of_every_name(
    one: Glob, other: Glob, name: str
) -> None:
    if one.covers(other) and other.matches(name):
        assert one.matches(name)
    if one.matches(name) and other.matches(name):
        assert one.meets(other)
