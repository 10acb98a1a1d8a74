"""An export proves its deletions without catalog, store or network; whatever was changed in it,
taken out of it or put elsewhere shows."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.db import Catalog
from lastgood.flows.auditing import audit, audit_file, daily_digest
from lastgood.flows.auditing.audit_file import Checked
from lastgood.flows.cleaning import cleanup
from lastgood.rules import layout
from lastgood.rules.certificates import identity
from lastgood.stack.postgres import EmbeddedPostgres
from lastgood.stores.base import Key
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.factories import upload_object
from tests.retention.world import PROJECT, World, opened

Records = list[dict[str, Any]]
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def world(
    postgres: EmbeddedPostgres, template_catalog: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Three days: two copies deleted, nothing, an attempt cleaned up; then one more deletion."""
    name = "catalog_exported_audit"
    postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
    root = tmp_path_factory.mktemp("world") / "store"
    try:
        owner, app = postgres.dsn(name, OWNER_ROLE), postgres.dsn(name, APP_ROLE)
        with opened(app, owner, root) as found:
            _at_noon(found)
            for sequence in range(1, 5):
                found.commit(sequence)
            _delete(found)
            found.advance(2 * DAY)
            attempt = found.prepare(5, {"a.bin": b"aaaa"})
            upload_object(found.store, layout.object_key(attempt.prefix, "a.bin"), b"aaaa")
            found.advance(timedelta(hours=2))
            cleaned = cleanup.run(found.catalog, found.stores, PROJECT, "dag:test")
            assert cleaned["closed"] == 1, cleaned
            found.advance(DAY)
            assert len(daily_digest.make(found.catalog, found.stores, PROJECT).days) == 3
            found.commit(6)
            _delete(found)
            yield found
    finally:
        postgres.drop_database(name)


def _at_noon(world: World) -> None:
    """So that hours can pass without another day's beginning."""
    now = world.now().astimezone(UTC)
    world.advance(datetime(now.year, now.month, now.day, 12, tzinfo=UTC) - now + DAY)


def _delete(world: World) -> None:
    world.mark()
    world.sweep()
    world.advance(timedelta(hours=1))
    world.mark()
    assert world.sweep()["deleted"]


