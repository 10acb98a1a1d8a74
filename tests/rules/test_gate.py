from __future__ import annotations

import dataclasses
import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.gate import Fact, GateFacts, Truth, judge, prerequisite
from lastgood.rules.policy import Prerequisite

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
