"""A report names what the store's locks keep, and what the store says of its encryption."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.flows.reconciliation import reconcile
from lastgood.reports import schema
from lastgood.rules import layout
from lastgood.stack.ceph_settings import KMS_KEY
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_encryption import Encryption
from tests.retention.world import PROJECT, World, opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def world(
    ceph_client: S3Client,
    ceph_locked_bucket: str,
    catalog_dsn: str,
    owner_dsn: str,
    tmp_path: Path,
) -> Iterator[World]:
    encryption = Encryption("SSE-KMS", KMS_KEY)
    store = S3Store("cloud", ceph_client, ceph_locked_bucket, encryption=encryption)
    with opened(catalog_dsn, owner_dsn, tmp_path, store) as found:
        yield found


def asks_for(world: World, encryption: str) -> None:
    """The configuration of the store, as a new `apply` would leave it."""
    config = {"name": "cloud", "root": world.store.bucket, "encryption": encryption}
    with world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("cloud", "s3", config, "region-1", "fast"))


def reconciled(world: World, folder: Path) -> tuple[dict[str, Any], str]:
    """The report as JSON, valid by its schema, and as HTML."""
    end = world.now()
    result = reconcile.run(
        world.catalog,
        world.stores,
        PROJECT,
        window=(end - timedelta(days=1), end),
        report_dir=folder,
        actor="dag:test",
    )
    report = json.loads(Path(result["json"]).read_text())
    jsonschema.Draft202012Validator(schema.document()).validate(report)
    return report, Path(result["html"]).read_text()


def test_what_is_locked_and_what_is_encrypted_is_in_the_report(
    world: World, tmp_path: Path
) -> None:
    asks_for(world, "SSE-KMS")
    old = world.commit(1, {"a.bin": b"abc"})
    for sequence in (2, 3):
        world.commit(sequence)
    key = layout.object_key(old.prefix, "a.bin")
    until = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    world.store.client.put_object_retention(
        Bucket=world.store.bucket,
        Key=key,
        Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until},
    )
    world.mark()
    assert world.sweep()["locked"] == 1
    report, page = reconciled(world, tmp_path / "reports")
    assert (report["locked"]["versions"], report["locked"]["bytes"]) == (1, 3)
    (locked,) = report["locked"]["first"]
    assert (locked["checkpoint"], locked["state"]) == (str(old.checkpoint), "present")
    assert datetime.fromisoformat(locked["until"]) == until
    assert report["locked"]["next_end"] == locked["until"]
    assert report["encryption"]["told"] == "as-asked"
    assert KMS_KEY in report["encryption"]["evidence"]
    assert locked["reason"] in page
    assert report["verdict"]["failed"] == []

    world.store.encryption = Encryption("SSE-S3")
    asks_for(world, "SSE-S3")  # what lies there was written by another key
    report, _ = reconciled(world, tmp_path / "reports")
    assert report["encryption"]["told"] == "unknown"
    assert "HEAD says aws:kms" in report["encryption"]["evidence"]
    assert report["verdict"]["failed"] == ["encrypted-as-asked"]
    assert report["passed"]
