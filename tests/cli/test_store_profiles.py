"""`lastgood store` probe, profile, list and unregister."""

from __future__ import annotations

from pathlib import Path

from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.flows import control_keys
from lastgood.stores.file import FileStore
from tests.cli.conftest import CommandLine
from tests.retention.world import World


def test_a_profile_is_made_and_shown(lastgood: CommandLine, world: World) -> None:
    assert lastgood("store", "profile", "local").code == 4
    made = lastgood("store", "probe", "local", "--json")
    assert made.code == 0
    assert made.document["recorded_by"] == "operator:ann"
    assert made.document["findings"]["replay-refused"]["answer"] == "yes"
    shown = lastgood("store", "profile", "local")
    assert shown.code == 0
    assert "by the SHA-256 that the store attests" in shown.out
    assert "conditional-put" in shown.out
    world.owner.execute(
        "INSERT INTO lastgood.store_profiles (store, place, probe_version, document, recorded_by)"
        ' SELECT store, place || \'{"root": "/there"}\', probe_version, jsonb_set(document,'
        " '{findings,replay-refused,answer}', '\"no\"'), 'operator:bob'"
        " FROM lastgood.store_profiles"
    )
    newer, older = lastgood("store", "profile", "local", "--history").out.splitlines()[1:]
    assert "operator:bob" in newer
    assert "-> /there; replay-refused yes -> no" in newer
    assert older.rstrip().endswith("operator:ann  first asked")
    assert lastgood("store", "profile", "none", "--history").code == 4


def test_a_store_is_unregistered_and_shown_as_such(
    lastgood: CommandLine, world: World, tmp_path: Path
) -> None:
    (tmp_path / "spare").mkdir()
    config = {"root": str(tmp_path / "spare")}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("spare", "file", config, "rack-2", "cold"))
    refused = lastgood("store", "unregister", "local", "--because", "sold")
    assert refused.code == 3
    assert "vision writes to it (projects/vision.yaml: store)" in refused.err
    done = lastgood("store", "unregister", "spare", "--because", "sold")
    assert (done.code, done.out) == (0, "Store spare is unregistered.\n")
    listed = lastgood("store", "list").out.splitlines()
    assert listed[1].split()[0] == "local"
    assert listed[-1].split()[0] == "spare"
    assert listed[-1].rstrip().endswith("operator:ann  sold")


def test_a_dead_store_is_given_up_and_what_was_lost_is_told(
    lastgood: CommandLine, world: World, tmp_path: Path
) -> None:
    copy = world.commit(1)
    (tmp_path / "spare").mkdir()
    with world.catalog.transaction() as tx:
        config = {"root": str(tmp_path / "spare")}
        projects.put_store(tx, StoreRow("spare", "file", config, "rack-2", "cold"))
        projects.put(tx, Project("vision", "team", "spare", "short", {}, None))
    asked = ("store", "unregister", "local", "--because", "burnt")
    assert lastgood(*asked, "--dry-run").code == 2
    held = lastgood(*asked, "--lost")
    assert held.code == 3
    assert "of a copy is there" in held.err
    (tmp_path / "store").rename(tmp_path / "burnt")
    control_keys.claim(world.catalog, FileStore("spare", tmp_path / "spare"))

    dry = lastgood(*asked, "--lost", "--dry-run")
    assert dry.code == 0
    assert "Nothing was changed: 1 copy (" in dry.out
    assert world.state(copy) == "present"
    done = lastgood(*asked, "--lost")
    assert done.code == 0
    assert "Recorded as lost: 1 copy (" in done.out
    assert str(copy.checkpoint) in done.out
    shown = lastgood("checkpoints", "--state", "lost")
    assert str(copy.checkpoint) in shown.out
    assert "burnt" in lastgood("store", "list").out
