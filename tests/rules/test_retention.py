from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import InvalidPolicy
from lastgood.rules.decision import DecisionDigest, StageDecision, StageFacts
from lastgood.rules.names import StageId
from lastgood.rules.policy import Policy, Prerequisite, Role
from lastgood.rules.retention import decide
from lastgood.rules.retention_rules import (
    AnyRule,
    Best,
    Candidate,
    Every,
    Level,
    Newest,
    Position,
    ReceiptVerdict,
    Steps,
)
from tests.rules.histories import (
    NOON,
    checkpoint,
    committed,
    digest_of,
    policy_of,
    sequences,
    ticks,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NEWEST_1, NEWEST_2 = policy_of(hot=Newest(1)), policy_of(hot=Newest(2))
NO_RECEIPTS: Mapping[Level, ReceiptVerdict] = {}


def reasons(decision: StageDecision, position: Position) -> list[tuple[str, str]]:
    return [(reason.kind.value, reason.name) for reason in decision.kept[position]]


# --- the union ----------------------------------------------------------------------------------


def test_kept_is_the_union_of_all_roles_with_every_reason() -> None:
    history = [
        checkpoint(number, at=NOON + number * 10 * MINUTE, metrics={"loss": 1 / number})
        for number in range(1, 14)
    ]
    policy = policy_of(
        hot=Newest(2), warm=Every(HOUR, DAY), best=Best("loss", "max", 1), steps=Steps(400)
    )
    decision = decide(history, policy, NOON + 3 * HOUR)
    assert {sequence: reasons(decision, (1, sequence)) for _, sequence in decision.kept} == {
        1: [("role", "best")],
        4: [("role", "steps")],
        5: [("role", "warm")],
        8: [("role", "steps")],
        11: [("role", "warm")],
        12: [("role", "hot"), ("role", "steps")],
        13: [("role", "hot"), ("role", "warm"), ("newest", "newest"), ("floor", "floor")],
    }
    assert sequences(decision.candidates) == [2, 3, 6, 7, 9, 10]


def test_burst_of_100_in_a_minute_pushes_out_no_good_checkpoint() -> None:
    hours = [NOON - (9 - number) * HOUR for number in range(9)]
    history = committed([*hours, *ticks(NOON + HOUR, timedelta(milliseconds=600), 100)])
    policy = policy_of(hot=Newest(4), warm=Every(6 * HOUR, 2 * DAY))
    decision = decide(history, policy, NOON + 2 * HOUR)
    assert sequences(decision.kept) == [3, 9, 106, 107, 108, 109]


def test_candidates_and_kept_are_in_order_of_integers() -> None:
    history = [checkpoint(number) for number in (999, 9000, 10000, 100000)]
    decision = decide(history, NEWEST_2, NOON)
    assert list(decision.kept) == [(1, 10000), (1, 100000)]
    assert list(decision.candidates) == [(1, 999), (1, 9000)]


@pytest.mark.parametrize("wrong", [[2, 1], [1, 1], [9000, 10000, 9999]])
def test_history_out_of_order_is_refused(wrong: list[int]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        decide([checkpoint(number) for number in wrong], NEWEST_1, NOON)


def test_empty_history_decides_nothing() -> None:
    decision = decide([], NEWEST_1, NOON)
    assert (decision.kept, decision.candidates, decision.floor) == ({}, {}, None)


@pytest.mark.parametrize("roles", [(), (Role("hot", Newest(0)),)])
def test_policy_that_keeps_nothing_cannot_be_built(roles: tuple[Role, ...]) -> None:
    with pytest.raises(InvalidPolicy):
        Policy("none", roles)


MATCHES_NOTHING = {
    "a metric that nobody gives": Best("accuracy", "max", 3),
    "receipts that nobody has": Every(HOUR, DAY, Level.RESTORE),
    "a window that is over": Every(HOUR, HOUR),
    "steps that nobody reaches": Steps(7777),
}


@pytest.mark.parametrize("rule", MATCHES_NOTHING.values(), ids=MATCHES_NOTHING)
def test_policy_that_matches_nothing_leaves_the_newest_and_the_floor(rule: AnyRule) -> None:
    history = [checkpoint(1), checkpoint(2), checkpoint(3), checkpoint(4, receipts=NO_RECEIPTS)]
    decision = decide(history, policy_of(only=rule), NOON + 2 * HOUR)
    assert decision.floor == (1, 3)
    assert {sequence: reasons(decision, (1, sequence)) for _, sequence in decision.kept} == {
        3: [("floor", "floor")],
        4: [("newest", "newest")],
    }


def test_checkpoint_from_the_future_is_kept_and_pushes_out_no_role() -> None:
    history = [
        checkpoint(1, at=NOON - HOUR),
        checkpoint(2, at=NOON + 9 * DAY),  # then the catalog's clock was put right
        checkpoint(3, at=NOON),
    ]
    policy = policy_of(hot=Newest(1), warm=Every(HOUR, DAY))
    decision = decide(history, policy, NOON)
    assert sequences(decision.kept) == [1, 2, 3]
    later = decide(history, policy, NOON + 30 * HOUR)
    assert sequences(later.kept) == [2, 3]
    assert sequences(decide(history, policy, NOON + 11 * DAY).kept) == [3]


def test_milestone_is_kept_by_its_hold_beyond_every_role() -> None:
    history = committed(ticks(NOON - 90 * DAY, DAY, 90))
    facts = StageFacts(holds={(1, 1): ["milestone-a"], (1, 40): ["milestone-b"]})
    decision = decide(history, policy_of(hot=Newest(2), warm=Every(DAY, 2 * DAY)), NOON, facts)
    assert sequences(decision.kept) == [1, 40, 89, 90]
    assert reasons(decision, (1, 40)) == [("hold", "milestone-b")]


def test_validated_role_keeps_the_newest_of_each_interval_that_passed() -> None:
    passed = {Level.FORMAT: ReceiptVerdict.PASS}
    history = [
        checkpoint(1, at=NOON - 2 * DAY, receipts=passed),
        checkpoint(2, at=NOON - 2 * DAY + HOUR, receipts=passed),
        checkpoint(3, at=NOON - 2 * DAY + 2 * HOUR),  # its checksum alone passed
        checkpoint(4, at=NOON - DAY, receipts={Level.FORMAT: ReceiptVerdict.INCONCLUSIVE}),
        checkpoint(5, at=NOON - DAY + HOUR, receipts=passed, failed=True),
        checkpoint(6, at=NOON, receipts=passed),
        checkpoint(7, at=NOON + HOUR),
    ]
    anchor = Role("anchor", Every(DAY, 7 * DAY, Level.FORMAT), Prerequisite.AGE_MET)
    decision = decide(history, Policy("p", (anchor,)), NOON + 2 * HOUR)
    assert sequences(decision.kept) == [2, 6, 7]
    assert decision.anchor == (1, 6)
    assert sequences(decision.candidates) == [1, 3, 4, 5]


# --- what is gone or going ----------------------------------------------------------------------


def test_deleted_is_neither_kept_nor_candidate() -> None:
    history = [checkpoint(1, present=False), checkpoint(2), checkpoint(3)]
    decision = decide(history, NEWEST_1, NOON)
    assert sequences(decision.kept) == [3]
    assert sequences(decision.candidates) == [2]


def test_quarantined_stays_candidate_until_a_role_selects_it_again() -> None:
    quarantined = checkpoint(1, present=False, quarantined=True)
    rest = [checkpoint(2), checkpoint(3)]
    assert sequences(decide([quarantined, *rest], NEWEST_2, NOON).candidates) == [1]
    failed = [checkpoint(2), checkpoint(3, failed=True)]
    decision = decide([quarantined, *failed], NEWEST_2, NOON)
    assert ("role", "hot") in reasons(decision, (1, 1))


# --- newest and floor ---------------------------------------------------------------------------


def test_newest_committed_stays_even_if_it_failed() -> None:
    decision = decide([checkpoint(1), checkpoint(2, failed=True)], NEWEST_1, NOON)
    assert reasons(decision, (1, 2)) == [("newest", "newest")]
    assert reasons(decision, (1, 1)) == [("role", "hot"), ("floor", "floor")]


def test_floor_is_the_newest_present_pass_beyond_every_role() -> None:
    history = [
        checkpoint(1),
        checkpoint(2),
        checkpoint(3, present=False, quarantined=True),
        checkpoint(4, receipts=NO_RECEIPTS),
        checkpoint(5, receipts={Level.RESTORE: ReceiptVerdict.INCONCLUSIVE}),
        checkpoint(6, receipts=NO_RECEIPTS),
    ]
    decision = decide(history, NEWEST_1, NOON)
    assert decision.floor == (1, 2)
    assert reasons(decision, (1, 2)) == [("floor", "floor")]
    assert sequences(decision.candidates) == [1, 3, 4, 5]


def test_everything_stays_while_nothing_has_passed() -> None:
    history = [checkpoint(number, receipts=NO_RECEIPTS) for number in range(1, 6)]
    decision = decide(history, NEWEST_1, NOON)
    assert decision.floor is None
    assert not decision.candidates
    assert reasons(decision, (1, 1)) == [("floor", "unproven")]


def test_pass_that_a_later_failure_overruled_is_no_floor() -> None:
    history = [
        checkpoint(1),
        checkpoint(2, failed=True, receipts={Level.CHECKSUM: ReceiptVerdict.PASS}),
    ]
    assert decide(history, NEWEST_1, NOON).floor == (1, 1)


# --- who refers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (StageFacts(holds={(1, 1): ["h-1", "h-2"]}), [("hold", "h-1"), ("hold", "h-2")]),
        (StageFacts(readers={(1, 1): ["eval"]}), [("reader", "eval")]),
        (StageFacts(active={(1, 1): ["generation 2"]}), [("active", "generation 2")]),
        (StageFacts(resumed_from={(1, 4): (1, 1)}), [("lineage", "1.4")]),
        (
            StageFacts(depends_on={digest_of(1_000_004): [digest_of(1_000_001)]}),
            [("dependency", "1.4")],
        ),
        (
            StageFacts(needed_elsewhere={digest_of(1_000_001): ["lab/llm/sft/1.1"]}),
            [("dependency", "lab/llm/sft/1.1")],
        ),
    ],
)
def test_what_is_referred_to_stays_with_the_name_of_who_refers(
    facts: StageFacts, reason: list[tuple[str, str]]
) -> None:
    decision = decide([checkpoint(number) for number in range(1, 5)], NEWEST_1, NOON, facts)
    assert reasons(decision, (1, 1)) == reason
    assert sequences(decision.candidates) == [2, 3]


