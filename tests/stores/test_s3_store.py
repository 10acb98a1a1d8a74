"""What S3 servers do that others do not: errors inside a 200, endless pages, broken connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import httpx
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from lastgood.stores import s3_pages
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyExists,
    Outcome,
    Prefix,
    StoredObject,
    StoreError,
    UploadGone,
    UploadId,
)
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_errors import BucketMissing, VersioningSuspended
from lastgood.stores.s3_versioning import BucketVersioning
from tests.factories import upload_object

KEY = Key("demo/model.safetensors")
COPY = Prefix("demo/")


def client_of(endpoint: str, attempts: int = 1) -> Any:
    return prepared(
        boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=CONFIG.merge(Config(retries={"mode": "standard", "max_attempts": attempts})),
        )
    )


@pytest.fixture
def make(moto_s3: str, request: pytest.FixtureRequest) -> Callable[..., S3Store]:
    def make_store(*, versioned: bool = False, prefix: str = "") -> S3Store:
        client = client_of(moto_s3)
        bucket = f"s3-{abs(hash(request.node.name))}"
        client.create_bucket(Bucket=bucket)
        if versioned:
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return S3Store("cold", client, bucket, prefix)

    return make_store


@pytest.fixture
def store(make: Callable[..., S3Store]) -> S3Store:
    return make()


class _Raw:
    """A response's body as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._body

    def read(self, *_: object) -> bytes:
        return self._body


def answer_with(
    store: S3Store, operation: str, *bodies: str, status: int = 200
) -> list[dict[str, Any]]:
    """Let the server answer an operation with these bodies in turn, the last one again and again;
    returns the requests, as they come."""
    asked: list[dict[str, Any]] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        body = bodies[min(len(asked), len(bodies) - 1)]
        asked.append({"url": request.url, "headers": dict(request.headers), "body": request.body})
        return AWSResponse(request.url, status, {}, _Raw(body.encode()))

    store._client.meta.events.register(f"before-send.s3.{operation}", answer)
    return asked


def overheard(store: S3Store, operation: str) -> list[str]:
    """The URLs of an operation's requests, as they come; the server answers them."""
    asked: list[str] = []
    hear = lambda request, **_: asked.append(request.url)  # noqa: E731
    store._client.meta.events.register(f"before-send.s3.{operation}", hear)
    return asked


def test_errors_inside_a_200_are_told_key_by_key(store: S3Store) -> None:
    asked = answer_with(
        store,
        "DeleteObjects",
        "<DeleteResult><Deleted><Key>demo/a</Key></Deleted>"
        "<Error><Key>demo/b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
        "<Error><Key>demo/c</Key><Code>NoSuchKey</Code><Message>gone</Message></Error>"
        "</DeleteResult>",
    )
    objects = [StoredObject(Key(f"demo/{name}"), 1) for name in "abcd"]
    outcomes = list(store.delete(objects))
    assert [(one.key, one.outcome) for one in outcomes] == [
        ("demo/a", Outcome.GONE),
        ("demo/b", Outcome.REFUSED),
        ("demo/c", Outcome.ABSENT),
        ("demo/d", Outcome.REFUSED),
    ]
    assert outcomes[1].reason == "AccessDenied: no (request unknown)"
    assert "did not answer" in (outcomes[3].reason or "")
    assert asked[0]["headers"]["Content-MD5"]


def test_a_refused_request_is_no_outcome(store: S3Store) -> None:
    answer_with(store, "DeleteObjects", "<Error><Code>AccessDenied</Code></Error>", status=403)
    with pytest.raises(AccessRefused, match="AccessDenied"):
        list(store.delete([StoredObject(KEY, 1)]))


def test_deletes_go_a_thousand_at_a_time(store: S3Store) -> None:
    asked = answer_with(store, "DeleteObjects", "<DeleteResult></DeleteResult>")
    outcomes = list(store.delete([StoredObject(Key(f"demo/{n}"), 1) for n in range(2001)]))
    assert sorted(request["body"].count(b"<Key>") for request in asked) == [1, 1000, 1000]
    assert [one.key for one in outcomes] == [f"demo/{n}" for n in range(2001)]


