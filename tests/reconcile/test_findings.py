"""Findings are opened once, have an owner by rule, are followed, and are closed by what an
inventory shows alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation import findings
from lastgood.catalog.reconciliation.findings import Finding
from lastgood.errors import Conflict, InvalidInput
from lastgood.flows.reconciliation import finding_close
from lastgood.flows.reconciliation.finding_close import FindingStands
from lastgood.flows.services import stores_of
from tests.reconcile.prepared import Prepared
from tests.reconcile.test_reconcile import _run as reconciled

STRAY = "checkpoints/vision/old/weights.bin"


def _one(catalog: Catalog, key_range: str = "checkpoints/vision") -> Finding:
    with catalog.transaction() as tx:
        (found,) = [
            one
            for one in findings.current(tx, projects=["vision"], closed=True)
            if one.key_range.startswith(key_range)
        ]
    return found


def _happened(catalog: Catalog, finding: Finding) -> list[str]:
    with catalog.transaction() as tx:
        return [one.kind for one in findings.events(tx, finding.finding_id)]


def _close(catalog: Catalog, finding: Finding) -> Finding:
    return finding_close.close(
        catalog, stores_of(catalog), finding.finding_id, actor="operator:ann"
    )


def test_nobodys_word_closes_a_finding_and_bytes_that_come_back_open_it_again(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.owner.execute(
        "UPDATE projects SET config = config || %s WHERE project = 'vision'",
        (
            Jsonb(
                {
                    "finding_owners": [
                        {"owner": "storage", "cause": "accounting-gap", "prefix": ""},
                        {"owner": "archivist", "cause": None, "prefix": "checkpoints/vision"},
                    ]
                }
            ),
        ),
    )
    prepared.commit({"model.bin": b"m" * 40})
    prepared.put(STRAY, b"w" * 123)
    reconciled(catalog, tmp_path)
    opened = _one(catalog)
    assert (opened.owner, opened.state) == ("archivist", "open")

    with pytest.raises(FindingStands) as refused:
        _close(catalog, opened)
    assert STRAY in str(refused.value)
    assert refused.value.facts["bytes"] == 123
    with catalog.transaction() as tx:
        at = history.now(tx)
        findings.explain(tx, opened.finding_id, reason="ours", actor="operator:ann", at=at)
    with pytest.raises(FindingStands):  # explained is not gone
        _close(catalog, opened)
    assert _one(catalog).state == "explained"
    with catalog.transaction() as tx:
        until, by_hand = opened.deadline, {"owner": "bob", "actor": "operator:ann"}
        findings.assign(tx, opened.finding_id, deadline=until, at=history.now(tx), **by_hand)

    (prepared.root / STRAY).unlink()
    closed = _close(catalog, opened)
    assert (closed.state, closed.size_bytes) == ("closed", 0)
    with pytest.raises(Conflict, match="closed already"):
        _close(catalog, opened)

    prepared.put(STRAY, b"w" * 50)
    reconciled(catalog, tmp_path)
    again = _one(catalog)
    assert again.finding_id == opened.finding_id
    assert (again.state, again.size_bytes, again.owner) == ("open", 50, "bob")
    assert again.deadline > opened.deadline
    assert _happened(catalog, again) == [
        "opened",
        "seen",
        "explained",
        "seen",
        "assigned",
        "closed",
        "opened",
    ]


def test_words_at_once_follow_one_another_and_a_finding_closes_in_a_store_that_was_left(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    prepared.put(STRAY, b"w" * 123)
    prepared.put("nobodys", b"n" * 5)
    reconciled(catalog, tmp_path)
    opened = _one(catalog)

    def explain(reason: str) -> None:
        with catalog.transaction() as tx:
            at = history.now(tx)
            findings.explain(tx, opened.finding_id, reason=reason, actor="operator:ann", at=at)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(explain, ("a", "b", "c", "d")))
    assert _happened(catalog, opened) == ["opened", *["explained"] * 4]

    with catalog.transaction() as tx:
        assign = partial(findings.assign, tx, opened.finding_id, actor="ann", at=history.now(tx))
        with pytest.raises(InvalidInput, match="owner"):
            assign(owner="  ", deadline=opened.deadline)
        with pytest.raises(InvalidInput, match="deadline"):
            assign(owner="ann", deadline=opened.opened_at - timedelta(days=1))

    prepared.owner.execute(
        "INSERT INTO stores (store, kind, config, failure_domain, tier)"
        " VALUES ('new', 'file', '{}', 'rack-2', 'fast')"
    )
    prepared.owner.execute("UPDATE projects SET store = 'new'")
    with catalog.transaction() as tx:
        (nobodys,) = findings.current(tx, projects=["-"])
    for path in (STRAY, "nobodys"):
        (prepared.root / path).unlink()
    assert [_close(catalog, one).state for one in (nobodys, opened)] == ["closed", "closed"]