def test_reason_named_twice_is_told_once() -> None:
    facts = StageFacts(holds={(1, 1): ["h", "h"]}, depends_on={digest_of(1_000_001): []})
    decision = decide([checkpoint(1), checkpoint(2)], NEWEST_1, NOON, facts)
    assert reasons(decision, (1, 1)) == [("hold", "h")]


def test_hold_on_what_is_not_there_keeps_nothing() -> None:
    history = [checkpoint(1, present=False), checkpoint(2)]
    facts = StageFacts(holds={(1, 1): ["h"], (9, 9): ["h"]})
    assert sequences(decide(history, NEWEST_1, NOON, facts).kept) == [2]


def test_dependencies_are_walked_to_their_end_also_through_deleted_ones() -> None:
    history = [
        checkpoint(1),
        checkpoint(2, present=False),
        checkpoint(3),
        checkpoint(4),
        checkpoint(5),
    ]
    chain = {digest_of(1_000_000 + number): [digest_of(999_999 + number)] for number in (2, 3, 5)}
    decision = decide(history, NEWEST_1, NOON, StageFacts(depends_on=chain))
    assert sequences(decision.kept) == [4, 5]
    chain[digest_of(1_000_004)] = [digest_of(1_000_003)]
    decision = decide(history, NEWEST_1, NOON, StageFacts(depends_on=chain))
    assert sequences(decision.kept) == [1, 3, 4, 5]
    assert reasons(decision, (1, 1)) == [("dependency", "1.2")]


