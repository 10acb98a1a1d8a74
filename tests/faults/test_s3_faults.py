"""What a real S3 server answers late, broken, refused or wrongly is tried again, or told by its
kind with the request id. Nothing is taken for done that was not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config

from lastgood.errors import LastgoodError
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyExists,
    KeyMissing,
    KeyOutcome,
    Outcome,
    Part,
    Prefix,
    StoredObject,
    StoreError,
    UploadGone,
    UploadId,
)
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_errors import (
    ClockSkewed,
    CredentialsExpired,
    KmsKeyRefused,
    StoreSilent,
    StoreThrottled,
    WrongCredentials,
    WrongRegion,
)
from tests.ceph.fixtures import MakeBucket
from tests.faults.s3_proxy import REQUEST_ID, Answer, Rule, S3Proxy

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEY = Key("demo/model.bin")
SLOW = Answer(503, "SlowDown", "Reduce your request rate")
BUSY = Answer(503, "ServiceUnavailable")
FAILED = Answer(500, "InternalError")
FAILED_INSIDE_200 = Answer(200, "InternalError", "We encountered an internal error")
EXPIRED = Answer(400, "ExpiredToken", "The provided token has expired")
SKEWED = Answer(403, "RequestTimeTooSkewed", inside="<ServerTime>2026-01-01T00:00:00Z</ServerTime>")
UNKNOWN = Answer(403, "InvalidAccessKeyId", message="")
DENIED = Answer(403, "AccessDenied")
NO_KMS_KEY = Answer(400, "KMS.NotFoundException", "Invalid keyId")
KMS_DENIED = Answer(403, "AccessDenied", "User a is not authorized to perform: kms:Decrypt on b")
KMS_UNSAID = Answer(400, "InvalidArgument", "needs HTTP header x-amz-sse-aws-kms-key-id")
MOVED = Answer(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"})
MISSIGNED = Answer(400, "AuthorizationHeaderMalformed", inside="<Region>eu-west-1</Region>")


@pytest.fixture(scope="module")
def proxy(ceph: Ceph) -> Iterator[S3Proxy]:
    with S3Proxy(ceph.endpoint).running() as running:
        yield running


@pytest.fixture
def read_timeout(request: pytest.FixtureRequest) -> float:
    """Seconds without an answer after which the client asks again: few only where none comes, or a
    busy machine would be told from a silent one by luck."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if "rule" not in given or not given["rule"].silent:
        return 60
    return 0.2 if "kind" in given else 1  # the first one alone has no answer to wait for


@pytest.fixture
def store(
    ceph: Ceph,
    ceph_client: S3Client,
    proxy: S3Proxy,
    make_ceph_bucket: MakeBucket,
    monkeypatch: pytest.MonkeyPatch,
    read_timeout: float,
) -> Iterator[S3Store]:
    """A store behind the proxy, that holds `demo/old`; its client tries three times."""
    soon = "botocore.retries.standard.ExponentialBackoff.delay_amount"
    monkeypatch.setattr(soon, lambda *_: 0.01)
    monkeypatch.setattr("lastgood.stores.s3_deletes.BULK_PAUSES", (0.0, 0.0))
    three_tries = Config(read_timeout=read_timeout, retries={"mode": "standard", "max_attempts": 3})
    client = prepared(
        boto3.client(
            "s3",
            endpoint_url=proxy.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ceph.access_key,
            aws_secret_access_key=ceph.secret_key,
            config=CONFIG.merge(three_tries),
        )
    )
    proxy.set()
    bucket = make_ceph_bucket()
    S3Store("cold", ceph_client, bucket).put_new(Key("demo/old"), b"old")
    yield S3Store("cold", client, bucket)
    proxy.set()
    client.close()


def lists(store: S3Store) -> None:
    listing = store.list(Prefix("demo/"))
    assert [one.key for one in listing] == ["demo/old"]
    assert listing.complete


def writes(store: S3Store) -> None:
    assert store.put_new(KEY, b"new").size_bytes == 3
    assert store.read(KEY) == b"new"


