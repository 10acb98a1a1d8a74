"""A contract is read strictly, and a job can put no more than a value into its command."""

from __future__ import annotations

from typing import Any

import pytest

from lastgood.errors import InvalidInput
from lastgood.rules.contract import Contract, Parameter, parse_contract
from lastgood.rules.document import Node


def refusal(where: str, reason: str) -> InvalidInput:
    return InvalidInput(where=where, reason=reason)


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": "mlp",
        "version": "1",
        "command": ["{python}", "restore.py", "--out={report}", "{parameters.ranks}"],
        "parameters": {"ranks": {"type": "integer", "least": 1, "most": 8}},
        "world_size": 2,
        "timeout": "5m",
        "memory": "4GiB",
    }
    return {key: value for key, value in (base | changes).items() if value is not None}


def in_pod(pod: dict[str, Any], **changes: Any) -> dict[str, Any]:
    command = ["{python}", "restore.py", "{parameters.ranks}"]
    return {"executor": "kubernetes", "pod": pod, "command": command} | changes


def parse(**changes: Any) -> Contract:
    return parse_contract(Node(document(**changes), "", refusal))


def test_least_contract_has_sensible_limits() -> None:
    contract = parse()
    assert contract.tolerance == 0
    assert contract.corrupt_codes == (65,)
    assert (contract.tasks, contract.pod, contract.environment) == (64, None, ())


def test_a_pod_runs_one_image_unless_another_is_told() -> None:
    pod = parse(**in_pod({"image": "train:1", "resources": {"nvidia.com/gpu": 2}})).pod
    assert pod is not None
    assert (pod.image, pod.fetch_image, pod.python) == ("train:1", "train:1", "python3")
    assert pod.resources == {"nvidia.com/gpu": "2"}


def test_no_number_is_negative_unless_its_parameter_says_so() -> None:
    contract = parse(parameters={"ranks": {"type": "integer"}})
    with pytest.raises(InvalidInput, match="is not from"):
        contract.parameters["ranks"].words("ranks", -5)


def test_words_are_filled_and_never_split() -> None:
    places = {"python": "/usr/bin/python", "report": "/tmp/a b", "parameters.ranks": "2; ls"}
    assert parse().words(places) == ["/usr/bin/python", "restore.py", "--out=/tmp/a b", "2; ls"]


def test_identity_changes_with_every_change() -> None:
    assert parse().identity == parse().identity
    assert parse().identity != parse(version="2").identity
    assert parse().identity != parse(tolerance=0.1).identity


@pytest.mark.parametrize(
    ("changes", "where", "says"),
    [
        ({"command": ["python", "x"]}, "command", "absolute path"),
        ({"command": []}, "command", "absolute path"),
        ({"command": ["{python}", "{parameters.other}"]}, "command[1]", "is unknown"),
        ({"command": ["{python}", "{home}"]}, "command[1]", "is unknown"),
        ({"command": "{python} x"}, "command", "not an array"),
        ({"parameters": {"a": {"type": "text"}}}, "parameters.a", "has a pattern"),
        ({"parameters": {"a": {"type": "text", "pattern": "("}}}, "parameters.a.pattern", "reg"),
        ({"parameters": {"a": {"type": "flag", "least": 1}}}, "parameters.a", "no least"),
        ({"parameters": {"a": {"type": "list"}}}, "parameters.a.type", "one of"),
        ({"world_size": 0}, "world_size", "whole number"),
        ({"tolerance": -1}, "tolerance", "from 0 to 1"),
        ({"environment": ["A=B"]}, "environment[0]", "not a name"),
        ({"reads": ["{home}"]}, "reads[0]", "is unknown"),
        ({"executor": "kubernetes"}, "", "given together"),
        ({"pod": {"image": "x"}}, "", "given together"),
        ({"shell": True}, "", "unknown key"),
        ({"timeout": None}, "", "timeout is missing"),
        (in_pod({"image": "x"}, processes=4), "processes", "no processes of a worker"),
        (in_pod({"image": "x"}, reads=["/data"]), "reads", "no reads of a worker"),
        (in_pod({"image": "x"}, environment=["A"]), "environment", "no environment of a worker"),
        (in_pod({"image": "x"}, command=["{checkout}/a"]), "command", "is a worker's"),
        (in_pod({}), "pod", "image is missing"),
        (in_pod({"image": "x", "privileged": True}), "pod", "unknown key"),
        (in_pod({"image": "x", "namespace": "A_b"}), "pod.namespace", "is not"),
        (in_pod({"image": "x", "coordinator": "ftp://a"}), "pod.coordinator", "https://"),
        (in_pod({"image": "x", "resources": {"memory": "1Gi"}}), "pod.resources.memory", "none of"),
        (in_pod({"image": "x", "resources": {"cpu": "many"}}), "pod.resources.cpu", "is not"),
    ],
)
def test_wrong_contract_is_refused_at_its_place(
    changes: dict[str, Any], where: str, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        parse(**changes)
    assert caught.value.facts["where"] == where


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        (Parameter("integer", 1, 8), 8, "8"),
        (Parameter("integer", 1, 8), 9, None),
        (Parameter("integer", 1, 8), 2.0, None),
        (Parameter("integer", 0, 8), True, None),
        (Parameter("number", 0, 1), 0.5, "0.5"),
        (Parameter("number", 0, 1), 1, "1"),
        (Parameter("number", 0, 1), "0.5", None),
        (Parameter("integer"), 5, "5"),
        (Parameter("integer"), -5, None),
        (Parameter("number"), -0.5, None),
        (Parameter("number"), -0.0, None),
        (Parameter("integer", -8), -5, "-5"),
        (Parameter("flag"), True, "true"),
        (Parameter("flag"), 1, None),
    ],
)
def test_parameter_takes_what_it_is_declared_for(
    parameter: Parameter, value: object, words: str | None
) -> None:
    if words is None:
        with pytest.raises(InvalidInput):
            parameter.words("x", value)
    else:
        assert parameter.words("x", value) == words