def test_dependencies_are_walked_through_manifests_that_the_history_has_no_more() -> None:
    gone = digest_of(42)
    facts = StageFacts(
        depends_on={digest_of(1_000_003): [gone], gone: [digest_of(1_000_001)]},
    )
    decision = decide([checkpoint(1), checkpoint(2), checkpoint(3)], NEWEST_1, NOON, facts)
    assert reasons(decision, (1, 1)) == [("dependency", gone)]
    assert sequences(decision.candidates) == [2]


def test_dependencies_in_a_circle_end() -> None:
    one, two = digest_of(1_000_001), digest_of(1_000_002)
    history = [checkpoint(1), checkpoint(2), checkpoint(3)]
    facts = StageFacts(depends_on={one: [two], two: [one]}, needed_elsewhere={one: ["x"]})
    assert sequences(decide(history, NEWEST_1, NOON, facts).kept) == [1, 2, 3]


def test_lineage_goes_one_step_back_and_takes_its_dependencies_along() -> None:
    history = [
        checkpoint(1, generation=1),
        checkpoint(2, generation=1),
        checkpoint(1, generation=2),
        checkpoint(1, generation=3),
    ]
    facts = StageFacts(
        resumed_from={(3, 1): (2, 1), (2, 1): (1, 2)},
        depends_on={digest_of(2_000_001): [digest_of(1_000_001)]},
    )
    decision = decide(history, NEWEST_1, NOON, facts)
    assert list(decision.kept) == [(1, 1), (2, 1), (3, 1)]
    assert reasons(decision, (2, 1)) == [("lineage", "3.1")]
    without = dataclasses.replace(NEWEST_1, lineage=False)
    assert list(decide(history, without, NOON, facts).kept) == [(3, 1)]