def test_keys_that_xml_cannot_carry_are_deleted_one_by_one(store: S3Store) -> None:
    keys = [Key(f"demo/a{character}b") for character in "\r\x01\x7f"]
    asked = answer_with(store, "DeleteObject", "", status=204)
    outcomes = list(store.delete([StoredObject(key, 1) for key in keys]))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.GONE] * 3
    assert [request["url"].rpartition("/demo/")[2] for request in asked] == [
        "a%0Db",
        "a%01b",
        "a%7Fb",
    ]


def test_a_bucket_with_versions_deletes_only_what_is_named(
    make: Callable[..., S3Store],
) -> None:
    store = make(versioned=True)
    published = upload_object(store, KEY, b"hello")
    assert published.version_id
    outcomes = list(store.delete([StoredObject(KEY, 5)]))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.REFUSED]
    assert store.read(KEY) == b"hello"


def test_all_versions_are_listed_and_deleted(make: Callable[..., S3Store]) -> None:
    store = make(versioned=True)
    where = {"Bucket": store.bucket, "Key": KEY}
    for body in (b"1", b"22", b"333"):
        store._client.put_object(**where, Body=body)
    store._client.delete_object(**where)
    assert [(one.size_bytes, one.hidden) for one in store.list(COPY)] == [(3, True)]
    found = list(store.list(COPY, versions=True))
    assert [one.size_bytes for one in found if not one.is_delete_marker] == [3, 2, 1]
    assert [one.is_latest for one in found if not one.is_delete_marker] == [True, False, False]
    assert sum(one.is_delete_marker for one in found) == 1
    assert store.usage().used_bytes == 6
    assert {one.outcome for one in store.delete(found)} == {Outcome.GONE}
    assert list(store.list(COPY, versions=True)) == []


def test_what_is_refused_stays_hidden(make: Callable[..., S3Store]) -> None:
    store = make(versioned=True)
    upload_object(store, KEY, b"hello")
    store.quarantine(COPY, [])
    asked = answer_with(
        store,
        "DeleteObjects",
        f"<DeleteResult><Error><Key>{KEY}</Key><Code>AccessDenied</Code></Error></DeleteResult>",
    )
    outcomes = list(store.delete(list(store.list(COPY, versions=True))))
    assert [outcome.outcome for outcome in outcomes] == [Outcome.REFUSED] * 2
    assert len(asked) == 1
    assert [one.hidden for one in store.list(COPY)] == [True]


@pytest.mark.parametrize("in_bulk", [True, False])
def test_every_key_is_hidden_and_shown_however_it_must_be_named(
    ceph_client: Any, ceph_versioned_bucket: str, in_bulk: bool
) -> None:
    store = S3Store("cold", ceph_client, ceph_versioned_bucket)
    if not in_bulk:
        store._objects._deletes._form = None
    keys = sorted(["demo/a&b<c>", "demo/c\rd", "demo/c\nd", "demo/e\x01f", "demo/\u2028\x85"])
    for key in keys:
        store._client.put_object(Bucket=store.bucket, Key=key, Body=b"x")
    asked = overheard(store, "DeleteObjects")
    store.quarantine(COPY, [])
    assert [(one.key, one.hidden) for one in store.list(COPY)] == [(key, True) for key in keys]
    store.unquarantine(COPY, [])
    assert [(one.key, one.hidden) for one in store.list(COPY)] == [(key, False) for key in keys]
    assert len(asked) == (2 if in_bulk else 0)
    assert {one.outcome for one in store.delete(list(store.list(COPY)))} == {Outcome.GONE}
    assert list(store.list(COPY, versions=True)) == []


