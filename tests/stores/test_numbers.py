"""What a backend accounts beside a listing: blocks, quotas, deleted files, statistics."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from lastgood.rules.accounting import Covers, Number, Unreadable, compare
from lastgood.stores import file_numbers
from lastgood.stores.base import Key
from lastgood.stores.file import FileStore
from lastgood.stores.s3_numbers import cloudwatch_number, s3_numbers

AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "causes", "rest", "gap"),
    [
        (Number("rgw", 100, Covers.STORE), {}, 0, 0),
        (Number("rgw", 130, Covers.STORE), {}, 30, 30),
        (Number("rgw", 130, Covers.BUCKET), {}, 30, 0),
        (Number("operator", 90, Covers.STORE), {}, -10, 0),
        (Number("operator", 305, Covers.STORE, replicas=3), {"replication-factor": 200}, 5, 5),
        (
            Number("operator", 250, Covers.STORE, replicas=3, listed_then_bytes=80),
            {"accounting-delay": -20, "replication-factor": 160},
            10,
            10,
        ),
        (
            Number("statvfs", 500, Covers.FILE_SYSTEM, beside={"snapshots": 300}, allocated=True),
            {"snapshots": 300, "sparse-files": -40, "block-rounding": 7},
            133,
            0,
        ),
    ],
)
def test_a_number_is_its_named_causes_and_a_rest(
    number: Number, causes: dict[str, int], rest: int, gap: int
) -> None:
    allocation = {"sparse-files": -40, "block-rounding": 7, "hard-links": 0}

    found = compare(number, listed_bytes=100, allocation=allocation, apparent={})

    assert found.causes == causes
    assert (found.rest_bytes, found.gap_bytes) == (rest, gap)


def test_a_folder_with_a_smaller_file_system_than_its_mount_point_has_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore("local", tmp_path)
    store.put_new(Key("a/b"), b"x" * 10_000)
    really: Callable[[Any], os.statvfs_result] = os.statvfs

    def with_quota(path: Any) -> Any:
        found = really(path)
        if Path(path) != tmp_path:
            return found
        values = [found.f_bsize, found.f_frsize, 1_000, 600, 600, *found[5:]]
        return os.statvfs_result(values)

    monkeypatch.setattr(file_numbers.os, "statvfs", with_quota)
    du, quota = store.numbers()

    assert (du.how, quota.how) == ("du", "project-quota")
    assert quota.size_bytes == 400 * really(tmp_path).f_frsize


def test_only_deleted_files_of_the_folder_count_and_each_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "kept").write_bytes(b"k" * 500_000)
    with (
        (root / "gone").open("wb") as held,
        (tmp_path / "else").open("wb") as other,
        (root / "kept").open("rb"),
    ):
        for file in (held, other):
            file.write(b"d" * 100_000)
            file.flush()
            os.unlink(file.name)
        again = os.dup(held.fileno())
        found = file_numbers.deleted_open(root)
        os.close(again)

    assert 100_000 <= found.size_bytes < 200_000
    assert found.elsewhere_bytes >= 100_000
    assert f"process {os.getpid()}" in found.note()
    assert file_numbers.deleted_open(root).size_bytes == 0


def test_the_newest_day_counts_over_every_storage_class(moto_s3: str) -> None:
    def metrics() -> Any:
        return boto3.client(
            "cloudwatch",
            endpoint_url=moto_s3,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def point(kind: str, at: datetime, value: float) -> dict[str, Any]:
        dimensions = [
            {"Name": "BucketName", "Value": "measured"},
            {"Name": "StorageType", "Value": kind},
        ]
        name = "BucketSizeBytes"
        return {"MetricName": name, "Dimensions": dimensions, "Timestamp": at, "Value": value}

    now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    days = [now.replace(hour=0)]
    days.append(days[0] - timedelta(days=1))
    for at, values in zip(days, ((100, 40), (9_000, 9_000)), strict=True):
        for kind, value in zip(("StandardStorage", "GlacierStorage"), values, strict=True):
            metrics().put_metric_data(Namespace="AWS/S3", MetricData=[point(kind, at, value)])

    found = cloudwatch_number(metrics, "s3", "measured", now)
    nothing = cloudwatch_number(metrics, "s3", "unmeasured", now)

    assert found is not None
    assert (found.size_bytes, found.covers) == (140, Covers.BUCKET)
    assert found.as_of is not None
    assert found.as_of >= days[0]
    assert nothing is None


def test_metrics_that_may_not_be_read_are_named_and_stop_nothing(moto_s3: str) -> None:
    def refused() -> Any:
        answer = {"Error": {"Code": "AccessDenied", "Message": "no"}}
        raise ClientError(answer, "ListMetrics")

    client = boto3.client(
        "s3",
        endpoint_url=moto_s3,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket="unmeasured")

    (found,) = s3_numbers(client, refused, "s3", "unmeasured", whole=True, now=datetime.now(UTC))

    assert isinstance(found, Unreadable)
    assert found.how == "cloudwatch"
    assert "AccessDenied" in found.reason
    assert file_numbers.deleted_open(Path("/"), Path("/nowhere")).unseen is None