def test_retired_stage_keeps_only_what_others_need() -> None:
    history = [checkpoint(number) for number in range(1, 5)]
    facts = StageFacts(
        holds={(1, 2): ["legal"]},
        needed_elsewhere={digest_of(1_000_003): ["lab/w/sft/1.1"]},
        retired=True,
    )
    decision = decide(history, policy_of(hot=Newest(4)), NOON, facts)
    assert sequences(decision.kept) == [2, 3]
    assert sequences(decision.candidates) == [1, 4]
    assert decision.candidates[1, 4].role_name == "none"


# --- what a candidate leaves --------------------------------------------------------------------

HOT = Role("hot", Newest(1), Prerequisite.NEWER_RESTORED)
WARM = Role("warm", Every(HOUR, 2 * HOUR), Prerequisite.ANCHOR_VERIFIED)
ANCHOR = Role("anchor", Every(DAY, 2 * DAY), Prerequisite.AGE_MET)
LADDER = Policy("ladder", (HOT, WARM, ANCHOR))


def test_candidate_leaves_the_role_that_kept_it_last() -> None:
    history = [
        checkpoint(1, at=NOON - 4 * DAY),  # an anchor once: newest of its day
        checkpoint(2, at=NOON - 10 * HOUR),  # never more than hot: its hour has a newer one
        checkpoint(3, at=NOON - 10 * HOUR + MINUTE),  # a warm one once: newest of its hour
        checkpoint(4, at=NOON - 9 * HOUR, failed=True),
        checkpoint(5, at=NOON - HOUR),
        checkpoint(6, at=NOON),
    ]
    decision = decide(history, LADDER, NOON + MINUTE)
    left = {position[1]: leaving.role_name for position, leaving in decision.candidates.items()}
    assert left == {1: "anchor", 2: "hot", 3: "warm", 4: "none"}
    asked = {position[1]: leaving.prerequisite for position, leaving in decision.candidates.items()}
    assert asked[1] is Prerequisite.AGE_MET
    assert asked[2] is Prerequisite.NEWER_RESTORED
    assert asked[3] is Prerequisite.ANCHOR_VERIFIED
    assert asked[4] is Prerequisite.NONE


def test_anchor_of_the_decision_is_the_newest_proven_one() -> None:
    history = [
        checkpoint(1, at=NOON - DAY),
        checkpoint(2, at=NOON, receipts=NO_RECEIPTS),
    ]
    assert decide(history, LADDER, NOON).anchor == (1, 1)
    assert decide(history, NEWEST_1, NOON).anchor is None


@pytest.mark.parametrize(
    ("age", "met"), [(2 * DAY - MINUTE, False), (2 * DAY, False), (2 * DAY + MINUTE, True)]
)
def test_age_is_met_after_the_window_and_not_within_it(age: timedelta, met: bool) -> None:
    assert ANCHOR.age_met(NOON, NOON + age) is met


def test_role_without_a_window_asks_for_no_age() -> None:
    assert HOT.age_met(NOON, NOON)


# --- the digest of a project's decision ---------------------------------------------------------

