"""The records of a project that an auditor needs, each as one JSON object, in the order that
`rules.auditor` takes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from lastgood.catalog import control, history
from lastgood.catalog.auditing import audit_rows, certificates, daily_digests
from lastgood.catalog.db import Transaction
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.validation import receipts
from lastgood.rules.auditor import FORMAT, FORMAT_VERSION

Record = dict[str, Any]


def records(tx: Transaction, project: str) -> Iterator[Record]:
    """Every record, as of one moment if the transaction sees one. Nobody else may use the
    transaction meanwhile. Memory is one stage's records, or one manifest."""
    count = 1
    for record in _records(tx, project):
        yield record
        count += 1
    yield {"record": "end", "records": count}


def _records(tx: Transaction, project: str) -> Iterator[Record]:
    ours = control.identity(tx)
    yield {
        "record": "header",
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "project": project,
        "catalog_id": str(ours.catalog_id),
        "incarnation": ours.incarnation,
        "rebuilds": sorted(rebuilds.incarnations(tx)),
        "as_of": history.now(tx).astimezone(UTC).isoformat(),
    }
    for digest, document in audit_rows.named_policies(tx, project):
        yield {"record": "policy", "digest": digest, "document": document}
    for mark in audit_rows.named_marks(tx, project):
        yield {
            "record": "mark",
            "mark_id": mark.mark_id,
            "kind": mark.kind,
            "at": mark.at.astimezone(UTC).isoformat(),
            "policy_digest": mark.policy_digest,
            "digest": mark.digest,
        }
    for digest in audit_rows.named_manifests(tx, project):
        body = audit_rows.manifest_body(tx, project, digest)
        if body is not None:
            yield {"record": "manifest", "digest": digest, "body": body.decode(errors="replace")}
    for stage_id, stage in audit_rows.stages_with_records(tx, project):
        yield {"record": "stage", "stage": stage}
        yield from _of_stage(tx, project, stage_id)
    for day in daily_digests.of_project(tx, project):
        yield {"record": "digest", "digest": day.digest, "body": day.body}


def _of_stage(tx: Transaction, project: str, stage_id: int) -> Iterator[Record]:
    for receipt in receipts.of_stage(tx, project, stage_id):
        yield {"record": "receipt", "receipt": receipt.receipt, "body": receipt.body}
    for tombstone in tombstones.of_stage(tx, project, stage_id):
        yield {
            "record": "tombstone",
            "digest": tombstone.digest,
            "document": tombstones.document_of(tombstone),
            "proven": tombstone.proof is not None,
        }
    for one in certificates.of_stage(tx, project, stage_id):
        for answer in certificates.answers(tx, project, one.tombstone_id):
            yield {"record": "answer", "tombstone_id": str(one.tombstone_id), "answer": answer}
        yield {"record": "certificate", "certificate": one.certificate, "body": one.body}