def test_versions_go_before_the_markers_that_hide_them_over_many_requests(
    make: Callable[..., S3Store],
) -> None:
    store = make(versioned=True)
    asked = answer_with(store, "DeleteObjects", "<DeleteResult></DeleteResult>")
    objects = [
        StoredObject(Key(f"demo/{n:04}"), 0, version_id=version, is_delete_marker=version == "m")
        for n in range(1001)
        for version in ("m", "v")
    ]
    told = list(store.delete(objects))
    assert [(one.key, one.version_id) for one in told] == [
        (one.key, one.version_id) for one in objects
    ]
    assert all(b"<VersionId>m" not in request["body"] for request in asked)  # every version stayed
    assert {one.outcome for one in told} == {Outcome.REFUSED}


def test_a_delete_marker_that_stays_is_told(make: Callable[..., S3Store]) -> None:
    store = make(versioned=True)
    upload_object(store, KEY, b"hello")
    store.quarantine(COPY, [])
    (hidden,) = store.list(COPY)
    asked = answer_with(
        store,
        "DeleteObjects",
        f"<DeleteResult><Deleted><Key>{KEY}</Key><VersionId>{hidden.version_id}</VersionId>"
        "</Deleted></DeleteResult>",
    )
    store._client.delete_object(Bucket=store.bucket, Key=KEY, VersionId=hidden.version_id)
    outcomes = list(store.delete([hidden]))
    assert len(asked) == 2
    assert [outcome.outcome for outcome in outcomes] == [Outcome.REFUSED]
    assert "delete marker" in (outcomes[0].reason or "")


def page(operation: str, more: str, *keys: str) -> str:
    root, entry = {
        "ListObjectsV2": ("ListBucketResult", "Contents"),
        "ListObjectVersions": ("ListVersionsResult", "Version"),
        "ListMultipartUploads": ("ListMultipartUploadsResult", "Upload"),
    }[operation]
    entries = "".join(
        f"<{entry}><Key>{key}</Key><UploadId>u-{key}</UploadId><Size>1</Size></{entry}>"
        for key in keys
    )
    truncated = "true" if more else "false"
    return f"<{root}><IsTruncated>{truncated}</IsTruncated>{more}{entries}</{root}>"


TOKEN = "<NextContinuationToken>t{}</NextContinuationToken>"


def test_an_empty_page_in_the_middle_is_not_the_end(store: S3Store) -> None:
    asked = answer_with(
        store,
        "ListObjectsV2",
        page("ListObjectsV2", TOKEN.format(1), "demo/a"),
        page("ListObjectsV2", TOKEN.format(2)),
        page("ListObjectsV2", "", "demo/b"),
    )
    listing = store.list(COPY)
    assert [one.key for one in listing] == ["demo/a", "demo/b"]
    assert listing.complete
    assert [
        ("continuation-token=t1" in r["url"], "continuation-token=t2" in r["url"]) for r in asked
    ] == [
        (False, False),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    "pages",
    [
        [page("ListObjectsV2", "<KeyCount>0</KeyCount>", "demo/a")],
        [page("ListObjectsV2", TOKEN.format(1), "demo/a")],
        [
            page("ListObjectsV2", TOKEN.format(1), "demo/b"),
            page("ListObjectsV2", "", "demo/a"),
        ],
    ],
    ids=["no token", "always the same token", "out of order"],
)
def test_a_listing_that_cannot_go_on_is_an_error(store: S3Store, pages: list[str]) -> None:
    answer_with(store, "ListObjectsV2", *pages)
    listing = store.list(COPY)
    with pytest.raises(StoreError):
        list(listing)
    assert not listing.complete


def test_a_listing_that_fails_is_not_complete(store: S3Store) -> None:
    answer_with(store, "ListObjectsV2", "<Error><Code>AccessDenied</Code></Error>", status=403)
    listing = store.list(COPY)
    with pytest.raises(AccessRefused):
        list(listing)
    assert not listing.complete