STAGES = [StageId.parse(text) for text in ("lab/a/pretrain", "lab/a/sft", "lab/b/sft")]


def project_digest(decisions: list[StageDecision]) -> str:
    digest = DecisionDigest()
    for stage, decision in zip(STAGES, decisions, strict=False):
        digest.add(stage, decision)
    return digest.hexdigest()


def test_digest_of_a_decision_is_pinned_and_tells_every_change_apart() -> None:
    history = [checkpoint(number) for number in range(1, 5)]
    same = decide(history, NEWEST_1, NOON)
    held = decide(history, NEWEST_1, NOON, StageFacts(holds={(1, 1): ["h"]}))
    other = decide(history, NEWEST_1, NOON, StageFacts(holds={(1, 1): ["i"]}))
    digests = [
        project_digest([same]),
        project_digest([same, same]),
        project_digest([held]),
        project_digest([other]),
        project_digest([decide(history, NEWEST_2, NOON)]),
    ]
    assert len(set(digests)) == len(digests)
    assert digests[0] == project_digest([decide(history, NEWEST_1, NOON + DAY)])
    assert digests[0] == "a1b9fabb2d2a3669c2dc372e3f73c4e28fcfe77a874f160961bf895c1e835701"


def test_stages_out_of_order_are_refused() -> None:
    decision = decide([checkpoint(1)], NEWEST_1, NOON)
    digest = DecisionDigest()
    digest.add(STAGES[1], decision)
    with pytest.raises(ValueError, match="after"):
        digest.add(STAGES[0], decision)


# --- what must hold whatever the history --------------------------------------------------------

VERDICTS = st.sampled_from(ReceiptVerdict)


@st.composite
def histories(draw: st.DrawFn) -> list[Candidate]:
    positions = sorted(draw(st.sets(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=15)))
    at = NOON
    history = []
    for generation, sequence in positions:
        at += draw(st.sampled_from([timedelta(seconds=1), MINUTE, HOUR, 7 * HOUR, DAY]))
        state = draw(st.sampled_from(["present", "present", "present", "quarantined", "gone"]))
        receipts = draw(st.dictionaries(st.sampled_from(Level), VERDICTS, max_size=3))
        history.append(
            checkpoint(
                sequence,
                generation=generation,
                at=at,
                step=draw(st.integers(0, 5)) * 1000,
                metrics=draw(st.sampled_from([{}, {"loss": 1.0}, {"loss": 2.0}])),
                receipts=receipts,
                failed=draw(st.booleans()) and ReceiptVerdict.FAIL in receipts.values(),
                present=state == "present",
                quarantined=state == "quarantined",
            )
        )
    return history


RULES = st.one_of(
    st.builds(Newest, st.integers(1, 4)),
    st.builds(
        Every,
        st.sampled_from([HOUR, 6 * HOUR, DAY]),
        st.sampled_from([HOUR, DAY, 7 * DAY, None]),
        st.sampled_from([None, *Level]),
        st.sampled_from(["UTC", "Europe/Berlin"]),
    ),
    st.builds(Best, st.just("loss"), st.sampled_from(["min", "max"]), st.integers(1, 3)),
    st.builds(Steps, st.sampled_from([1000, 2000])),
)
POLICIES = st.builds(
    lambda rules, lineage: Policy(
        "drawn",
        tuple(Role(f"role{number}", rule) for number, rule in enumerate(rules)),
        lineage=lineage,
    ),
    st.lists(RULES, min_size=1, max_size=4),
    st.booleans(),
)
POSITIONS = st.tuples(st.integers(1, 3), st.integers(0, 30))
REFERRERS = st.dictionaries(POSITIONS, st.lists(st.sampled_from("abc"), min_size=1, max_size=2))


@st.composite
def stage_facts(draw: st.DrawFn, history: list[Candidate]) -> StageFacts:
    manifests = st.sampled_from([item.manifest for item in history] or [digest_of(1)])
    places = st.sampled_from([item.position for item in history] or [(1, 1)])
    return StageFacts(
        holds=draw(REFERRERS),
        readers=draw(REFERRERS),
        active=draw(REFERRERS),
        depends_on=draw(st.dictionaries(manifests, st.lists(manifests, max_size=2), max_size=5)),
        needed_elsewhere=draw(st.dictionaries(manifests, st.just(["other"]), max_size=2)),
        resumed_from=draw(st.dictionaries(places, places, max_size=4)),
    )


