"""Pages of S3 listings: read fast, and exactly as an XML parser reads them."""

from __future__ import annotations

import xml.sax.saxutils
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.stores.base import Prefix
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_page import Entry, Page, PageUnreadable
from tests.ceph.fixtures import MakeBucket

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AT = "2026-11-30T11:37:42.607Z"
MODIFIED = datetime(2026, 11, 30, 11, 37, 42, 607000, UTC)
OWNER = "<Owner><ID>1</ID><DisplayName>one</DisplayName></Owner>"
CURRENT = (
    f"<Contents><Key>{{}}</Key><LastModified>{AT}</LastModified><ETag>&quot;e-2&quot;</ETag>"
    "<Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
WITH_CHECKSUM = (
    f"<Contents><Key>{{}}</Key><LastModified>{AT}</LastModified><ETag>&quot;e-2&quot;</ETag>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    f"<Size>7</Size>{OWNER}<StorageClass>STANDARD</StorageClass></Contents>"
)
VERSION = (
    "<Version><Key>{}</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest>"
    f"<LastModified>{AT}</LastModified><ETag>&quot;e-2&quot;</ETag><Size>7</Size>{OWNER}</Version>"
)
VERSION_KEY_LATE = (
    "<Version><ETag>&quot;e-2&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass>"
    "<Key>{}</Key><VersionId>v1</VersionId><IsLatest>false</IsLatest>"
    f"<LastModified>{AT}</LastModified>{OWNER}</Version>"
)
MARKER = (
    "<DeleteMarker><Key>{}</Key><VersionId>m1</VersionId><IsLatest>true</IsLatest>"
    f"<LastModified>{AT}</LastModified>{OWNER}</DeleteMarker>"
)
KEYS = ["a", "a/b c", "a+b", "100%", "%2F", "a%20b", "a&b<c>'d\"", "n\nl", "é🧊", "folder/", "../x"]


def page(*entries: str, head: str = "<EncodingType>url</EncodingType>", tail: str = "") -> bytes:
    inside = head + "".join(entries) + tail
    return f'<?xml version="1.0"?><ListBucketResult xmlns="a">{inside}</ListBucketResult>'.encode()


def all_of(template: str) -> list[str]:
    return [template.format(quote_plus(key)) for key in KEYS]


@pytest.mark.parametrize("template", [CURRENT, WITH_CHECKSUM], ids=["plain", "checksum"])
def test_the_current_objects_of_a_uniform_page_are_read_without_xml(template: str) -> None:
    found = Page(page(*all_of(template), *all_of(CURRENT)))
    wanted = [Entry(key, 7, None, True, False, MODIFIED, '"e-2"') for key in KEYS]
    assert found._matched() == found._read_as_xml() == wanted * 2


@pytest.mark.parametrize("template", [VERSION, VERSION_KEY_LATE], ids=["key-first", "key-late"])
def test_versions_and_delete_markers_keep_their_order(template: str) -> None:
    entries = [template.format("a"), MARKER.format("b"), template.format("b"), MARKER.format("c")]
    found = Page(page(*entries))
    version = Entry("a", 7, "v1", False, False, MODIFIED, '"e-2"')
    marker = Entry("b", 0, "m1", True, True, MODIFIED)
    wanted = [version, marker, version._replace(key="b"), marker._replace(key="c")]
    assert found._matched() == found._read_as_xml() == wanted


def test_keys_that_were_not_encoded_are_taken_as_they_are() -> None:
    keys = [key for key in KEYS if key != "n\nl"]
    entries = [CURRENT.format(xml.sax.saxutils.escape(key)) for key in keys]
    found = Page(page(*entries, head=""))
    assert [one.key for one in found._matched() or ()] == keys
    assert found._matched() == found._read_as_xml()


ONE = CURRENT.format("a")
ODD = {
    "a comment that looks like an entry": page(ONE, f"<!--{ONE}-->", ONE),
    "an element between entries": page(ONE, "<Other>1</Other>", ONE),
    "white space between entries": page(ONE, "\n  ", ONE),
    "a section of raw characters": page(CURRENT.format("<![CDATA[a]]>")),
    "a character by its number": page(CURRENT.format("a&#10;b"), head=""),
    "a carriage return": page(CURRENT.format("a\rb"), head=""),
    "fields in another order": page("<Contents><Size>7</Size><Key>a</Key></Contents>"),
    "few fields": page("<Contents><Key>a</Key></Contents>", ONE),
    "an attribute": page(ONE.replace("<Contents>", '<Contents a="b">'), ONE),
    "an entry of another kind": page(ONE, MARKER.format("b")),
    "an entry in a comment of the head": page(ONE, head=f"<!--{ONE}-->"),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_a_page_that_is_not_uniform_is_read_as_xml(body: bytes) -> None:
    found = Page(body)
    assert found.entries() == found._read_as_xml() != []
    assert not found._uniform or found._matched() is None


@pytest.mark.parametrize(
    "body", [page(ONE, ONE)[:-30], page(ONE)[:200], b"", b"Bad Gateway", page(ONE)[:-1]]
)
def test_half_a_page_is_no_page(body: bytes) -> None:
    with pytest.raises(PageUnreadable):
        Page(body).without_entries()
    with pytest.raises(PageUnreadable):
        Page(body).entries()


BODY = page(*all_of(CURRENT), *all_of(WITH_CHECKSUM), tail="<IsTruncated>false</IsTruncated>")


@given(
    st.integers(0, len(BODY)), st.integers(0, 60), st.sampled_from([b"", b"<", b"\r", b"<A>b</A>"])
)
def test_what_was_damaged_on_the_way_is_read_as_xml_reads_it(
    start: int, length: int, instead: bytes
) -> None:
    found = Page(BODY[:start] + instead + BODY[start + length :])
    try:
        wanted = found._read_as_xml()
    except PageUnreadable:
        return  # the rest, which an XML parser gets, or the entries themselves are refused
    assert found.entries() == wanted


@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_pages_of_a_real_server_are_uniform_and_their_keys_exact(
    ceph_client: S3Client,
    make_ceph_bucket: MakeBucket,
    versioned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = make_ceph_bucket(versioned=versioned)
    for key in KEYS:
        ceph_client.put_object(Bucket=bucket, Key=key, Body=b"x")
    monkeypatch.setattr("lastgood.stores.s3_pages.PAGE_KEYS", 3)
    monkeypatch.setattr(Page, "_read_as_xml", lambda self: pytest.fail("was not uniform"))
    store = S3Store("s3", ceph_client, bucket)
    listing = store.list(Prefix(""))
    assert [one.key for one in listing] == sorted(KEYS)
    assert listing.complete


def test_a_listing_that_is_given_up_stops_asking(
    ceph_client: S3Client, make_ceph_bucket: MakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make_ceph_bucket()
    for number in range(8):
        ceph_client.put_object(Bucket=bucket, Key=str(number), Body=b"")
    monkeypatch.setattr("lastgood.stores.s3_pages.PAGE_KEYS", 1)
    store, asked = S3Store("s3", ceph_client, bucket), []
    count = lambda **_: asked.append(1)  # noqa: E731
    ceph_client.meta.events.register("before-call.s3.ListObjectsV2", count)
    try:
        found = iter(store.list(Prefix("")))
        assert next(found).key == "0"
        found.close()  # type: ignore[attr-defined]
        assert len(asked) <= 4
    finally:
        ceph_client.meta.events.unregister("before-call.s3.ListObjectsV2", count)
