"""`lastgood policy`: what a file says before it is applied, and what is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.retention.world import World

PLANNED = """\
name: planned
roles:
  hot:    {keep: newest, count: 4, leaves_when: newer_restored}
  warm:   {keep: every, interval: 6h, within: 2d, leaves_when: anchor_verified}
  anchor: {keep: every, interval: 1d, within: 7d, validated: format, leaves_when: age_met}
gate: {level: restore, receipt_max_age: 7d}
validate: {checksum: every, format: every, restore: daily}
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> CommandLine:
    """The command line without a catalog."""
    return CommandLine({"LASTGOOD_CATALOG": "postgresql://127.0.0.1:9/none"}, tmp_path)


def _written(folder: Path, text: str, name: str = "planned.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_policy_is_said_in_sentences_with_the_space_it_can_need(
    nowhere: CommandLine, tmp_path: Path
) -> None:
    file = _written(tmp_path, PLANNED)

    told = nowhere("policy", "check", file)
    space = nowhere("policy", "check", file, "--json").document["space"]

    assert told.code == 0
    assert "As hot, keep the newest 4 checkpoints" in told.out
    assert "separate copies of 600 GB are 11.4 TB at most" in told.out
    assert "at most 19 checkpoints" in told.out
    assert "WARNING" not in told.out
    assert (space["separate_bytes"], space["union_checkpoints"]) == (11_400 * 10**9, 19)
    assert space["most_by_role"] == {"hot": 4, "warm": 8, "anchor": 7}


def test_the_space_follows_the_size_of_a_checkpoint(nowhere: CommandLine, tmp_path: Path) -> None:
    file = _written(tmp_path, PLANNED)

    told = nowhere("policy", "check", file, "--checkpoint-size", "1GiB", "--json")

    assert told.document["space"]["separate_bytes"] == 19 * 2**30
    assert nowhere("policy", "check", file, "--checkpoint-size", "large").code == 2


def test_a_gate_weaker_than_restore_is_said_first_and_loudly(
    nowhere: CommandLine, tmp_path: Path
) -> None:
    file = _written(tmp_path, PLANNED.replace("{level: restore", "{level: checksum"))

    told = nowhere("policy", "check", file)

    assert told.code == 0
    assert told.out.startswith("WARNING: THE GATE IS WEAKER THAN RESTORE")
    assert nowhere("policy", "check", file, "--strict").code == 1
    assert nowhere("policy", "check", _written(tmp_path, PLANNED), "--strict").code == 0


OVERRIDDEN = (
    PLANNED
    + """\
overrides:
  - workloads: "ablation-*"
    stages: sft
    roles:
      hot: {keep: newest, count: 2}
  - workloads: "*-small"
    quarantine: {grace: 1d}
"""
)


def test_overrides_are_said_with_their_space_and_their_overlaps(
    nowhere: CommandLine, tmp_path: Path
) -> None:
    file = _written(tmp_path, OVERRIDDEN)

    told = nowhere("policy", "check", file)
    space = nowhere("policy", "check", file, "--json").document["space"]

    assert told.code == 0
    assert "Override 0, for workloads ablation-*, stages sft:" in told.out
    assert "  As hot, keep the newest 2 checkpoints." in told.out
    assert "Overrides 0 and 1 overlap: for what both match, override 0 holds." in told.out
    assert "hot 2 separate copies of 600 GB are 1.2 TB at most" in told.out
    assert (space["separate_bytes"], space["union_checkpoints"]) == (11_400 * 10**9, 19)
    assert {words: one["union_checkpoints"] for words, one in space["overrides"].items()} == {
        "workloads ablation-*, stages sft": 2
    }


