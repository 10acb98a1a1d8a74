"""Who answers for a finding: the first rule that fits."""

from __future__ import annotations

import pytest

from lastgood.errors import InvalidInput
from lastgood.rules.document import Node
from lastgood.rules.finding_owners import OwnerRule, Owners

OWNERS = Owners.of(
    "platform",
    {
        "finding_owner": "oncall",
        "finding_owners": [
            {"owner": "storage", "cause": "accounting-gap", "prefix": ""},
            {"owner": "gpt-evals", "cause": "untracked", "prefix": "checkpoints/vision/gpt/"},
            {"owner": "gpt", "cause": None, "prefix": "checkpoints/vision/gpt/"},
        ],
    },
)


@pytest.mark.parametrize(
    ("cause", "key_range", "owner"),
    [
        ("accounting-gap", "rgw", "storage"),
        ("untracked", "checkpoints/vision/gpt/eval", "gpt-evals"),
        ("missing", "checkpoints/vision/gpt/eval", "gpt"),
        ("missing", "checkpoints/vision/gpt2/eval", "oncall"),
        ("untracked", "", "oncall"),
    ],
)
def test_the_first_rule_that_fits_decides(cause: str, key_range: str, owner: str) -> None:
    assert OWNERS.of_finding(cause, key_range) == owner


def test_without_rules_the_finding_owner_answers_else_the_projects() -> None:
    assert Owners.of("platform", {"finding_owner": "oncall"}).of_finding("x", "y") == "oncall"
    assert Owners.of("platform", {}).of_finding("x", "y") == "platform"


@pytest.mark.parametrize(
    "document",
    [{"owner": "a"}, {"cause": "missing"}, {"owner": "a", "prefix": ""}, {"owner": "a", "x": "y"}],
)
def test_a_rule_that_says_nothing_is_refused(document: dict[str, str]) -> None:
    def refuse(where: str, reason: str) -> InvalidInput:
        return InvalidInput(where=where, reason=reason)

    with pytest.raises(InvalidInput):
        OwnerRule.read(Node(document, "rule", refuse))