def reads(store: S3Store) -> None:
    assert store.read(Key("demo/old")) == b"old"


def looks(store: S3Store) -> None:
    found = store.stat(Key("demo/old"))
    assert found is not None
    assert found.size_bytes == 3


def deletes(store: S3Store) -> None:
    assert [one.outcome for one in store.delete(list(store.list(Prefix(""))))] == [Outcome.GONE]
    assert store.stat(Key("demo/old")) is None


def uploads(store: S3Store) -> None:
    upload_id = store.create_upload(KEY, 6)
    part = store.write_part(KEY, upload_id, 1, 6, [b"upload"])
    with suppress(KeyExists):  # the first answer was lost: whoever completes looks what is there
        store.complete_upload(KEY, upload_id, [part])
    assert store.read(KEY) == b"upload"
    assert list(store.uploads(Prefix(""))) == []


OLD = StoredObject(Key("demo/old"), 3)
LIST, PUT, GET, HEAD = r"^GET .*list-type=2", r"^PUT ", r"^GET .*old", r"^HEAD "
BULK, BEGIN = r"^POST .*\?delete", r"^POST .*\?uploads"
PART, COMPLETE = r"^PUT .*partNumber", r"^POST .*uploadId"

PASSING: dict[str, tuple[Callable[[S3Store], None], Rule]] = {
    "throttled listing": (lists, Rule(LIST, SLOW, times=2)),
    "listing without an answer in time": (lists, Rule(LIST, silent=True)),
    "listing whose connection breaks": (lists, Rule(LIST, cut_bytes=100)),
    "listing in another region": (lists, Rule(LIST, MOVED)),
    "listing signed for another region": (lists, Rule(LIST, MISSIGNED)),
    "error instead of a listing": (lists, Rule(LIST, FAILED_INSIDE_200)),
    "throttled write": (writes, Rule(PUT, SLOW, times=2)),
    "write that never arrives": (writes, Rule(PUT, lost=True)),
    "write whose answer is lost": (writes, Rule(PUT, cut_bytes=0)),
    "busy server": (writes, Rule(PUT, BUSY)),
    "throttled read": (reads, Rule(GET, SLOW)),
    "read whose connection breaks": (reads, Rule(GET, cut_bytes=1, times=2)),
    "look without a body": (looks, Rule(HEAD, SLOW)),
    "throttled bulk delete": (deletes, Rule(BULK, SLOW)),
    "error instead of a bulk delete": (deletes, Rule(BULK, FAILED_INSIDE_200)),
    "bulk delete whose answer is lost": (deletes, Rule(BULK, cut_bytes=10)),
    "throttled upload": (uploads, Rule(BEGIN, SLOW)),
    "throttled part": (uploads, Rule(PART, SLOW, times=2)),
    "part whose connection breaks": (uploads, Rule(PART, lost=True)),
    "part without an answer in time": (uploads, Rule(PART, silent=True)),
    "completion that failed inside a 200": (uploads, Rule(COMPLETE, FAILED_INSIDE_200)),
    "throttled completion": (uploads, Rule(COMPLETE, SLOW)),
    "completion whose answer is lost": (uploads, Rule(COMPLETE, cut_bytes=0)),
}


@pytest.mark.parametrize(("works", "rule"), PASSING.values(), ids=PASSING.keys())
def test_what_passes_is_tried_again(
    store: S3Store, proxy: S3Proxy, works: Callable[[S3Store], None], rule: Rule
) -> None:
    proxy.set(rule)
    works(store)
    assert proxy.faults == rule.times


