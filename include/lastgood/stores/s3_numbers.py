"""What an S3 server accounts for a bucket: its own statistics, or its metrics of a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from lastgood.rules.accounting import Covers, Number, Unreadable
from lastgood.stores.base import StoreError
from lastgood.stores.s3_client import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_RGW_BYTES = "x-rgw-bytes-used"
_LOOK_BACK = timedelta(days=3)  # a day's number comes up to two days later


def s3_numbers(
    client: S3Client,
    metrics: Callable[[], Any] | None,
    store: str,
    bucket: str,
    *,
    whole: bool,
    now: datetime,
) -> list[Number | Unreadable]:
    """Every number that the server has of a bucket. One that may not be read is named, and stops
    nothing: the credentials of a store need not see its metrics."""
    asked: dict[str, Callable[[], Number | None]] = {
        "rgw": lambda: rgw_number(client, store, bucket, whole=whole)
    }
    if metrics is not None:
        asked["cloudwatch"] = lambda: cloudwatch_number(metrics, store, bucket, now)
    found: list[Number | Unreadable] = []
    for how, ask in asked.items():
        try:
            number = ask()
        except StoreError as error:
            found.append(Unreadable(how, str(error)))
        else:
            found += [] if number is None else [number]
    return found


def rgw_number(client: S3Client, store: str, bucket: str, *, whole: bool) -> Number | None:
    """What a Ceph object gateway says of a bucket when it is asked for: None from any other server.
    It counts versions and parts, listed or not. `whole`: the bucket is the store's alone."""
    with translated(store, "", "read the statistics", bucket=bucket):
        request = client.meta.events
        register = ("before-sign.s3.HeadBucket", _ask_for_statistics)
        request.register(*register)
        try:
            answer: Any = client.head_bucket(Bucket=bucket)
        finally:
            request.unregister(*register)
    used = answer["ResponseMetadata"]["HTTPHeaders"].get(_RGW_BYTES)
    if used is None:
        return None
    return Number("rgw", int(used), Covers.STORE if whole else Covers.BUCKET)


def _ask_for_statistics(request: Any, **_: Any) -> None:
    """Newer gateways tell only who asks; others take no notice."""
    request.params = {**(request.params or {}), "read-stats": "true"}


def cloudwatch_number(
    metrics: Callable[[], Any], store: str, bucket: str, now: datetime
) -> Number | None:
    """The newest daily `BucketSizeBytes`, over every storage class; None where there is none yet.
    `metrics` gives a CloudWatch client. The number covers the whole bucket, with versions and the
    parts of pending uploads, as it was on its day (UTC)."""
    try:
        client = metrics()
        classes = {
            dimension["Value"]
            for page in client.get_paginator("list_metrics").paginate(
                Namespace="AWS/S3",
                MetricName="BucketSizeBytes",
                Dimensions=[{"Name": "BucketName", "Value": bucket}],
            )
            for metric in page["Metrics"]
            for dimension in metric["Dimensions"]
            if dimension["Name"] == "StorageType"
        }
        days: dict[datetime, int] = {}
        for name in sorted(classes):
            answer = client.get_metric_statistics(
                Namespace="AWS/S3",
                MetricName="BucketSizeBytes",
                Dimensions=[
                    {"Name": "BucketName", "Value": bucket},
                    {"Name": "StorageType", "Value": name},
                ],
                StartTime=now - _LOOK_BACK,
                EndTime=now,
                Period=86_400,
                Statistics=["Average"],
            )
            for point in answer["Datapoints"]:
                at = point["Timestamp"].astimezone(UTC)
                days[at] = days.get(at, 0) + round(point["Average"])
    except (ClientError, BotoCoreError) as error:
        reason = f"read BucketSizeBytes: {error}"
        raise StoreError(store=store, key="", bucket=bucket, reason=reason) from error
    if not days:
        return None
    newest = max(days)
    return Number("cloudwatch", days[newest], Covers.BUCKET, as_of=newest)