@st.composite
def stages(draw: st.DrawFn) -> tuple[list[Candidate], StageFacts]:
    history = draw(histories())
    return history, draw(stage_facts(history))


AGES = st.sampled_from([timedelta(0), HOUR, DAY, 30 * DAY])


@given(stages(), POLICIES, AGES)
def test_every_existing_copy_is_either_kept_or_a_candidate(
    stage: tuple[list[Candidate], StageFacts], policy: Policy, age: timedelta
) -> None:
    history, facts = stage
    decision = decide(history, policy, NOON + age, facts)
    existing = [item.position for item in history if item.exists]
    assert sorted([*decision.kept, *decision.candidates]) == existing
    assert all(decision.kept.values())


@given(stages(), POLICIES, AGES)
def test_the_floor_and_the_newest_never_leave(
    stage: tuple[list[Candidate], StageFacts], policy: Policy, age: timedelta
) -> None:
    history, facts = stage
    decision = decide(history, policy, NOON + age, facts)
    existing = [item for item in history if item.exists]
    if existing:
        assert existing[-1].position in decision.kept
    if any(item.proven for item in history):
        assert any(item.proven and item.position in decision.kept for item in history)
    else:
        assert not decision.candidates


@given(stages(), POLICIES, AGES)
def test_nothing_that_is_held_read_active_or_needed_leaves(
    stage: tuple[list[Candidate], StageFacts], policy: Policy, age: timedelta
) -> None:
    history, facts = stage
    decision = decide(history, policy, NOON + age, facts)
    leaving = decision.candidates.keys()
    assert leaving.isdisjoint([*facts.holds, *facts.readers, *facts.active])
    by_manifest = {item.manifest: item.position for item in history}
    for item in history:
        if item.position in decision.kept:
            needed = facts.depends_on.get(item.manifest, ())
            assert leaving.isdisjoint(by_manifest[manifest] for manifest in needed)
    assert leaving.isdisjoint(by_manifest.get(manifest) for manifest in facts.needed_elsewhere)


@given(stages(), POLICIES, AGES, REFERRERS)
def test_more_holds_never_let_more_leave(
    stage: tuple[list[Candidate], StageFacts],
    policy: Policy,
    age: timedelta,
    more: dict[Position, list[str]],
) -> None:
    history, facts = stage
    before = decide(history, policy, NOON + age, facts)
    held = dataclasses.replace(facts, holds={**more, **facts.holds})
    after = decide(history, policy, NOON + age, held)
    assert before.kept.keys() <= after.kept.keys()


@given(stages(), POLICIES, RULES, AGES)
def test_one_more_role_never_lets_more_leave(
    stage: tuple[list[Candidate], StageFacts],
    policy: Policy,
    rule: Newest | Every | Best | Steps,
    age: timedelta,
) -> None:
    history, facts = stage
    before = decide(history, policy, NOON + age, facts)
    wider = dataclasses.replace(policy, roles=(*policy.roles, Role("more", rule)))
    after = decide(history, wider, NOON + age, facts)
    assert before.kept.keys() <= after.kept.keys()


@given(histories(), RULES, AGES)
def test_a_rule_keeps_no_more_than_it_says(
    history: list[Candidate], rule: Newest | Every | Best | Steps, age: timedelta
) -> None:
    kept = rule.keeps(history, NOON + age)
    qualifying = {item.position for item in history if item.qualifies}
    assert kept.keys() <= qualifying
    assert rule.most() is None or len(kept) <= rule.most()


@given(stages(), POLICIES, AGES)
def test_the_same_facts_give_the_same_decision(
    stage: tuple[list[Candidate], StageFacts], policy: Policy, age: timedelta
) -> None:
    history, facts = stage
    turned = dataclasses.replace(
        facts,
        holds=dict(reversed(facts.holds.items())),
        readers=dict(reversed(facts.readers.items())),
        resumed_from=dict(reversed(facts.resumed_from.items())),
        depends_on=dict(reversed(facts.depends_on.items())),
    )
    one = decide(history, policy, NOON + age, facts)
    other = decide(history, policy, NOON + age, turned)
    assert project_digest([one]) == project_digest([other])