WRONG = [
    (OVERRIDDEN.replace("count: 2", "count: 0"), 12, "overrides[0].roles.hot.count"),
    (OVERRIDDEN.replace('"*-small"', '"Small"'), 13, "overrides[1].workloads"),
    (OVERRIDDEN.replace('"*-small"', '"*"'), 13, "overrides[1].workloads"),
    (OVERRIDDEN.replace("grace: 1d", "share_guard: 9%"), 14, "overrides[1].quarantine.share_guard"),
    (OVERRIDDEN.replace("    quarantine: {grace: 1d}\n", ""), 13, "overrides[1]"),
    (OVERRIDDEN.replace('"*-small"', '"ablation-x"\n    stages: sft'), 13, "overrides[1]"),
    (PLANNED.replace("count: 4", "count: 0"), 3, "roles.hot.count"),
    (PLANNED.replace("6h", "6 hours"), 4, "roles.warm.interval"),
    (PLANNED.replace("receipt_max_age", "receipt_age"), 6, "gate"),
    (PLANNED.replace("anchor: {", "cold: {"), 4, "roles.warm.leaves_when"),
    (PLANNED.replace("name: planned", "name: other"), 1, "name"),
    ("name: planned\nroles: {}\n", 2, "roles"),
    ("name: planned\nroles:\n  a: {keep: newest\n", 4, "-"),
]


@pytest.mark.parametrize(("text", "line", "key"), WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_key(
    nowhere: CommandLine, tmp_path: Path, text: str, line: int, key: str
) -> None:
    told = nowhere("policy", "check", _written(tmp_path, text), "--json")

    assert (told.code, told.document["type"]) == (2, "invalid-config")
    assert (told.document["line"], told.document["key"]) == (line, key)


def test_a_file_that_is_not_there_is_an_error_of_input(nowhere: CommandLine) -> None:
    assert nowhere("policy", "check", "nowhere.yaml").code == 2


def test_versions_tell_their_digest_and_since_when_they_are_in_force(
    world: World, lastgood: CommandLine
) -> None:
    newer = world.promote({"roles": {"hot": {"keep": "newest", "count": 5}}})

    listed = lastgood("policy", "list", "-p", "vision", "--json").document["policies"]
    shown = lastgood("policy", "show", "-p", "vision", "--json").document
    first = lastgood("policy", "show", "--version", "short:1")  # of the only project

    assert [(one["version"], one["in_force"]) for one in listed] == [(2, True), (1, False)]
    assert [one["until"] for one in listed] == [None, listed[0]["effective_from"]]
    assert shown["version"]["digest"] == shown["digest"] == newer.digest
    assert "newest 5" in lastgood("policy", "show").out
    assert "newest 2" in first.out
    assert lastgood("policy", "show", "--version", "short:9").code == 4
    assert lastgood("policy", "list", "--project", "ghost").code == 4


def test_the_policy_shown_says_for_how_many_stages_each_override_holds(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1)
    world.commit(1, stage="sft")
    one = {"hot": {"keep": "newest", "count": 1}}
    world.promote(
        {
            "overrides": [
                {"workloads": "gpt", "stages": "sft", "roles": one},
                {"workloads": "later-*", "roles": one},
            ]
        }
    )

    shown = lastgood("policy", "show", "-p", "vision", "--json").document

    assert shown["stages_by_override"] == {
        "workloads gpt, stages sft": 1,
        "workloads later-*": 0,
    }
    assert "override 1 holds for 0 stages now" in lastgood("policy", "show", "-p", "vision").out


def test_a_sweep_that_waits_is_approved_as_it_was_shown(
    world: World, lastgood: CommandLine
) -> None:
    world.promote({"quarantine": {"grace": "1h", "share_guard": "50%", "share_guard_min": 2}})
    copies = [world.commit(sequence) for sequence in range(1, 8)]
    world.mark()

    stopped = lastgood("sweep", "vision")
    digest = lastgood("sweep", "vision", "--dry-run", "--json").document["digest"]
    silent = lastgood("sweep", "vision", "--approve")
    other = lastgood("sweep", "vision", "--approve", "--because", "x", "--digest", "0" * 64)
    unasked = lastgood("sweep", "vision", "--because", "x")
    assert {world.state(copy) for copy in copies} == {"present"}
    approved = lastgood("sweep", "vision", "--approve", "--because", "looked", "--digest", digest)

    assert (stopped.code, silent.code, other.code, unasked.code) == (1, 2, 3, 2)
    assert approved.code == 0
    assert [world.state(copy) for copy in copies].count("quarantined") == 5
    assert world.row("SELECT approved_by, because FROM lastgood.sweep_approvals") == (
        "operator:ann",
        "looked",
    )