@pytest.fixture(scope="module")
def exported(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "vision.jsonl"
    written = audit_file.export(world.catalog, PROJECT, path)
    assert written.records == len(path.read_text().splitlines())
    return path


@pytest.fixture
def records(exported: Path) -> Records:
    return [json.loads(line) for line in exported.read_text().splitlines()]


def check(records: Records, folder: Path, expect: str | None = None) -> Checked:
    """Check these records as a file; what its last line says of the others is made to fit."""
    records = copy.deepcopy(records)
    before = "".join(json.dumps(record) + "\n" for record in records[:-1])
    if records[-1]["record"] == "end":
        records[-1] |= {
            "records": len(records),
            "sha256": hashlib.sha256(before.encode()).hexdigest(),
        }
    path = folder / "tampered.jsonl"
    path.write_text(f"{before}{json.dumps(records[-1])}\n")
    return audit_file.check(path, expect=expect)


def of_kind(records: Records, kind: str) -> Records:
    return [record for record in records if record["record"] == kind]


def test_an_untouched_export_passes_without_any_connection(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an offline audit opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(Catalog, "transaction", refuse)
    found = audit_file.check(exported)
    assert found.breaks == []
    assert (found.tombstones, found.certificates, found.open_tombstones) == (4, 4, 0)
    assert found.digests == 3
    assert audit_file.check(exported, expect=found.newest_digest).breaks == []


def test_the_catalog_itself_passes_the_same_audit(world: World, exported: Path) -> None:
    assert audit.run(world.catalog, PROJECT).breaks == []
    newest = audit_file.check(exported).newest_digest
    assert audit.run(world.catalog, PROJECT, expect=newest).breaks == []
    assert [one.kind for one in audit.run(world.catalog, PROJECT, expect="0" * 64).breaks] == [
        "digest"
    ]


def test_a_compressed_export_says_the_same(world: World, tmp_path: Path) -> None:
    path = tmp_path / "vision.jsonl.gz"
    audit_file.export(world.catalog, PROJECT, path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    found = audit_file.check(path)
    assert (found.breaks, found.certificates) == ([], 4)
    written = path.read_bytes()
    path.write_bytes(written[:-400])
    assert "to its end" in str(audit_file.check(path).breaks)
    for place in range(len(written) // 2, len(written), 97):
        path.write_bytes(written[:place] + bytes([written[place] ^ 16]) + written[place + 1 :])
        assert audit_file.check(path).breaks, f"byte {place}"


def test_every_fact_of_a_certificate_names_its_evidence(records: Records) -> None:
    first = of_kind(records, "certificate")[0]["body"]
    facts, evidence = first["intent"]["facts"]["facts"], first["intent"]["facts"]["evidence"]
    receipts = {one["receipt"] for one in of_kind(records, "receipt")}
    manifests = {one["digest"] for one in of_kind(records, "manifest")}
    marks = {one["digest"] for one in of_kind(records, "mark")}
    policies = {one["digest"] for one in of_kind(records, "policy")}
    assert facts["newer_passed"]["digests"]["receipt"] in receipts
    assert facts["newer_present"]["digests"]["manifest"] in manifests - {evidence["manifest"]}
    assert facts["marked"]["digests"]["mark"] in marks
    assert first["intent"]["policy_digest"] in policies
    assert evidence["manifest"] in manifests
    assert evidence["checkpoint"] in ("vision/gpt/pretrain/1.1", "vision/gpt/pretrain/1.2")
    assert evidence["holds"] == []
    assert evidence["readers"]["open"] == 0
    assert first["keys"]["answers"] == 3
    assert first["proof"]["keys_left"] == 0


def test_a_day_without_deletions_has_a_digest_and_a_missed_day_gets_one_later(
    records: Records,
) -> None:
    days = [one["body"] for one in of_kind(records, "digest")]
    first = date.fromisoformat(days[0]["day"])
    assert [date.fromisoformat(one["day"]) - first for one in days] == [timedelta(0), DAY, 2 * DAY]
    assert [sorted(one["stages"]) for one in days] == [
        ["vision/gpt/pretrain"],
        [],
        ["vision/gpt/pretrain"],
    ]


def _change(kind: str, place: int, change: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    def apply(records: Records) -> None:
        change(of_kind(records, kind)[place])

    return apply


def _drop(kind: str, place: int) -> Callable[..., None]:
    def apply(records: Records) -> None:
        records.remove(of_kind(records, kind)[place])

    return apply


def _swap(kind: str) -> Callable[..., None]:
    def apply(records: Records) -> None:
        first, second = (records.index(one) for one in of_kind(records, kind)[:2])
        records[first], records[second] = records[second], records[first]

    return apply


def _fact(name: str, truth: str) -> Callable[[dict[str, Any]], None]:
    def apply(record: dict[str, Any]) -> None:
        record["document"]["facts"]["facts"][name]["truth"] = truth

    return apply


def _set(*path: str, to: object) -> Callable[[dict[str, Any]], None]:
    def apply(record: dict[str, Any]) -> None:
        for part in path[:-1]:
            record = record[part]
        record[path[-1]] = to

    return apply


def _newer_failure(records: Records) -> None:
    """A receipt that failed on what the last deletion rested on, before that was intended."""
    last = of_kind(records, "receipt")[-1]
    body = {**last["body"], "number": 6, "previous": last["receipt"], "verdict": "fail"}
    name = identity(body)
    records.insert(records.index(last) + 1, {"record": "receipt", "receipt": name, "body": body})
    of_kind(records, "tombstone")[-1]["document"]["facts"]["evidence"]["receipts"] = [6, name]


TAMPERINGS: dict[str, tuple[Callable[[Records], None], str, str]] = {
    "a byte of a certificate": (
        _change("certificate", 1, _set("body", "keys", "answers", to=7)),
        "certificate 2",
        "its content has digest",
    ),
    "a certificate in the middle": (
        _drop("certificate", 1),
        "certificate 3",
        "numbers 2 to 2 are missing",
    ),
    "the last certificate": (_drop("certificate", -1), "tombstone 4", "uncertified"),
    "two certificates in the other order": (
        _swap("certificate"),
        "certificate 2",
        "numbers 1 to 1 are missing",
    ),
    "the last receipt": (_drop("receipt", -1), "tombstone 4", "the newest when it was intended"),
    "a receipt that speaks against a deletion": (
        _newer_failure,
        "tombstone 4",
        "failed on vision/gpt/pretrain/1.6",
    ),
    "a receipt of another stage": (
        _change("receipt", 0, _set("body", "checkpoint", to="vision/gpt/sft/1.1")),
        "receipt 1",
        "it is of vision/gpt/sft/1.1",
    ),
    "a stage of another project": (
        _change("stage", 0, _set("stage", to="other/gpt/pretrain")),
        "other/gpt/pretrain",
        "not of project vision",
    ),
    "a manifest of another project": (
        _change("manifest", 0, lambda one: one.update(body=one["body"].replace("vision", "other"))),
        "",
        "it is of project other",
    ),
    "a stage that is there again": (
        lambda records: records.insert(-4, of_kind(records, "stage")[0]),
        "vision/gpt/pretrain",
        "it is there twice",
    ),
    "a day that no calendar has": (
        lambda records: records.insert(
            -1,
            {
                "record": "digest",
                "digest": "0" * 64,
                "body": {
                    **of_kind(records, "digest")[-1]["body"],
                    "continues": {
                        "incarnation": 0,
                        "number": 9,
                        "digest": "",
                        "day": "9999-12-31",
                    },
                },
            },
        ),
        "record 39",
        "OverflowError",
    ),
    "a receipt": (_drop("receipt", 0), "receipt 2", "numbers 1 to 1 are missing"),
    "a receipt's content": (
        _change("receipt", 3, _set("body", "verdict", to="fail")),
        "receipt 4",
        "its content has digest",
    ),
    "a receipt's content, seen from the deletion that it justified": (
        _change("receipt", 3, _set("body", "verdict", to="fail")),
        "tombstone 1",
        "is a checksum fail, no checksum pass",
    ),
    "a manifest": (
        _change(
            "manifest", 0, lambda one: one.update(body=one["body"].replace('size":1', 'size":2', 1))
        ),
        "",
        "its body has another SHA-256",
    ),
    "a manifest that is not there": (_drop("manifest", 0), "", "is not among the records"),
    "a fact that the gate refuses": (
        _change("tombstone", 0, _fact("no_hold", "false")),
        "tombstone 1",
        "fact no_hold is false",
    ),
    "a fact that nobody knew": (
        _change("tombstone", 0, _fact("newer_present", "unknown")),
        "tombstone 1",
        "fact newer_present is unknown",
    ),
    "a hold that stood": (
        _change(
            "tombstone",
            0,
            lambda one: one["document"]["facts"]["evidence"]["holds"].append(
                {"hold": "h", "kind": "legal", "released_at": None, "expires_at": None}
            ),
        ),
        "tombstone 1",
        "hold h stood",
    ),
    "a mark's digest": (
        _change("mark", 0, _set("digest", to="0" * 64)),
        "tombstone 1",
        "another digest",
    ),
    "a mark that nothing is swept by": (
        _change("mark", 0, _set("kind", to="replay")),
        "tombstone 1",
        "is a replay one",
    ),
    "a policy": (
        _change("policy", 0, _set("document", "gate", "level", to="restore")),
        "",
        "its content has digest",
    ),
    "what a store answered": (
        _change("answer", 0, _set("answer", "outcome", to="refused")),
        "certificate 1",
        "what the store answered",
    ),
    "a day in the middle": (_drop("digest", 1), "", "some are missing"),
    "a day's heads": (
        _change("digest", 0, lambda one: one["body"]["stages"].clear()),
        "",
        "it says nothing",
    ),
    "the order of days": (_swap("digest"), "", "it follows the day"),
    "a line that is no JSON": (
        lambda records: records.insert(5, {"something": 1}),
        "record 6",
        "it cannot be read",
    ),
    "the end": (lambda records: records.pop() and None, "end", "cut off"),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_each_tampering_is_found(records: Records, tmp_path: Path, what: str) -> None:
    change, name, problem = TAMPERINGS[what]
    change(records)
    found = check(records, tmp_path).breaks
    assert any(name in one.name and problem in one.problem for one in found), found


@pytest.mark.parametrize("kind", ["header", "policy", "mark", "manifest", "stage", "answer"])
def test_a_byte_of_any_line_shows_in_the_last_one(
    exported: Path, tmp_path: Path, kind: str
) -> None:
    """A mark's instant or the name of the catalog decides nothing, and must not change either."""
    lines = exported.read_text().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if json.loads(line)["record"] == kind)
    told = json.loads(lines[place])
    lines[place] = json.dumps({**told, "note": "added"}) + "\n"
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(lines))
    assert "have SHA-256" in audit_file.check(path).breaks[-1].problem


def test_an_export_of_the_first_format_is_still_checked(records: Records, tmp_path: Path) -> None:
    records[0]["format_version"] = 1
    for one in of_kind(records, "tombstone"):
        one["document"]["facts"]["evidence"].pop("receipts", None)
    del records[-1]["sha256"]
    path = tmp_path / "old.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(one) + "\n" for one in resealed(records))
    assert audit_file.check(path).breaks == []


def resealed(records: Records) -> Records:
    """What somebody who may write everything makes of records that they changed: every digest and
    link anew."""
    intents: dict[str, dict[str, Any]] = {}
    heads: dict[str, dict[str, Any]] = {}
    last: dict[str, tuple[int, str | None]] = dict.fromkeys(
        ("receipt", "tombstone", "certificate", "digest"), (0, None)
    )
    for record in records:
        kind = record["record"]
        if kind not in last:
            continue
        body = record.get("body", record.get("document"))
        body["number"], body["previous"] = last[kind][0] + 1, last[kind][1]
        if kind == "certificate":
            body["intent"] = intents[body["intent"]["tombstone_id"]]
            body["intent_digest"] = identity(body["intent"])
        if kind == "digest":
            body["stages"] = (
                {"vision/gpt/pretrain": heads[body["day"]]} if body["day"] in heads else {}
            )
        name = identity(body)
        record["receipt" if kind == "receipt" else kind if kind == "certificate" else "digest"] = (
            name
        )
        last[kind] = (body["number"], name)
        if kind == "tombstone":
            intents[body["tombstone_id"]] = body
        if kind in ("tombstone", "certificate"):
            heads.setdefault(body["recorded_at"][:10], {})[f"{kind}s"] = [body["number"], name]
    return records


def test_a_deletion_taken_out_with_everything_resealed_misses_the_digest_that_was_kept(
    records: Records, tmp_path: Path
) -> None:
    """Whoever may rewrite every record can make them agree; not with a digest kept elsewhere."""
    kept = of_kind(records, "digest")[-1]["digest"]
    assert check(resealed(copy.deepcopy(records)), tmp_path, expect=kept).breaks == []
    gone = of_kind(records, "certificate")[2]
    tombstone = gone["body"]["intent"]["tombstone_id"]
    records = [
        one
        for one in records
        if one is not gone
        and one.get("document", {}).get("tombstone_id") != tombstone
        and one.get("tombstone_id") != tombstone
    ]
    resealed(records)
    assert check(records, tmp_path).breaks == []
    (found,) = check(records, tmp_path, expect=kept).breaks
    assert (found.kind, found.name) == ("digest", kept)
    assert "changed or taken out" in found.problem


def test_the_last_day_taken_out_misses_the_digest_that_was_kept(
    records: Records, tmp_path: Path
) -> None:
    kept = of_kind(records, "digest")[-1]["digest"]
    records.remove(of_kind(records, "digest")[-1])
    assert kept in [one.name for one in check(records, tmp_path, expect=kept).breaks]


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("{}\n")
    with pytest.raises(errors.InvalidInput, match="no export"):
        audit_file.check(path)


def test_each_digest_has_its_witness_in_the_store(world: World, records: Records) -> None:
    for one in of_kind(records, "digest"):
        key = layout.digest_key(PROJECT, one["body"]["number"])
        told = json.loads(world.store.read(Key(key)))
        assert told["facts"] == {"day": one["body"]["day"], "digest": one["digest"]}


def test_the_commands_need_no_catalog_for_a_check_and_exit_by_its_answer(
    exported: Path, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from lastgood.cli.app import run as command

    monkeypatch.delenv("LASTGOOD_CATALOG", raising=False)
    kept = of_kind(records, "digest")[-1]["digest"]
    changed = tmp_path / "changed.jsonl"
    changed.write_text(exported.read_text().replace('"actor":"dag:test"', '"actor":"dag:other"', 1))
    for arguments, code in (
        ([str(exported), "--expect", kept], 0),
        ([str(exported), "--expect", "0" * 64], 1),
        ([str(changed)], 1),
    ):
        with pytest.raises(SystemExit) as ended:
            command(["audit", "check", *arguments])
        assert (ended.value.code or 0) == code, arguments
    assert "its content has digest" in capsys.readouterr().out
