"""Each command, its JSON, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.cli import working
from lastgood.cli.app import app, run
from lastgood.rules import layout
from lastgood.stores.base import Key
from lastgood.stores.file import FileStore
from tests.cli.conftest import CommandLine
from tests.conftest import APP_ROLE
from tests.retention.world import World

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_status_counts_and_says_what_wants_attention(world: World, lastgood: CommandLine) -> None:
    world.commit(1)

    told = lastgood("status", "--json")
    checked = lastgood("status", "--check")

    assert told.code == 0
    (store,) = told.document["stores"]
    assert store["counts"]["committed"][0] == 1
    assert any("never reconciled" in alert for alert in told.document["alerts"])
    assert checked.code == 1
    assert "never reconciled" in checked.out


def test_status_warns_of_a_catalog_on_the_disk_of_a_store(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "var" / "postgres").mkdir(parents=True)

    told = lastgood("status")

    assert "local lies on the same disk as the catalog's database" in told.out


def test_status_says_that_the_catalog_is_behind_its_stores(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1)
    world.store.put_new(Key(layout.event_key(world.stage_name(), 999)), b'{"facts": {}}')

    told = lastgood("status", "--check")

    assert told.code == 1
    assert "! The catalog is behind store local" in told.out


HANGING_MOUNT = """
import datetime, os, time
from lastgood.stores import hurry
hurry.ANSWER_WITHIN = datetime.timedelta(seconds=1)
def hanging(call):
    def called(path, *given, **named):
        if str(path) == os.environ["HANGS"]:
            time.sleep(600)
        return call(path, *given, **named)
    return called