STANDING: dict[str, tuple[Callable[[S3Store], None], Rule, type[LastgoodError], str]] = {
    "throttling": (lists, Rule(LIST, SLOW), StoreThrottled, "SlowDown"),
    "throttling of a write": (writes, Rule(PUT, SLOW), StoreThrottled, "SlowDown"),
    "silence": (lists, Rule(LIST, silent=True), StoreSilent, "timeout"),
    "resets": (lists, Rule(LIST, lost=True), StoreSilent, "closed|reset|[Cc]onnect"),
    "a cut listing": (lists, Rule(LIST, cut_bytes=100), StoreSilent, "closed|reset|broken"),
    "half a listing": (lists, Rule(LIST, shortened_bytes=300), StoreError, "no XML"),
    "half an answer": (uploads, Rule(BEGIN, shortened_bytes=90), StoreError, "500"),
    "ended credentials": (lists, Rule(LIST, EXPIRED), CredentialsExpired, "Renew"),
    "unknown credentials": (lists, Rule(LIST, UNKNOWN), WrongCredentials, "login and password"),
    "no such KMS key": (writes, Rule(PUT, NO_KMS_KEY), KmsKeyRefused, "`kms_key`"),
    "a KMS key that may not be used": (reads, Rule(GET, KMS_DENIED), KmsKeyRefused, "allowed"),
    "no KMS key where one is needed": (uploads, Rule(BEGIN, KMS_UNSAID), KmsKeyRefused, "kms_key"),
    "a wrong clock": (reads, Rule(GET, SKEWED), ClockSkewed, "NTP"),
    "another region": (lists, Rule(LIST, MOVED), WrongRegion, "eu-west-1"),
    "a wrong signing region": (lists, Rule(LIST, MISSIGNED), WrongRegion, "eu-west-1"),
    "access denied": (reads, Rule(GET, DENIED), AccessRefused, "AccessDenied"),
    "access denied to delete": (deletes, Rule(BULK, DENIED), AccessRefused, "AccessDenied"),
    "an error inside a 200": (uploads, Rule(COMPLETE, FAILED_INSIDE_200), StoreError, "internal"),
    "a failing server": (writes, Rule(PUT, FAILED), StoreError, "InternalError"),
}


@pytest.mark.parametrize(("works", "rule", "kind", "said"), STANDING.values(), ids=STANDING.keys())
def test_what_stays_is_told_by_its_kind(
    store: S3Store,
    proxy: S3Proxy,
    works: Callable[[S3Store], None],
    rule: Rule,
    kind: type[LastgoodError],
    said: str,
) -> None:
    proxy.set(replace(rule, times=None))
    with pytest.raises(kind, match=said) as caught:
        works(store)
    assert type(caught.value) is kind
    if rule.answer is not None:
        assert REQUEST_ID in str(caught.value)


LOGIN = Answer(200, "", page=b"<html><body>Who are you?</body></html>")
NO_CONTENT = Answer(204, "", page=b"")
LOST_ROUTE = Answer(404, "", page=b"<html><body>default backend - 404</body></html>")
HALF = Answer(404, "", page=b'<?xml version="1.0"?><Error><Code>NoSuchKey</Co')
NO_ROUTE = Answer(404, "", page=b"")
CLOSED = Answer(403, "", page=b"Forbidden")
FOREIGN = (LOGIN, NO_CONTENT, LOST_ROUTE, NO_ROUTE, HALF)
GET_PARTS, GET_UPLOADS = r"^GET .*uploadId", r"^GET .*\?.*uploads"
Begun = tuple[Key, UploadId, Part]
_names = itertools.count()


def begin(store: S3Store) -> Begun:
    key = Key(f"demo/new-{next(_names)}")
    upload_id = store.create_upload(key, 6)
    return key, upload_id, store.write_part(key, upload_id, 1, 6, [b"upload"])


def opens(store: S3Store) -> None:
    assert not S3Store("cold", store.client, store.bucket).profile.versioned


def shows_uploads(store: S3Store, begun: Begun) -> None:
    assert begun[1] in [one.upload_id for one in store.uploads(Prefix("demo/"))]


def aborts(store: S3Store, begun: Begun) -> None:
    store.abort_upload(*begun[:2])
    with pytest.raises(UploadGone):
        store.parts(*begun[:2])


