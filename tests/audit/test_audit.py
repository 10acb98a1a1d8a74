"""An audit passes over what was never touched, and names each record that was."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from lastgood import errors
from lastgood.catalog.db import Catalog
from lastgood.flows.auditing import audit
from lastgood.stack.postgres import EmbeddedPostgres
from tests.retention.world import World, opened


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """Two copies deleted with proof, one in deletion's queue, receipts for all."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        for sequence in range(1, 5):
            found.commit(sequence)
        found.mark()
        found.sweep()
        found.advance(timedelta(hours=1))
        found.mark()
        assert found.sweep()["deleted"] == 2
        yield found


@pytest.fixture
def superuser(postgres: EmbeddedPostgres, world: World) -> Iterator[psycopg.Connection[object]]:
    """Who can do what no role of ours can: write with the triggers off."""
    database = world.owner.info.dbname
    with psycopg.connect(postgres.dsn(database), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET search_path = lastgood")
        yield connection


def test_an_untouched_catalog_passes(world: World) -> None:
    found = audit.run(world.catalog)
    assert found.breaks == []
    assert (found.stages, found.receipts, found.tombstones, found.open_tombstones) == (1, 4, 2, 0)
    assert found.certificates == 2


TAMPERINGS = {
    "a receipt's verdict": (
        "UPDATE receipts SET verdict = 'fail' WHERE number = 2",
        [("receipt", "receipt 2", "verdict is 'fail'")],
    ),
    "a receipt's body": (
        "UPDATE receipts SET body = jsonb_set(body, '{verdict}', '\"fail\"') WHERE number = 2",
        [("receipt", "receipt 2", "its content has digest"), ("receipt", "receipt 2", "verdict")],
    ),
    "a receipt in the middle": (
        "DELETE FROM receipts WHERE number = 2",
        [("receipt", "receipt 3", "2 to 2 are missing"), ("receipt", "", "an event tells of it")],
    ),
    "the last receipt": (
        "DELETE FROM receipts WHERE number = 4",
        [("receipt", "", "an event tells of it")],
    ),
    "the last receipt with its event": (
        "WITH gone AS (DELETE FROM receipts WHERE number = 4 RETURNING receipt)"
        " DELETE FROM events WHERE facts->>'receipt' IN (SELECT receipt FROM gone)",
        [("event", "event", "the ones before it are missing")],
    ),
    "a tombstone's bytes": (
        "UPDATE tombstones SET bytes = bytes - 1 WHERE number = 1",
        [("tombstone", "tombstone 1", "its content has digest")],
    ),
    "the first tombstone": (
        "DELETE FROM tombstones WHERE number = 1",
        [("tombstone", "tombstone 2", "1 to 1 are missing"), ("copy", "", "without a tombstone")],
    ),
    "the last tombstone": (
        "DELETE FROM tombstones WHERE number = 2",
        [("copy", "", "without a tombstone")],
    ),
    "a proof": (
        "DELETE FROM tombstone_proofs WHERE tombstone_id ="
        " (SELECT tombstone_id FROM tombstones WHERE number = 1)",
        [("tombstone", "", "no proof says")],
    ),
    "what a proof says": (
        "UPDATE tombstone_proofs SET evidence = jsonb_set(evidence, '{keys_left}', '1')"
        " WHERE tombstone_id = (SELECT tombstone_id FROM tombstones WHERE number = 1)",
        [("tombstone", "", "something is left")],
    ),
    "a fact of the gate": (
        "UPDATE tombstones SET facts = jsonb_set(facts, '{facts,no_hold,truth}', '\"false\"')"
        " WHERE number = 2",
        [
            ("tombstone", "tombstone 2", "its content has digest"),
            ("tombstone", "tombstone 2", "fact no_hold is false"),
        ],
    ),
    "a certificate's body": (
        "UPDATE certificates SET body = jsonb_set(body, '{keys,answers}', '1') WHERE number = 1",
        [
            ("certificate", "certificate 1", "its content has digest"),
            ("certificate", "certificate 1", "what the store answered"),
        ],
    ),
    "a certificate": (
        "DELETE FROM certificates WHERE number = 2",
        [("tombstone", "tombstone 2", "uncertified")],
    ),
    "what the store answered": (
        "UPDATE tombstone_keys SET outcome = 'absent' WHERE number = 1",
        [("certificate", "certificate 1", "what the store answered")],
    ),
    "a mark's digest": (
        "UPDATE marks SET digest = repeat('0', 64)",
        [("tombstone", "tombstone 1", "has another digest than was certified")],
    ),
    "a mark's candidate": (
        "DELETE FROM mark_candidates WHERE copy_id ="
        " (SELECT copy_id FROM tombstones WHERE number = 1)",
        [("tombstone", "", "no candidate of the mark")],
    ),
    "a manifest": (
        "UPDATE manifests SET body = body || '\\x20'::bytea WHERE digest ="
        " (SELECT manifest FROM checkpoints WHERE sequence = 3)",
        [("manifest", "", "another SHA-256")],
    ),
    "a copy's state": (
        "UPDATE copies SET state = 'present' WHERE copy_id ="
        " (SELECT copy_id FROM tombstones WHERE number = 1)",
        [("copy", "", "not that of its last transition")],
    ),
    "a transition": (
        "DELETE FROM copy_transitions WHERE to_state = 'quarantined' AND copy_id ="
        " (SELECT copy_id FROM tombstones WHERE number = 1)",
        [("copy", "", "do not follow")],
    ),
    "the newest event": (
        "DELETE FROM events WHERE number = (SELECT max(number) FROM events)",
        [("stage", "vision/gpt/pretrain", "newest events are missing")],
    ),
    "a policy": (
        "DELETE FROM policy_versions",
        [("tombstone", "", "its policy was never recorded")],
    ),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_each_tampering_is_found(
    world: World, superuser: psycopg.Connection[object], what: str
) -> None:
    statement, expected = TAMPERINGS[what]
    assert superuser.execute(statement).rowcount > 0  # type: ignore[call-overload]

    found = audit.run(world.catalog).breaks

    for kind, name, problem in expected:
        assert any(
            one.kind == kind and name in one.name and problem in one.problem for one in found
        ), (kind, name, problem, found)


def test_a_deletion_certified_anew_is_found_by_the_next_in_its_chain(
    world: World, superuser: psycopg.Connection[object], catalog_dsn: str
) -> None:
    """Somebody who recomputes the digest of what they changed breaks the link after it."""
    from lastgood.catalog.sweeping import tombstones
    from lastgood.rules.certificates import identity

    superuser.execute("UPDATE tombstones SET actor = 'nobody' WHERE number = 1")
    with Catalog(catalog_dsn) as catalog, catalog.transaction() as tx:
        (stage_id,) = world.row("SELECT stage_id FROM lastgood.stages")
        first = tombstones.of_stage(tx, "vision", stage_id)[0]
    superuser.execute(
        "UPDATE tombstones SET digest = %s WHERE number = 1",
        (identity(tombstones.document_of(first)),),
    )
    found = audit.run(world.catalog, "vision").breaks
    told = {one.name: one.problem for one in found}
    assert set(told) == {"vision/gpt/pretrain tombstone 2", "vision/gpt/pretrain certificate 1"}
    assert "predecessor" in told["vision/gpt/pretrain tombstone 2"]
    assert "another one than was certified" in told["vision/gpt/pretrain certificate 1"]


def test_an_unknown_project_is_no_clean_audit(world: World) -> None:
    with pytest.raises(errors.NotFound):
        audit.run(world.catalog, "nobody")