def test_keys_are_decoded_once_if_the_server_encoded_them(store: S3Store) -> None:
    encoded = "<ListBucketResult><EncodingType>url</EncodingType>{}</ListBucketResult>"
    contents = "<Contents><Key>{}</Key><Size>1</Size></Contents>"
    keys = ["demo/a%2520b", "demo/a%2Bb", "demo/a+b", "demo/n%0Al", "demo/%F0%9F%A7%8A"]
    answer_with(store, "ListObjectsV2", encoded.format("".join(map(contents.format, keys))))
    expected = ["demo/a%20b", "demo/a+b", "demo/a b", "demo/n\nl", "demo/🧊"]
    with pytest.raises(StoreError, match="came after"):
        list(store.list(COPY))  # not sorted as decoded: refused, but decoded
    entries = s3_pages.current(store._client, store.bucket, "demo/")
    assert [entry.key for entry in entries] == expected


def test_keys_are_left_alone_if_the_server_did_not_encode_them(store: S3Store) -> None:
    plain = page("ListObjectsV2", "", "demo/%20", "demo/a&amp;b", "demo/a+b")
    answer_with(store, "ListObjectsV2", plain)
    assert [one.key for one in store.list(COPY)] == ["demo/%20", "demo/a&b", "demo/a+b"]


def test_folder_markers_and_empty_parts_keep_their_slashes(store: S3Store) -> None:
    for key in ("demo/folder/", "demo/a//b", "demo/."):
        store._client.put_object(Bucket=store.bucket, Key=key, Body=b"")
    found = list(store.list(COPY))
    assert [one.key for one in found] == ["demo/.", "demo/a//b", "demo/folder/"]
    assert {one.outcome for one in store.delete(found)} == {Outcome.GONE}
    assert list(store.list(COPY)) == []


def test_a_prefix_hides_the_rest_of_the_bucket(make: Callable[..., S3Store]) -> None:
    store = make(prefix="/team a/ckpt/")
    store._client.put_object(Bucket=store.bucket, Key="team a/ckpt-other/x", Body=b"")
    store._client.create_multipart_upload(Bucket=store.bucket, Key="team a/ckpt-other/y")
    upload_object(store, KEY, b"hello")
    store.create_upload(Key("demo/pending"), 1)
    assert [one.key for one in store.list(Prefix(""))] == [KEY]
    assert [one.key for one in store.uploads(Prefix(""))] == ["demo/pending"]
    assert store._client.head_object(Bucket=store.bucket, Key=f"team a/ckpt/{KEY}")


def no_parts(store: S3Store) -> None:
    answer_with(store, "ListParts", "<ListPartsResult></ListPartsResult>")


def test_a_server_that_ignores_markers_is_not_listed_for_ever(store: S3Store) -> None:
    no_parts(store)
    more = "<NextKeyMarker>demo/b</NextKeyMarker>"
    asked = answer_with(
        store, "ListMultipartUploads", page("ListMultipartUploads", more, "demo/a", "demo/b")
    )
    listing = store.uploads(COPY)
    with pytest.raises(StoreError, match="repeats itself"):
        list(listing)
    assert not listing.complete
    assert len(asked) == 2


def test_uploads_listed_twice_or_elsewhere_are_told_once(store: S3Store) -> None:
    no_parts(store)
    more = "<NextKeyMarker>demo/b</NextKeyMarker>"
    answer_with(
        store,
        "ListMultipartUploads",
        page("ListMultipartUploads", more, "demo/a", "demo/b", "other/a"),
        page("ListMultipartUploads", "", "demo/b", "demo/c"),
    )
    assert [one.key for one in store.uploads(COPY)] == ["demo/a", "demo/b", "demo/c"]


def test_aborts_go_on_until_no_part_is_left(store: S3Store) -> None:
    part = "<Part><PartNumber>1</PartNumber><Size>5</Size><ETag>e</ETag></Part>"
    answer_with(
        store,
        "ListParts",
        f"<ListPartsResult>{part}</ListPartsResult>",
        f"<ListPartsResult>{part}</ListPartsResult>",
        "<ListPartsResult></ListPartsResult>",
    )
    aborts = answer_with(store, "AbortMultipartUpload", "", status=204)
    assert store.abort_upload(KEY, UploadId("u")) is Outcome.GONE
    assert len(aborts) == 3