CONCLUDING: dict[str, tuple[str, Callable[[S3Store, Begun], object]]] = {
    "a listing": (LIST, lambda store, begun: list(store.list(Prefix("demo/")))),
    "a read": (GET, lambda store, begun: reads(store)),
    "a look": (HEAD, lambda store, begun: looks(store)),
    "a write": (PUT, lambda store, begun: store.put_new(Key(f"demo/{next(_names)}"), b"{}")),
    "the versioning": (r"\?versioning", lambda store, begun: opens(store)),
    "the Object Lock": (r"\?object-lock", lambda store, begun: store._locks.possible()),
    "a legal hold": (r"\?legal-hold", lambda store, begun: store._locks.locked([OLD])),
    "the rules": (r"\?lifecycle", lambda store, begun: store.lifecycle().read()),
    "parts": (GET_PARTS, lambda store, begun: store.parts(*begun[:2])),
    "uploads": (GET_UPLOADS, shows_uploads),
    "the parts of an aborted upload": (GET_PARTS, aborts),
    "a completion": (COMPLETE, lambda store, begun: store.complete_upload(*begun[:2], [begun[2]])),
}


@pytest.mark.parametrize(("asked", "works"), CONCLUDING.values(), ids=CONCLUDING.keys())
def test_nothing_is_concluded_from_a_page_that_is_not_of_s3(
    store: S3Store, proxy: S3Proxy, asked: str, works: Callable[[S3Store, Begun], object]
) -> None:
    # Without its body one page of a status is as another; 403 is told of locks to count as one.
    pages = (LOGIN, LOST_ROUTE) if asked == HEAD else FOREIGN
    begun = begin(store)
    for page in (*pages, CLOSED) if "hold" in asked else pages:
        proxy.set(Rule(asked, page, times=None))
        with pytest.raises(StoreError, match="NotAnAnswerOfS3") as caught:
            works(store, begun)
        assert type(caught.value) is StoreError
        proxy.set()
        if asked in (GET_PARTS, COMPLETE):  # whose upload is no more
            begun = begin(store)
        proxy.set(Rule(asked, page))
        works(store, begun)
        assert proxy.faults == 1
        proxy.set()
        if asked in (GET_PARTS, COMPLETE):
            begun = begin(store)


def test_a_refusal_whose_words_break_off(store: S3Store, proxy: S3Proxy) -> None:
    proxy.set(Rule(GET, SLOW, cut_bytes=40))
    reads(store)
    assert proxy.faults == 1
    proxy.set(Rule(GET, DENIED, cut_bytes=40, times=None))
    with pytest.raises(StoreSilent, match=r"broken|closed|reset"):
        reads(store)


def test_a_redirection_that_names_no_region_is_not_followed_in_a_circle(
    store: S3Store, proxy: S3Proxy
) -> None:
    proxy.set(Rule("", Answer(307, "", page=b"", headers={"Location": "/login"}), times=None))
    with pytest.raises(WrongRegion, match="/login"):
        looks(store)
    assert len(proxy.requests) < 4


UNTOLD: dict[str, tuple[Answer, type[LastgoodError]]] = {
    "throttled": (SLOW, StoreThrottled),
    "ended credentials": (EXPIRED, CredentialsExpired),
    "a wrong clock": (SKEWED, ClockSkewed),
    "access denied": (DENIED, AccessRefused),
}


@pytest.mark.parametrize(("answer", "kind"), UNTOLD.values(), ids=UNTOLD.keys())
def test_a_look_that_is_refused_without_a_word_is_told_by_its_kind(
    store: S3Store, proxy: S3Proxy, answer: Answer, kind: type[LastgoodError]
) -> None:
    proxy.set(Rule("demo/old", answer, times=None))
    with pytest.raises(kind, match=REQUEST_ID) as caught:
        looks(store)
    assert type(caught.value) is kind


def test_credentials_that_end_between_deletions_key_by_key_are_not_tried_with_each_key(
    store: S3Store, proxy: S3Proxy
) -> None:
    odd = [Key(f"demo/odd\x7f{name}") for name in "abc"]  # no bulk delete can name these
    found = [StoredObject(key, 1) for key in odd]
    proxy.set(Rule("^DELETE ", EXPIRED, times=None, after=1))
    told = list(store.delete(found))
    assert [one.outcome for one in told] == [Outcome.GONE, Outcome.REFUSED, Outcome.REFUSED]
    assert all("Renew" in (one.reason or "") for one in told[1:])
    assert proxy.faults == 1


