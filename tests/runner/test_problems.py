"""Errors of the coordinator come out as the classes that it raised."""

from __future__ import annotations

import pytest

from lastgood import errors
from lastgood.runner.problems import RemoteProblem, problem_of


def test_a_known_type_becomes_its_class_with_message_and_facts() -> None:
    document = {
        "type": "fenced-generation",
        "title": "fenced generation",
        "status": 409,
        "detail": "Generation 3 of demo/mlp/pretrain is fenced: 4 was acquired.",
        "generation": 3,
    }

    error = problem_of(document, 409, "http://c/lastgood")

    assert type(error) is errors.FencedGeneration
    assert str(error) == document["detail"]
    assert error.facts == {"generation": 3}


@pytest.mark.parametrize(
    "known",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.LastgoodError)
    ],
)
def test_every_error_of_the_library_is_rebuilt(known: type[errors.LastgoodError]) -> None:
    error = problem_of({"type": known.type, "detail": "said"}, known.status, "c")

    assert type(error) is known
    assert str(error) == "said"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"type": "part-invalid", "detail": "too short", "part": 3}, "part-invalid"),
        ({"detail": "Not Found"}, "no problem document"),
        ("<html>Bad gateway</html>", "no problem document"),
        (["odd"], "no problem document"),
    ],
)
def test_what_is_not_known_keeps_its_status_and_words(document: object, problem: str) -> None:
    error = problem_of(document, 418, "http://c/x")

    assert isinstance(error, RemoteProblem)
    assert error.facts["problem"] == problem
    assert error.facts["http_status"] == 418
    assert "http://c/x answered 418" in str(error)
