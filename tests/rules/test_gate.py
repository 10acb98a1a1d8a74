from __future__ import annotations

import dataclasses
import json
from itertools import product

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.gate import Fact, GateFacts, Truth, judge, prerequisite
from lastgood.rules.policy import Policy, Prerequisite

NAMES = [field.name for field in dataclasses.fields(GateFacts)]
ALL_TRUE = GateFacts(**{name: Fact(Truth.TRUE, f"saw {name}") for name in NAMES})


def test_a_copy_goes_only_if_every_fact_is_true() -> None:
    verdict = judge(ALL_TRUE)
    assert verdict.allowed
    assert not verdict.alert
    assert (verdict.refusals, verdict.unknowns) == ((), ())
    assert str(verdict) == "may go: every condition is true"


@pytest.mark.parametrize("name", NAMES)
def test_one_false_fact_keeps_the_copy(name: str) -> None:
    verdict = judge(dataclasses.replace(ALL_TRUE, **{name: Fact(Truth.FALSE, "because")}))
    assert not verdict.allowed
    assert verdict.refusals == (name,)
    assert not verdict.alert
    assert str(verdict) == f"stays: {name}: because"


@pytest.mark.parametrize("name", NAMES)
def test_one_unknown_fact_keeps_the_copy_and_alerts(name: str) -> None:
    verdict = judge(dataclasses.replace(ALL_TRUE, **{name: Fact(Truth.UNKNOWN, "timed out")}))
    assert not verdict.allowed
    assert verdict.unknowns == (name,)
    assert verdict.alert
    assert str(verdict) == f"stays: {name} unknown: timed out"


@pytest.mark.parametrize("name", NAMES)
def test_a_fact_that_nobody_gathered_is_unknown(name: str) -> None:
    given_facts = {other: Fact(Truth.TRUE, "seen") for other in NAMES if other != name}
    assert judge(GateFacts(**given_facts)).unknowns == (name,)


@given(st.fixed_dictionaries({name: st.sampled_from(Truth) for name in NAMES}))
def test_allowed_means_all_true_and_every_other_fact_is_named(truths: dict[str, Truth]) -> None:
    verdict = judge(GateFacts(**{name: Fact(truth, "") for name, truth in truths.items()}))
    assert verdict.allowed == (set(truths.values()) == {Truth.TRUE})
    assert set(verdict.refusals) == {name for name in NAMES if truths[name] is Truth.FALSE}
    assert set(verdict.unknowns) == {name for name in NAMES if truths[name] is Truth.UNKNOWN}


def test_verdict_is_json_and_its_facts_read_back() -> None:
    facts = dataclasses.replace(ALL_TRUE, no_hold=Fact(Truth.FALSE, "held by ann"))
    document = json.loads(json.dumps(judge(facts).to_json()))
    assert document["refusals"] == ["no_hold"]
    assert document["facts"]["no_hold"] == {"truth": "false", "evidence": "held by ann"}
    assert GateFacts.from_json(document["facts"]) == facts


@pytest.mark.parametrize(
    ("value", "truth"), [(True, Truth.TRUE), (False, Truth.FALSE), (None, Truth.UNKNOWN)]
)
def test_none_is_unknown(value: bool | None, truth: Truth) -> None:
    assert Fact.of(value, "x").truth is truth


@pytest.mark.parametrize(("asked", "truth"), list(product(Prerequisite, Truth)))
def test_each_role_asks_for_its_own_prerequisite(asked: Prerequisite, truth: Truth) -> None:
    others = Fact(Truth.FALSE, "another")
    wanted = Fact(truth, "this one")
    answers = {
        "newer_passed": wanted if asked is Prerequisite.NEWER_RESTORED else others,
        "anchor_verified": wanted if asked is Prerequisite.ANCHOR_VERIFIED else others,
        "age_met": wanted if asked is Prerequisite.AGE_MET else others,
    }
    found = prerequisite(asked, **answers)
    assert found.truth is (Truth.TRUE if asked is Prerequisite.NONE else truth)


# The policy's own prerequisites, by role and by what is known of the fact that it asks for.
ROLES = """
    hot:    {keep: newest, count: 4, leaves_when: newer_restored}
    warm:   {keep: every, interval: 6h, within: 2d, leaves_when: anchor_verified}
    anchor: {keep: every, interval: 1d, within: 7d, leaves_when: age_met}
"""
OWN_FACT = {"hot": "newer_passed", "warm": "anchor_verified", "anchor": "age_met"}


@pytest.mark.parametrize("name", OWN_FACT)
@pytest.mark.parametrize("truth", Truth)
@pytest.mark.parametrize("held", Truth)
def test_a_role_lets_go_only_what_meets_its_own_prerequisite_and_is_not_held(
    name: str, truth: Truth, held: Truth
) -> None:
    policy = Policy.parse({"name": "own", "roles": yaml.safe_load(ROLES)}, where="test")
    role = policy.role(name)
    assert role is not None
    known = {
        fact: Fact(truth if fact == OWN_FACT[name] else Truth.TRUE, fact)
        for fact in OWN_FACT.values()
    }
    facts = dataclasses.replace(
        ALL_TRUE,
        newer_passed=known["newer_passed"],
        prerequisite_met=prerequisite(role.leaves_when, **known),
        no_hold=Fact(held, "holds"),
    )
    verdict = judge(facts)
    assert verdict.allowed == (truth is Truth.TRUE and held is Truth.TRUE)
    assert verdict.alert == (Truth.UNKNOWN in (truth, held))