def test_parts_that_never_go_are_told(store: S3Store) -> None:
    part = "<Part><PartNumber>1</PartNumber><Size>5</Size><ETag>e</ETag></Part>"
    answer_with(store, "ListParts", f"<ListPartsResult>{part}</ListPartsResult>")
    aborts = answer_with(store, "AbortMultipartUpload", "", status=204)
    with pytest.raises(StoreError, match="are left after"):
        store.abort_upload(KEY, UploadId("u"))
    assert 1 < len(aborts) <= 20


@pytest.mark.parametrize("code", ["NoSuchUpload", "NoSuchKey", "404"])
def test_every_way_to_say_gone(store: S3Store, code: str) -> None:
    body = f"<Error><Code>{code}</Code></Error>"
    answer_with(store, "AbortMultipartUpload", body, status=404)
    answer_with(store, "ListParts", body, status=404)
    assert store.abort_upload(KEY, UploadId("u")) is Outcome.ABSENT
    with pytest.raises(UploadGone):
        store.parts(KEY, UploadId("u"))


def test_a_part_goes_straight_to_the_store_by_its_url(store: S3Store) -> None:
    upload_id = store.create_upload(KEY, 5)
    signed = store.presign_part(KEY, upload_id, 1, 60)
    assert "X-Amz-Expires=60" in signed.url
    answer = httpx.put(signed.url, headers=dict(signed.headers), content=b"hello", timeout=60)
    assert answer.status_code == 200
    assert answer.headers["ETag"]
    held = store.parts(KEY, upload_id)
    assert [(part.number, part.size_bytes, part.sha256) for part in held] == [(1, 5, None)]
    store.complete_upload(KEY, upload_id, held)
    assert store.read(KEY) == b"hello"


def test_an_object_is_read_straight_from_the_store_by_its_url(
    make: Callable[..., S3Store],
) -> None:
    store = make(versioned=True)
    published = upload_object(store, KEY, b"hello")
    url = store.presign_read(KEY, 60, version_id=published.version_id)
    store.quarantine(COPY, [])
    assert httpx.get(store.presign_read(KEY, 60), timeout=60).status_code == 404
    assert httpx.get(url, timeout=60).content == b"hello"