os.open, os.stat = hanging(os.open), hanging(os.stat)
"""


def test_status_ends_although_a_mount_hangs(
    lastgood: CommandLine, world: World, tmp_path: Path
) -> None:
    world.commit(1)
    root = str(tmp_path / "mounted")
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("shared", "file", {"root": root}, "hall-2", "fast"))
    told = replace(lastgood, before=HANGING_MOUNT)("status", HANGS=root)
    assert told.code == 0
    assert f"! Store shared does not answer: what was asked of its folder {root} did" in told.out
    assert told.out.count("shared") == 1
    assert "local" in told.out


def test_status_stands_although_stores_do_not_answer_and_names_each(
    world: World, lastgood: CommandLine
) -> None:
    world.commit(1)
    config = {"name": "cloud", "kind": "s3", "root": "checkpoints"}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("cloud", "s3", config, "region-1", "cold"))
    assert isinstance(world.store, FileStore)
    world.store.root.rename(world.store.root.with_name("unmounted"))

    told = lastgood(
        "status",
        "--json",
        AWS_ENDPOINT_URL_S3="http://127.0.0.1:1",
        AWS_ACCESS_KEY_ID="nobody",
        AWS_SECRET_ACCESS_KEY="nothing",
        AWS_DEFAULT_REGION="us-east-1",
    )

    assert told.code == 0
    assert told.document["stores"][0]["counts"]["committed"][0] == 1
    cloud, local = told.document["alerts"][:2]
    assert "Store cloud gave no whole answer" in cloud
    assert "of bucket 'checkpoints'" in cloud
    assert "Store local" in local
    assert "cannot be opened" in local


def test_checkpoints_show_and_receipts_agree(world: World, lastgood: CommandLine) -> None:
    world.commit(1)
    last = world.commit(2, metrics={"loss": 0.5})

    every = lastgood("checkpoints", "vision/gpt/pretrain", "--json").document
    newest = lastgood("checkpoints", "--limit", 1).out.splitlines()
    shown = lastgood("show", last.checkpoint, "--json").document
    receipts = lastgood("receipts", last.checkpoint, "--json").document["receipts"]

    listed = every["checkpoints"]
    assert (every["more"], newest[2:]) == (False, ["Others follow: a greater --limit shows them."])
    assert [one["checkpoint"] for one in listed] == [
        "vision/gpt/pretrain/1.2",
        "vision/gpt/pretrain/1.1",
    ]
    assert listed[0]["is_latest"]
    assert listed[0]["verdicts"] == {"checksum": "pass"}
    assert shown["metrics"] == {"loss": 0.5}
    assert [one["path"] for one in shown["objects_listed"]] == ["model.bin"]
    assert [one["receipt"] for one in shown["receipts"]] == [one["receipt"] for one in receipts]
    assert "vision/gpt/pretrain/1.2" in lastgood("show", last.checkpoint).out


def test_lists_that_are_cut_say_so(world: World, lastgood: CommandLine) -> None:
    world.prepare(1, {"a": b"a"})
    world.prepare(2, {"a": b"a"})
    world.owner.execute(
        "INSERT INTO lastgood.daily_digests (project, day, number, digest, body, recorded_at)"
        " SELECT 'vision', date '2026-01-01' + n, n, repeat(n::text, 64), '{\"stages\": []}', now()"
        " FROM generate_series(1, 2) AS n"
    )

    for command, listed in (("uploads", "attempts"), ("audit digests", "digests")):
        found = {
            limit: lastgood(*command.split(), "--limit", limit, "--json").document
            for limit in (1, 2)
        }
        assert [(len(one[listed]), one["more"]) for one in found.values()] == [
            (1, True),
            (2, False),
        ], command
        assert "Others follow" in lastgood(*command.split(), "--limit", 1).out
    assert found[1]["digests"][0]["number"] == 2  # the newest


def test_why_tells_every_fact_of_the_gate(world: World, lastgood: CommandLine) -> None:
    kept = world.commit(1)

    told = lastgood("why", kept.checkpoint)
    facts = lastgood("why", kept.checkpoint, "--json").document["copies"][0]["gate"]["facts"]

    assert told.code == 0
    assert "kept (role)" in told.out
    assert facts["no_hold"]["truth"] == "true"
    assert all(name.split("_")[0] in told.out for name in facts)


def test_a_hold_is_placed_listed_and_released(world: World, lastgood: CommandLine) -> None:
    kept = world.commit(1)

    placed = lastgood("hold", kept.checkpoint, "--kind", "legal", "--reason", "case 7", "--json")
    hold = placed.document["hold_id"]
    listed = lastgood("holds", "--json").document["holds"]
    released = lastgood("release", hold, "--because", "settled")
    again = lastgood("release", hold, "--because", "settled")

    assert [one["placed_by"] for one in listed] == ["operator:ann"]
    assert (placed.code, released.code, again.code) == (0, 0, 3)
    assert lastgood("holds").out.strip() == "No hold stands."


def test_a_hold_by_selector_takes_what_matches(world: World, lastgood: CommandLine) -> None:
    for sequence in (1, 2, 3):
        world.commit(sequence)

    placed = lastgood(
        "hold", "--project", "vision", "--step-from", 200, "--reason", "study", "--json"
    )

    assert placed.code == 0
    assert len(placed.document["checkpoint_ids"]) == 2


def test_mark_sweep_quarantine_and_undo(world: World, lastgood: CommandLine) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3, 4)]

    marked = lastgood("mark", "vision", "--json")
    planned = lastgood("sweep", "vision", "--dry-run", "--json").document
    assert world.state(copies[0]) == "present"
    swept = lastgood("sweep", "vision", "--json")
    listed = lastgood("quarantine", "list", "--json").document["quarantine"]
    undone = lastgood("quarantine", "undo", copies[0].checkpoint, "--because", "needed")

    assert marked.code == 0
    assert planned["quarantine"] == [str(copies[0].checkpoint), str(copies[1].checkpoint)]
    assert (swept.code, swept.document["quarantined"]) == (0, 1 + 1)
    assert [one["checkpoint"] for one in listed] == planned["quarantine"]
    assert undone.code == 0
    assert "unless it is held" in undone.out
    assert world.state(copies[0]) == "present"
    assert lastgood("quarantine", "undo", copies[3].checkpoint, "--because", "x").code == 3


def test_verify_passes_on_good_bytes_and_says_no_on_bad_ones(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    world.commit(1, receipt=None)
    bad = world.commit(2, receipt=None)

    good = lastgood("verify", "vision/gpt/pretrain/1.1", "--json")
    path = tmp_path / "store" / layout.object_key(bad.prefix, "model.bin")
    path.chmod(0o600)
    path.write_bytes(b"X" + path.read_bytes()[1:])
    told = lastgood("verify", bad.checkpoint)

    assert good.code == 0
    assert [one["verdict"] for one in good.document["receipts"]] == ["pass"]
    assert told.code == 1
    assert "fail" in told.out


def test_verify_passes_by_what_was_swept_meanwhile(
    world: World,
    catalog_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copies = [world.commit(sequence) for sequence in (1, 2, 3)]
    world.mark()
    world.sweep()
    monkeypatch.setattr(working, "_present", lambda *_: copies)
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)

    with pytest.raises(SystemExit) as ended:
        run(["verify", "vision", "--json"])

    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in told["receipts"]] == ["pass", "pass"]
    assert list(told["skipped"]) == [f"{copies[0].checkpoint} in local"]


def test_a_block_is_lifted_by_establishing_a_proven_checkpoint(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    proven = world.commit(1)
    bad = world.commit(2, receipt=None)
    unproven = world.commit(3, receipt=None)
    for copy in (bad, unproven):
        path = tmp_path / "store" / layout.object_key(copy.prefix, "model.bin")
        path.chmod(0o600)
        path.write_bytes(b"X" + path.read_bytes()[1:])
    (tmp_path / "store" / layout.object_key(proven.prefix, "model.bin")).rename(tmp_path / "away")
    assert lastgood("stage", "unblock", "--to", proven.checkpoint, "--because", "x").code == 3
    lastgood("verify", unproven.checkpoint)
    assert world.row("SELECT blocked_by IS NOT NULL FROM lastgood.stages") == (True,)

    refused = lastgood(
        "stage", "unblock", "--to", unproven.checkpoint, "--because", "hope", "--json"
    )
    (tmp_path / "away").rename(tmp_path / "store" / layout.object_key(proven.prefix, "model.bin"))
    lastgood("verify", proven.checkpoint)
    blocked = world.row("SELECT blocked_by IS NOT NULL FROM lastgood.stages") == (True,)
    lifted = (
        lastgood("stage", "unblock", "--to", proven.checkpoint, "--because", "checked")
        if blocked
        else None
    )

    assert (refused.code, refused.document["type"]) == (3, "conflict")
    assert lifted is None or lifted.code == 0
    assert world.row("SELECT blocked_by IS NULL FROM lastgood.stages") == (True,)
    stages = lastgood("stages", "--json").document["stages"]
    assert stages[0]["latest"] == str(proven.checkpoint)


def test_cleanup_answers_what_it_did(world: World, lastgood: CommandLine) -> None:
    world.prepare(1, {"a": b"1"})

    told = lastgood("cleanup", "vision", "--json")
    listed = lastgood("uploads", "--json").document["attempts"]

    assert told.code == 0
    assert [one["state"] for one in listed] == ["open"]


def test_what_a_store_left_undone_is_no_success(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    for sequence in (1, 2, 3, 4):
        world.commit(sequence)
    world.mark()
    for reserved in (".uploads", ".quarantine"):
        folder = tmp_path / "store" / reserved
        if folder.exists():
            folder.rename(folder.with_name(f"{reserved}-away"))
        folder.write_bytes(b"no folder")

    cleaned = lastgood("cleanup", "vision", "--json")
    swept = lastgood("sweep", "vision")

    (tmp_path / "store").rename(tmp_path / "unmounted")
    verified = lastgood("verify", "vision", "--json")

    assert cleaned.code == swept.code == verified.code == 5
    assert list(verified.document["failed"]) == [
        f"vision/gpt/pretrain/1.{sequence} in local" for sequence in (1, 3, 4)
    ]
    assert list(cleaned.document["failed"]) == ["uploads in local"]
    assert "failed: vision/gpt/pretrain/1.2 in local: " in swept.out
    assert "is no folder" in swept.out
    assert "1 thing was not done" in cleaned.err


def test_reconcile_writes_a_report_that_can_be_shown_and_written_again(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    world.commit(1)

    told = lastgood("reconcile", "vision", "--json")
    listed = lastgood("reports", "-p", "vision", "--json").document["reports"]
    assert lastgood("reports", "list", "--json").document["reports"] == listed
    shown = lastgood("reports", "show", listed[0]["report_id"], "--json").document
    lines = lastgood("reports", "show", listed[0]["report_id"]).out
    again = lastgood("reports", "write", listed[0]["report_id"], "--folder", tmp_path / "again")

    assert told.code == 0, told.out
    assert told.document["passed"]
    assert shown["equation"]["closes"]
    assert "the equation closes" in lines
    assert lines.index("committed  ") < lines.index("open  ") < lines.index("unexplained  ")
    assert Path(again.out.strip()).read_bytes() == Path(told.document["html"]).read_bytes()


def test_reconcile_exits_with_1_after_writing_the_report_of_a_failed_check(
    world: World, lastgood: CommandLine, tmp_path: Path
) -> None:
    lost = world.commit(1)
    path = tmp_path / "store" / layout.object_key(lost.prefix, "model.bin")
    path.unlink()
    stray = tmp_path / "store" / "stray\x1b[2J\nforged"  # what a terminal must not obey
    stray.write_bytes(b"12345")

    told = lastgood("reconcile", "vision")
    (finding,) = [
        one
        for one in lastgood("findings", "list", "--json").document["findings"]
        if one["cause"] == "untracked"
    ]
    explained = lastgood("findings", "explain", finding["finding"], "--reason", "a probe")
    refused = lastgood("findings", "close", finding["finding"])
    opened = lastgood("findings", "show", finding["finding"]).out
    stray.unlink()
    closed = lastgood("findings", "close", finding["finding"])
    again = lastgood("reconcile", "vision")
    (after, before) = [
        one["report_id"] for one in lastgood("reports", "--json").document["reports"]
    ]
    shown = lastgood("reports", "show", str(before))

    assert told.code == 1
    assert "nothing-committed-absent" in told.out
    assert explained.code == 0
    assert (refused.code, closed.code, again.code) == (3, 0, 1)
    assert r"stray\x1b[2J" in refused.err
    assert r"local:stray\x1b[2J\nforged, explained" in opened
    assert "\x1b" not in opened + refused.err
    assert shown.out.splitlines()[1].startswith("failed first: nothing-committed-absent, which ")
    assert "finding closed: untracked" in lastgood("reports", "diff", str(before), str(after)).out
    assert lastgood("reports", "show", str(before), "--csv").out.startswith("project,store,")
    assert lastgood("reports", "schema").document["title"] == "A report of lastgood"


def test_a_project_key_is_shown_once_and_revoked(world: World, lastgood: CommandLine) -> None:
    made = lastgood("project-key", "create", "vision", "trainer")
    twice = lastgood("project-key", "create", "vision", "trainer")
    revoked = lastgood("project-key", "revoke", "vision", "trainer")

    assert made.code == 0
    assert made.out.startswith("lg_")
    assert twice.code == 3
    assert revoked.code == 0
    stored = world.row("SELECT encode(key_sha256, 'hex') FROM lastgood.project_keys")[0]
    assert made.out.strip() not in stored


def test_a_jump_of_the_clock_waits_for_its_acceptance(world: World, lastgood: CommandLine) -> None:
    world.commit(1)
    world.owner.execute(
        "INSERT INTO lastgood.clock_jumps (observed_at, jump_seconds, boot_id)"
        " VALUES (now(), 900, 'b')"
    )
    refused = lastgood("sweep", "vision", "--json")
    jump = lastgood("clock", "list", "--json").document["jumps"][0]["jump_id"]
    accepted = lastgood("clock", "accept", jump, "--because", "daylight")

    assert (refused.code, refused.document["type"]) == (5, "clock-jump")
    assert accepted.code == 0
    assert lastgood("clock", "accept", jump, "--because", "daylight").code == 3


ERRORS: list[tuple[list[str], int, str]] = [
    (["show", "vision/gpt/pretrain/1.99"], 4, "not-found"),
    (["why", "vision/gpt/pretrain/9.9"], 4, "not-found"),
    (["show", "nonsense"], 2, "invalid-input"),
    (["release", str(uuid4()), "--because", "x"], 4, "not-found"),
    (["mark", "ghost"], 4, "not-found"),
    (["reconcile", "ghost"], 4, "not-found"),
    (["reports", "show", "77"], 4, "not-found"),
    (["hold", "--reason", "x"], 2, "invalid-input"),
    (["mark", "vision", "--at", "yesterday"], 2, "invalid-input"),
    (["findings", "explain", str(uuid4()), "--reason", "x"], 4, "not-found"),
    (["clock", "accept", "9", "--because", "x"], 4, "not-found"),
    (["apply", "/no/such/folder"], 2, "invalid-input"),
    (["stages", "-p", "nope"], 4, "not-found"),
    (["checkpoints", "-p", "nope"], 4, "not-found"),
    (["receipts", "-p", "nope"], 4, "not-found"),
    (["uploads", "-p", "nope"], 4, "not-found"),
    (["marks", "-p", "nope"], 4, "not-found"),
    (["reports", "-p", "nope"], 4, "not-found"),
    (["findings", "list", "-p", "nope"], 4, "not-found"),
]


@pytest.mark.parametrize(("arguments", "code", "kind"), ERRORS)
def test_errors_have_their_exit_code_and_are_problem_documents_with_json(
    world: World,
    lastgood: CommandLine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    kind: str,
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", lastgood.environment["LASTGOOD_CATALOG"])

    with pytest.raises(SystemExit) as ended:
        run([*arguments, "--json"])

    assert ended.value.code == code
    assert json.loads(capsys.readouterr().out)["type"] == kind


def test_an_error_is_one_line_without_a_traceback(world: World, lastgood: CommandLine) -> None:
    told = lastgood("show", "vision/gpt/pretrain/1.99")

    assert told.code == 4
    assert told.err == ("lastgood: There is no checkpoint 'vision/gpt/pretrain/1.99'.\n")


def test_a_wrong_option_is_a_usage_error(world: World, lastgood: CommandLine) -> None:
    told = lastgood("status", "--nonsense")
    assert (told.code, told.out) == (2, "")
    assert "No such option: --nonsense" in told.err
    assert lastgood("nonsense").code == 2


@pytest.mark.parametrize(
    ("arguments", "command", "said"),
    [
        (("status", "--nonsense"), "lastgood status", "No such option: --nonsense"),
        (("nonsense",), "lastgood", "No such command 'nonsense'"),
        (("quarantine", "nonsense"), "lastgood quarantine", "No such command 'nonsense'"),
        (("show",), "lastgood show", "Missing argument"),
    ],
)
def test_with_json_a_usage_error_is_a_problem_document(
    arguments: tuple[str, ...],
    command: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*arguments, "--json"])

    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == 2
    assert (document["type"], document["status"]) == ("wrong-command", 422)
    assert document["detail"].startswith(f"{command}: ")
    assert said in document["detail"]


def test_a_catalog_that_cannot_be_reached_is_exit_code_5(lastgood: CommandLine) -> None:
    away = "postgresql://nobody:x@127.0.0.1:9/none"

    told = lastgood("status", "--json", LASTGOOD_CATALOG=away)

    assert (told.code, told.document["type"]) == (5, "catalog-setup")


def test_migrate_needs_the_owner_and_repeats_as_a_no_op(
    lastgood: CommandLine, owner_dsn: str
) -> None:
    without = lastgood("migrate")
    told = lastgood("migrate", "--json", LASTGOOD_CATALOG_OWNER=owner_dsn)

    assert without.code == 5
    assert "LASTGOOD_CATALOG_OWNER" in without.err
    assert told.code == 0
    assert told.document["revision"]


def _commands() -> list[str]:
    from typer.main import get_command

    found: list[str] = []
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {})
        found += [f"{name} {one}" for one in inner] or [name]
    return found


def test_every_command_and_exit_code_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [one for one in _commands() if f"`lastgood {one}" not in text] == []
    assert [code for code in (*range(6), 70) if f"| {code} |" not in text] == []


def test_a_project_is_an_argument_where_something_is_done_to_it_and_else_an_option() -> None:
    from typer.main import get_command

    named = set()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for one, inner in (getattr(command, "commands", None) or {"": command}).items():
            for parameter in inner.params:
                if "PROJECT" in str(parameter.metavar) and parameter.param_type_name == "argument":
                    named.add(f"{name} {one}".strip())
                if parameter.name == "project" and parameter.param_type_name == "option":
                    assert parameter.opts == ["--project", "-p"]

    assert named == {
        *("verify", "mark", "sweep", "cleanup", "reconcile", "drill run", "audit export"),
        *("project-key create", "project-key revoke"),
    }


def test_help_tells_the_exit_codes(lastgood: CommandLine) -> None:
    told = " ".join(lastgood("--help").out.split())

    for sentence in ("0 done", "1 the answer is no", "3 refused", "4 not found", "5 not available"):
        assert sentence in told


C = "vision/gpt/pretrain/1.1"
ABSENT = "00000000-0000-0000-0000-000000000000"
PAST, FUTURE = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
REFUSED = [
    (f"hold {C} --reason \udcff", 2, "argument 4: it is not UTF-8"),
    (f"hold {C} --reason ' '", 2, "'--reason': it is empty"),
    (f"hold {C} --reason x --owner ' '", 2, "'--owner': it is empty"),
    (f"hold {C} --reason x --until {PAST}", 2, "lastgood: --until: "),
    (f"hold {C} --reason x --kind legal --until {FUTURE}", 2, "lastgood: --until: "),
    (f"hold {C} --reason x --kind odd", 2, "lastgood: --kind: "),
    (f"hold {C} -p other --reason x", 2, "lastgood: CHECKPOINT: "),
    ("hold vision/gpt/1.1 --reason x", 2, "lastgood: CHECKPOINT: "),
    ("hold VISION/gpt/pretrain/1.1 --reason x", 2, "lastgood: project: 'VISION' is not a name"),
    (f"hold -p vision --step-from {10**20} --reason x", 2, "lastgood: --step-from: "),
    ("hold -p vision --step-from 9 --step-to 3 --reason x", 2, "lastgood: --step-from: 9 is after"),
    ("hold -p vision --metric-to 1 --reason x", 2, "lastgood: --metric: "),
    ("hold -p vision --metric a --metric-from nan --reason x", 2, "lastgood: --metric-from: "),
    ("retire vision/gpt --reason x --grace 1s", 2, "lastgood: --grace: "),
    ("retire vision/gpt --reason ' '", 2, "'--reason': it is empty"),
    ("retire a/b/c/d --reason x", 2, "lastgood: SCOPE: "),
    ("stage unblock --to vision --because x", 2, "lastgood: --to: "),
    (f"mark vision --at {FUTURE}", 2, "lastgood: --at: "),
    ("mark vision --policy short", 2, "lastgood: --at: "),
    (f"verify {C} --level restore --level odd", 2, "lastgood: --level: "),
    ("verify vision/gpt", 2, "lastgood: CHECKPOINT|STAGE|PROJECT: "),
    ("sweep vision --approve --because ' '", 2, "'--because': it is empty"),
    (f"reconcile vision --to {FUTURE}", 2, "lastgood: --to: "),
    ("reconcile vision --folder /proc/nowhere", 2, "/proc/nowhere"),
    (f"capacity --at {FUTURE}", 2, "lastgood: --at: "),
    (f"accounting set local 5 --as-of {FUTURE} --because x", 2, "lastgood: --as-of: "),
    (f"accounting set local {10**30} --as-of {PAST} --because x", 2, "lastgood: BYTES: "),
    (f"findings assign {ABSENT} --owner x --deadline {PAST}", 2, "lastgood: --deadline: "),
    ("rebuild --because ' '", 2, "lastgood: --because: "),
    ("checkpoints --state odd", 2, "'--state'"),
    ("receipts --verdict odd", 2, "'--verdict'"),
    ("store profile local", 4, "no profile (`lastgood store probe` makes one) of store 'local'"),
    ("sweep nowhere", 4, "no project 'nowhere'"),
    ("cleanup nowhere", 4, "no project 'nowhere'"),
]


def test_what_cannot_be_meant_is_refused_and_named_as_it_was_typed(
    world: World,
    catalog_dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path / "var"))
    world.commit(1)
    for command, code, said in REFUSED:
        with pytest.raises(SystemExit) as ended:
            run(shlex.split(command))
        told = capsys.readouterr()
        assert (ended.value.code, told.out) == (code, ""), command
        assert said in told.err, command


def test_whatever_ends_a_command_has_an_exit_code_of_its_own(
    world: World,
    lastgood: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printing_to(output: Any, *command: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", "from lastgood.cli import main; main()", *command],
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=lastgood.environment,
            check=False,
        ).returncode

    def ending() -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            run(["marks"])
        return ended.value.code, capsys.readouterr().err

    unread, output = os.pipe()
    os.close(unread)
    assert printing_to(output, "marks") == 141
    with Path("/dev/full").open("wb") as full:
        assert printing_to(full, "marks", "--json") == 5

    monkeypatch.setenv("LASTGOOD_CATALOG", lastgood.environment["LASTGOOD_CATALOG"])
    world.owner.execute(f"REVOKE SELECT ON lastgood.marks FROM {APP_ROLE}")
    code, said = ending()
    assert (code, "permission denied for table marks" in said) == (5, True)
    monkeypatch.setattr("lastgood.catalog.views.operator_records.marks", lambda *_, **__: 1 / 0)
    code, said = ending()
    assert (code, "ZeroDivisionError" in said) == (70, True)


def test_a_place_that_is_no_connection_string_is_not_repeated(lastgood: CommandLine) -> None:
    told = lastgood("status", LASTGOOD_CATALOG="secret")
    migrated = lastgood("migrate", LASTGOOD_CATALOG_OWNER="secret")
    unreachable = lastgood("migrate", LASTGOOD_CATALOG_OWNER="host=127.0.0.1 port=9")

    assert [one.code for one in (told, migrated, unreachable)] == [5, 5, 5]
    assert "secret" not in told.err + migrated.err


def test_a_character_that_the_locale_lacks_is_shown_by_its_code(tmp_path: Path) -> None:
    file = tmp_path / "default.yaml"
    text = (Path(__file__).parents[2] / "include/config/policies/default.yaml").read_text(
        encoding="utf-8"
    )
    file.write_text(text.replace("metric: eval/loss", 'metric: "précision"'), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "lastgood.cli", "policy", "check", str(file)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"the lowest pr\xe9cision" in done.stdout
