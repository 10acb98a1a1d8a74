"""Nothing that people or programs can say goes round the gate: there is no such word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from fastapi.routing import APIRoute

from lastgood.cli.app import app
from lastgood.coordinator import operator_routes
from lastgood.coordinator.app import create_app
from lastgood.coordinator.operators.auth import TokenGuard

BYPASS = re.compile(
    r"(?:^|[-_])(?:force|forced|bypass|override|ignore|unsafe|skip[-_]?(?:gate|check\w*|grace|holds?)"
    r"|no[-_]?(?:gate|check\w*|grace|holds?)|without|immediately|now|yes|dangerous\w*)(?:$|[-_])"
)
DAGS = Path(__file__).parents[2] / "dags"


def options(command: Any, name: str = "lastgood") -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        for word in (*parameter.opts, *parameter.secondary_opts):
            yield name, word.lstrip("-")
    for sub in getattr(command, "commands", {}).values():
        yield from options(sub, f"{name} {sub.name}")


def properties(schema: Any) -> Iterator[str]:
    """Every name of a field or a parameter in an OpenAPI document."""
    if isinstance(schema, Mapping):
        if "in" in schema and "name" in schema:
            yield str(schema["name"])
        yield from schema.get("properties", {})
        for value in schema.values():
            yield from properties(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from properties(value)


def parameters_of_dags() -> Iterator[tuple[str, str]]:
    """The keys of every `params={...}`, and of what is read from `params` or `conf`."""
    for file in sorted(DAGS.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "params":
                for each in ast.walk(node.value):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield file.name, each.value
            if isinstance(node, ast.Subscript) and "params" in ast.unparse(node.value):
                yield file.name, ast.unparse(node.slice).strip("'\"")


def test_the_words_that_would_go_round_the_gate_are_recognised() -> None:
    for word in ("force", "skip-gate", "no-grace", "ignore-holds", "bypass", "skip_checks"):
        assert BYPASS.search(word)
    for word in ("because", "grace", "no-json", "skip", "workload", "approve"):
        assert not BYPASS.search(word)


def test_no_option_no_field_and_no_parameter_goes_round_the_gate() -> None:
    said = list(options(typer.main.get_command(app)))
    assert len(said) > 50
    app_of_operators = create_app()
    operator_routes.include(app_of_operators, TokenGuard("0" * 64))
    fields = list(properties(app_of_operators.openapi()))
    fields += [
        parameter.alias
        for route in app_of_operators.routes
        if isinstance(route, APIRoute)
        for parameter in (*route.dependant.body_params, *route.dependant.query_params)
    ]
    assert "because" in fields
    found = [*said, *(("API", word) for word in fields), *parameters_of_dags()]
    assert [(where, word) for where, word in found if BYPASS.search(word)] == []