def test_a_server_that_ignores_if_none_match_still_replaces_nothing(store: S3Store) -> None:
    def forget(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop("If-None-Match", None)

    for operation in ("PutObject", "CompleteMultipartUpload"):
        store._client.meta.events.register(f"before-call.s3.{operation}", forget)
    store.put_new(KEY, b"hello")
    with pytest.raises(KeyExists):
        store.put_new(KEY, b"other")
    with pytest.raises(KeyExists):
        upload_object(store, KEY, b"other")
    assert store.read(KEY) == b"hello"


def test_the_server_refuses_a_writer_that_looked_too_early(store: S3Store) -> None:
    store.put_new(KEY, b"hello")
    upload_id = store.create_upload(KEY, 5)
    part = store.write_part(KEY, upload_id, 1, 5, [b"other"])
    store.stat = lambda key: None  # type: ignore[method-assign]
    with pytest.raises(KeyExists):
        store.complete_upload(KEY, upload_id, [part])
    assert store._small._put_if_none(KEY, b"other") is None
    assert store.read(KEY) == b"hello"


def test_without_versions_a_tag_tells_people_and_other_tags_stay(store: S3Store) -> None:
    where = {"Bucket": store.bucket, "Key": KEY}
    upload_object(store, KEY, b"hello")
    mine = {"Key": "cost-centre", "Value": "42"}
    store._client.put_object_tagging(**where, Tagging={"TagSet": [mine]})
    store.quarantine(COPY, [])
    tags = store._client.get_object_tagging(**where)["TagSet"]
    assert mine in tags
    assert {"Key": "lastgood-state", "Value": "quarantined"} in tags
    store.unquarantine(COPY, [])
    assert store._client.get_object_tagging(**where)["TagSet"] == [mine]
    assert not store.profile.hides


def test_a_server_without_tags_is_borne_with(store: S3Store) -> None:
    upload_object(store, KEY, b"hello")
    answer_with(store, "GetObjectTagging", "<Error><Code>NotImplemented</Code></Error>", status=501)
    store.quarantine(COPY, [])
    store.unquarantine(COPY, [])


def test_a_bucket_whose_versioning_is_suspended_is_refused(
    make: Callable[..., S3Store],
) -> None:
    store = make(versioned=True)
    store._client.put_bucket_versioning(
        Bucket=store.bucket, VersioningConfiguration={"Status": "Suspended"}
    )
    with pytest.raises(VersioningSuspended, match=f"of bucket '{store.bucket}' is suspended"):
        S3Store("cold", store._client, store.bucket)


@pytest.mark.parametrize(("before", "after"), [(False, "Enabled"), (True, "Suspended")])
def test_nothing_is_hidden_or_deleted_where_versioning_was_changed(
    make: Callable[..., S3Store], before: bool, after: Any
) -> None:
    store = make(versioned=before)
    published = upload_object(store, KEY, b"hello")
    store._client.put_bucket_versioning(
        Bucket=store.bucket, VersioningConfiguration={"Status": after}
    )
    steps = (
        lambda: list(store.delete([published])),
        lambda: store.quarantine(COPY, [published]),
        lambda: store.unquarantine(COPY, [published]),
    )
    for step in steps:
        with pytest.raises(StoreError, match=f"versioning of bucket '{store.bucket}'"):
            step()
    assert store.outdated
    assert store.read(KEY) == b"hello"
    assert "DeleteMarkers" not in store._client.list_object_versions(Bucket=store.bucket)


def test_a_bucket_that_is_not_there(store: S3Store) -> None:
    with pytest.raises(BucketMissing, match=r"no bucket 'nobodys-bucket'.*NoSuchBucket.*Make it"):
        S3Store("cold", store._client, "nobodys-bucket")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(StoreError, match="Could not connect"):
        S3Store("cold", client_of("http://127.0.0.1:1"), "bucket")


class Flaky(BaseHTTPRequestHandler):
    """Serves one object, breaking off after `piece` bytes."""

    content = bytes(range(256)) * 400
    piece = 30_000
    etag = '"one"'
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        asked = self.headers.get("Range", "bytes=0-")
        server.ranges.append(asked)
        if self.headers.get("If-Match", server.etag) != server.etag:
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(asked.removeprefix("bytes=").partition("-")[0])
        rest = self.content[start:]
        self.send_response(206)
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(rest[: server.piece])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def flaky() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    server.ranges, server.piece, server.etag = [], Flaky.piece, Flaky.etag
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def store_at(server: Any, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(BucketVersioning, "read", lambda self: False)
    return S3Store("cold", client_of(f"http://127.0.0.1:{server.server_port}"), "bucket")


def test_a_read_goes_on_where_the_connection_broke(
    flaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_at(flaky, monkeypatch).open(KEY) as stream:
        assert stream.read() == Flaky.content
    assert flaky.ranges[:2] == ["bytes=0-", "bytes=30000-"]


def test_a_read_never_goes_on_in_other_bytes(flaky: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_at(flaky, monkeypatch).open(KEY) as stream:
        assert stream.read(10) == Flaky.content[:10]
        flaky.etag = '"two"'
        with pytest.raises(StoreError):
            stream.read()


def test_a_connection_that_always_breaks_is_given_up(
    flaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_at(flaky, monkeypatch).open(KEY) as stream:
        assert stream.read(10) == Flaky.content[:10]
        flaky.piece = 0
        with pytest.raises(StoreError, match="broke"):
            stream.read()
