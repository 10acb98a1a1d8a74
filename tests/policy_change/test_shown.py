"""A policy change by commands, through the API and on its pages."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import CommandLine, lastgood  # noqa: F401 - a fixture
from tests.operators.conftest import anybody, api  # noqa: F401 - fixtures
from tests.policy_change.test_policy_diff import record
from tests.policy_change.test_promotion import ONE, diff, promoted
from tests.retention.world import PROJECT, World


def test_a_change_goes_from_a_file_to_its_rollback_by_commands(
    world: World,
    lastgood: CommandLine,  # noqa: F811
    tmp_path: Path,
) -> None:
    for sequence in range(1, 6):
        world.commit(sequence)
    file, report, rows = (tmp_path / name for name in ("candidate.yaml", "it.html", "rows.jsonl"))
    file.write_text("name: candidate\nroles: {hot: {keep: newest, count: 1}}\n")

    told = lastgood("policy", "record", file, "-p", PROJECT, "--json")
    assert (told.code, told.document["policy"]) == (0, "candidate@v1")
    shown = lastgood(
        *("policy", "diff", "short@v1", "candidate@v1"),
        *("--detection", "1h", "--report", report, "--rows", rows),
    )
    assert shown.code == 0, shown.err
    assert "first sweep: 4 copies" in shown.out
    assert "of which 1 checkpoint," in shown.out
    page = report.read_text()
    assert page.count("<polyline") == 2
    assert "src=" not in page
    assert [json.loads(row)["checkpoint"] for row in rows.read_text().splitlines()] == [
        "vision/gpt/pretrain/1.4"
    ]
    promoted_now = lastgood(
        "policy", "promote", "candidate@v1", "--because", "room", "--json", LASTGOOD_OPERATOR="ann"
    )
    assert promoted_now.code == 0, promoted_now.err
    assert promoted_now.document["asked_by"] == "operator:ann"
    listed = lastgood("policy", "list", "--json").document["policies"]
    assert [(one["version"], one["in_force"]) for one in listed] == [(1, True), (1, False)]
    asked = lastgood("policy", "promotions", "--json").document["promotions"]
    assert [(one["policy"], one["replaces"]) for one in asked] == [("candidate@v1", "short@v1")]


def test_the_api_asks_for_a_difference_first_and_the_pages_show_it(
    world: World,
    api: httpx.Client,  # noqa: F811
) -> None:
    for sequence in range(1, 4):
        world.commit(sequence)
    document = {"name": "candidate", "roles": ONE}
    made = api.post("/v1/policies", json={"project": PROJECT, "document": document})
    assert (made.status_code, made.json()["policy"]) == (201, "candidate@v1")
    body = {"project": PROJECT, "policy": "candidate@v1", "because": "room"}
    assert api.post("/v1/policies/promotions", json=body).status_code == 409
    diff(world, "short@v1", "candidate@v1")
    (row,) = api.get("/v1/policies/differences").json()["differences"]
    path = f"{PROJECT}/differences/{row['difference_id']}"
    found = api.get(f"/v1/policies/differences/{PROJECT}/{row['difference_id']}").json()
    assert found["first_sweep"]["copies"] == 2
    asked = api.post("/v1/policies/promotions", json=body)
    assert (asked.status_code, asked.json()["replaces"]) == (201, "short@v1")
    page = api.get(f"/pages/policies/{path}")
    assert page.status_code == 200
    assert "The first sweep under candidate@v1" in page.text
    overview = api.get("/pages/policies").text
    assert f'href="../pages/policies/{path}"' in overview or f"policies/{path}" in overview
    assert "sweeps wait until" in overview


def test_who_asked_cannot_approve_on_the_page_either(
    world: World,
    api: httpx.Client,  # noqa: F811
) -> None:
    world.promote({"promotion": {"approve": True}})
    asked = promoted(world, record(world, "candidate", ONE), actor="operator:other")
    path = f"/v1/policies/promotions/{PROJECT}/{asked.promotion_id}/approve"
    done = api.post(path, json={"because": "looked"})
    assert done.status_code == 200
    assert done.json()["approved_by"] not in (None, "operator:other")
    again = api.post(path, json={"because": "looked"})
    assert again.status_code == 409


@pytest.mark.parametrize("document", [{"name": "x"}, {"name": "x", "roles": {}}])
def test_a_document_that_is_no_policy_is_refused(
    world: World,
    api: httpx.Client,  # noqa: F811
    document: object,
) -> None:
    answer = api.post("/v1/policies", json={"project": PROJECT, "document": document})
    assert (answer.status_code, answer.json()["type"]) == (422, "invalid-policy")