def test_an_upload_whose_credentials_end_goes_on_with_new_ones(
    store: S3Store, proxy: S3Proxy
) -> None:
    size = 5 << 20
    upload_id = store.create_upload(KEY, size + 1)
    store.write_part(KEY, upload_id, 1, size, [bytes(size)])
    proxy.set(Rule(PART, EXPIRED, times=None))
    with pytest.raises(CredentialsExpired, match=REQUEST_ID):
        store.write_part(KEY, upload_id, 2, 1, [b"x"])
    proxy.set()
    assert [part.number for part in store.parts(KEY, upload_id)] == [1]
    store.write_part(KEY, upload_id, 2, 1, [b"x"])
    done = store.complete_upload(KEY, upload_id, [Part(1, size), Part(2, 1)])
    assert done.size_bytes == size + 1


def test_credentials_that_end_in_the_middle_of_a_deletion_lose_no_outcome(
    store: S3Store, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastgood.stores.s3_deletes.BATCH_KEYS", 2)
    for name in "abcde":
        store.put_new(Key(f"demo/{name}"), b"x")
    found = list(store.list(Prefix("")))
    proxy.set(Rule(BULK, EXPIRED))
    told: list[KeyOutcome] = []
    with pytest.raises(CredentialsExpired, match=REQUEST_ID):
        told.extend(store.delete(found))
    left = {one.key for one in store.list(Prefix(""))}
    assert [one.key for one in told] == [one.key for one in found]
    assert {one.key for one in told if one.outcome is Outcome.REFUSED} == left
    assert len(left) == 2
    assert {one.outcome for one in store.delete(found)} == {Outcome.GONE}


def refused(key: str, code: str) -> Callable[[bytes], bytes]:
    """A bulk delete's answer in which this key was not deleted."""

    def edit(content: bytes) -> bytes:
        gone = f"<Deleted><Key>{key}</Key></Deleted>".encode()
        assert gone in content
        return content.replace(
            gone,
            f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>".encode(),
        )

    return edit


def test_access_denied_to_one_key_is_told_of_that_key(store: S3Store, proxy: S3Proxy) -> None:
    store.put_new(KEY, b"new")
    found = list(store.list(Prefix("demo/")))
    proxy.set(Rule(BULK, edited=refused(KEY, "AccessDenied"), times=None))
    told = {one.key: one for one in store.delete(found)}
    assert told[Key("demo/old")].outcome is Outcome.GONE
    assert told[KEY].outcome is Outcome.REFUSED
    assert "AccessDenied: no (request tx" in (told[KEY].reason or "")
    assert proxy.faults == 1


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_a_key_that_a_busy_server_refused_is_deleted_again(
    store: S3Store, proxy: S3Proxy, code: str
) -> None:
    store.put_new(KEY, b"new")
    found = list(store.list(Prefix("demo/")))
    proxy.set(Rule(BULK, edited=refused(KEY, code)))
    assert {one.outcome for one in store.delete(found)} == {Outcome.GONE}
    assert len([one for one in proxy.requests if one.startswith("POST")]) == 2
    assert list(store.list(Prefix(""))) == []


def test_a_key_that_stays_refused_is_told(store: S3Store, proxy: S3Proxy) -> None:
    found = list(store.list(Prefix("demo/")))
    proxy.set(Rule(BULK, edited=refused("demo/old", "SlowDown"), times=None))
    (told,) = store.delete(found)
    assert told.outcome is Outcome.REFUSED
    assert "SlowDown" in (told.reason or "")
    assert proxy.faults == 3


def test_a_read_of_what_is_gone_is_not_tried_again(store: S3Store, proxy: S3Proxy) -> None:
    with pytest.raises(KeyMissing):
        store.read(Key("demo/none"))
    assert len([one for one in proxy.requests if "demo/none" in one]) == 1
