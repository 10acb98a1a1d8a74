"""Listings longer than a page, pages without entries, and listings that fail in their middle: what
was not seen is not gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import obstore
import pytest
from botocore.awsrequest import AWSResponse

from lastgood.rules.layout import CONTROL_PREFIX
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import EVERYTHING, Key, Prefix, StoreError
from lastgood.stores.begun import begun_uploads
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import MakeBucket
from tests.retention.world import World
from tests.uploads.conftest import PREFIX
from tests.uploads.writers import ABORT_AFTER, OBJECTS, begin, clean, inventory

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NUMBERS = range(2_500)
OBJECTS_LISTED = [f"checkpoints/vision/object-{number:04d}.bin" for number in NUMBERS]
UPLOADS_LISTED = [f"checkpoints/vision/part {number:04d}+%41.bin" for number in NUMBERS]


@pytest.fixture(scope="module")
def large(ceph: Ceph, ceph_client: S3Client, make_ceph_bucket: MakeBucket) -> S3Store:
    """2,500 keys, 2,500 pending uploads and one of 1,001 parts in a bucket of a real server."""
    bucket = make_ceph_bucket()
    quick = obstore.store.S3Store(
        bucket,
        prefix="large",
        endpoint=ceph.endpoint,
        access_key_id=ceph.access_key,
        secret_access_key=ceph.secret_key,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    one = ceph_client.create_multipart_upload(Bucket=bucket, Key=f"large/{UPLOADS_LISTED[0]}")
    where: dict[str, Any] = {
        "Bucket": bucket,
        "Key": f"large/{UPLOADS_LISTED[0]}",
        "UploadId": one["UploadId"],
    }
    with ThreadPoolExecutor(16) as threads:
        done = [threads.submit(quick.put, key, b"x") for key in OBJECTS_LISTED]
        done += [
            threads.submit(ceph_client.create_multipart_upload, Bucket=bucket, Key=key)
            for key in [*(f"large/{key}" for key in UPLOADS_LISTED[1:]), "larger/strange.bin"]
        ]
        done += [
            threads.submit(ceph_client.upload_part, **where, PartNumber=number, Body=b"y" * 3)
            for number in range(1, 1_002)
        ]
        for each in done:
            each.result()
    return S3Store("cloud", ceph_client, bucket, "large")


def test_2500_keys_2500_uploads_and_1001_parts_are_all_there(large: S3Store) -> None:
    listing = large.list(EVERYTHING)
    assert [one.key for one in listing] == OBJECTS_LISTED
    assert listing.complete
    begun = begun_uploads(large, EVERYTHING)
    assert [one.key for one in begun] == UPLOADS_LISTED
    parts = large.parts(begun[0].key, begun[0].upload_id)
    assert [part.number for part in parts] == list(range(1, 1_002))
    assert sum(part.size_bytes for part in parts) == 3_003
    assert begun_uploads(large, Prefix("checkpoints/audio/")) == []


NONE = 200, "<ListMultipartUploadsResult></ListMultipartUploadsResult>"


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body

    def read(self, *_: object) -> bytes:
        return self._body


class Pages:
    """Answers an operation with these pages in turn, then with what the server itself says; `plain`
    where no encoding is asked for."""

    def __init__(
        self, store: S3Store, operation: str, *pages: tuple[int, str], plain: tuple[int, str] = NONE
    ) -> None:
        self._pages = list(pages)
        self._plain = plain if operation == "ListMultipartUploads" else None
        self.plain_asked = 0
        self._name = f"before-send.s3.{operation}"
        self._events = store._client.meta.events
        self._events.register(self._name, self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse | None:
        if not self._pages or CONTROL_PREFIX in unquote(request.url):
            return None
        is_plain = self._plain is not None and "encoding-type" not in request.url
        self.plain_asked += is_plain
        status, body = self._plain if self._plain and is_plain else self._pages.pop(0)
        return AWSResponse(request.url, status, {}, _Raw(body.encode()))  # type: ignore[arg-type]

    def stop(self) -> None:
        self._events.unregister(self._name, self._answer)


def uploads_page(*keys: str, following: str = "", prefix: str = quote(PREFIX)) -> tuple[int, str]:
    entries = "".join(
        f"<Upload><Key>{prefix}/{key}</Key><UploadId>{number}</UploadId></Upload>"
        for number, key in enumerate(keys)
    )
    more = f"<IsTruncated>true</IsTruncated><NextKeyMarker>{following}</NextKeyMarker>"
    said = f"<EncodingType>url</EncodingType>{entries}{more if following else ''}"
    return 200, f"<ListMultipartUploadsResult>{said}</ListMultipartUploadsResult>"


REFUSED = 403, "<Error><Code>AccessDenied</Code><Message>no more for you</Message></Error>"


@pytest.mark.parametrize(
    ("listed", "plain", "key", "asked"),
    [
        (uploads_page("a%2Bb"), uploads_page("a+b", prefix=PREFIX), "a+b", 1),
        (uploads_page("a+b", prefix=PREFIX), uploads_page("a+b", prefix=PREFIX), "a+b", 1),
        (uploads_page("a%01b"), REFUSED, "a\x01b", 0),
    ],
    ids=["encoded", "said to be, but is not", "XML cannot carry it otherwise"],
)
def test_keys_are_exact_whatever_a_server_says_of_their_encoding(
    bucket: S3Store, listed: tuple[int, str], plain: tuple[int, str], key: str, asked: int
) -> None:
    pages = Pages(bucket, "ListMultipartUploads", listed, NONE, plain=plain)
    assert [one.key for one in begun_uploads(bucket, EVERYTHING)] == [key]
    assert pages.plain_asked == asked


def test_an_empty_truncated_page_is_not_the_end(bucket: S3Store) -> None:
    Pages(
        bucket,
        "ListMultipartUploads",
        uploads_page(following="a"),
        uploads_page("b", following="b"),
        uploads_page(following="c"),
        uploads_page("d"),
    )
    assert [one.key for one in begun_uploads(bucket, EVERYTHING)] == ["b", "d"]


@pytest.mark.parametrize(
    "pages",
    [
        [uploads_page("a", following="a"), uploads_page(following="a")],
        [uploads_page("a", following="a"), uploads_page(following="b")] * 2,
        [(200, uploads_page("a", following="a")[1].replace("<NextKeyMarker>a", "<NextKeyMarker>"))],
    ],
    ids=["the same again", "in a circle", "nowhere"],
)
def test_a_listing_that_goes_on_where_it_was_is_not_whole(
    bucket: S3Store, pages: list[tuple[int, str]]
) -> None:
    Pages(bucket, "ListMultipartUploads", *pages)
    with pytest.raises(StoreError, match="repeats itself"):
        begun_uploads(bucket, EVERYTHING)


def parts_page(number: int, following: int) -> tuple[int, str]:
    part = f"<Part><PartNumber>{number}</PartNumber><Size>1</Size><ETag>e</ETag></Part>"
    return 200, (
        f"<ListPartsResult>{part if number else ''}<IsTruncated>true</IsTruncated>"
        f"<NextPartNumberMarker>{following}</NextPartNumberMarker></ListPartsResult>"
    )


def keys_page(following: str) -> tuple[int, str]:
    return 200, (
        "<ListBucketResult><IsTruncated>true</IsTruncated>"
        f"<NextContinuationToken>{following}</NextContinuationToken></ListBucketResult>"
    )


def test_a_page_without_parts_is_not_the_end(bucket: S3Store) -> None:
    upload = bucket.create_upload(Key("a"), 5)
    Pages(
        bucket,
        "ListParts",
        parts_page(1, 1),
        parts_page(0, 7),
        (200, parts_page(8, 8)[1].replace("true", "false")),
    )
    assert [part.number for part in bucket.parts(Key("a"), upload)] == [1, 8]
    Pages(bucket, "ListParts", parts_page(1, 1), parts_page(0, 1))
    with pytest.raises(StoreError, match="repeats itself"):
        bucket.parts(Key("a"), upload)


@pytest.mark.parametrize(
    ("operation", "pages"),
    [
        ("ListMultipartUploads", [uploads_page(following="a"), uploads_page(following="b")]),
        ("ListParts", [parts_page(1, 1), parts_page(2, 2)]),
        ("ListObjectsV2", [keys_page("a"), keys_page("b")]),
    ],
)
def test_a_listing_that_fails_at_its_third_page_never_means_gone(
    s3_world: World, bucket: S3Store, operation: str, pages: list[tuple[int, str]]
) -> None:
    begun = begin(s3_world, objects={"a.bin": OBJECTS["a.bin"]}).send()
    nobodys = Key("checkpoints/vision/someone/else.bin")
    bucket.create_upload(nobodys, 10)
    s3_world.advance(timedelta(minutes=15))
    clean(s3_world)
    before = {one.key: one.state for one in inventory(s3_world)}
    assert set(before.values()) == {"waiting", "reported"}
    s3_world.advance(ABORT_AFTER)

    failing = Pages(bucket, operation, *[*pages, REFUSED] * 50)
    told = clean(s3_world)
    failing.stop()

    assert "AccessDenied" in str(told["failed"])
    assert (told["closed"], begun.state) == (0, "aborting")
    after = {one.key: one.state for one in inventory(s3_world)}
    assert "gone" not in after.values()
    assert after[nobodys] == "reported"
    assert len(begun_uploads(bucket, EVERYTHING)) >= 1

    assert clean(s3_world)["closed"] == 1
    assert begun.state == "closed"
    assert {one.key: one.state for one in inventory(s3_world)} == {
        begun.key("a.bin"): "gone",
        nobodys: "reported",
    }
