"""Object listings of S3, page by page.

Two things are done here that boto3 leaves undone. It takes 55 µs to parse a key, which is most of
a long listing; and it sorts versions and delete markers apart, which loses the order that tells
what hides what. So pages are parsed here, while boto3 still signs, retries and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ENTRIES = "LastgoodEntries"
PAGE_KEYS = 1000


class Entry(NamedTuple):
    """One object, version or delete marker, as listed; the key is exact."""

    key: str
    size_bytes: int
    version_id: str | None
    is_latest: bool
    is_delete_marker: bool
    modified_at: datetime | None
    etag: str | None = None


def parse_listings_fast(client: S3Client) -> None:
    """Make `current` and `versions` below work on this client."""
    for operation in ("ListObjectsV2", "ListObjectVersions"):
        client.meta.events.register(f"before-parse.s3.{operation}", _take_entries)


def current(client: S3Client, bucket: str, prefix: str, after: str = "") -> Iterator[Entry]:
    """Every current object below the prefix, ascending by key, all pages; with `after`, only keys
    after that one."""
    more: dict[str, Any] = {"StartAfter": after} if after else {}
    while True:
        page: Any = client.list_objects_v2(
            Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, EncodingType="url", **more
        )
        yield from page.get(ENTRIES, ())
        if not page.get("IsTruncated"):
            return
        more = _advanced(more, {"ContinuationToken": page.get("NextContinuationToken")})


def versions(client: S3Client, bucket: str, prefix: str, after: str = "") -> Iterator[Entry]:
    """Every version and delete marker below the prefix, ascending by key, the newest first; with
    `after`, only of keys after that one."""
    more: dict[str, Any] = {"KeyMarker": after} if after else {}
    while True:
        page: Any = client.list_object_versions(
            Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, EncodingType="url", **more
        )
        # Stable: some servers put all markers of a page behind all its versions.
        yield from sorted(page.get(ENTRIES, ()), key=lambda entry: entry.key)
        if not page.get("IsTruncated"):
            return
        following = {"KeyMarker": page.get("NextKeyMarker")}
        if page.get("NextVersionIdMarker"):
            following["VersionIdMarker"] = page["NextVersionIdMarker"]
        more = _advanced(more, following)


def _advanced(before: dict[str, Any], following: dict[str, Any]) -> dict[str, Any]:
    if not all(following.values()) or following == before:
        raise ListingStuck(f"a page says that more follows, but not where: {following}")
    return following


class ListingStuck(Exception):
    """The server does not say how a listing goes on; what was seen is not all."""


def _take_entries(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    if response_dict["status_code"] != 200:
        return
    root = ElementTree.fromstring(response_dict["body"])
    space = root.tag.rpartition("}")[0]
    space = f"{space}}}" if space else ""
    decode = unquote_plus if root.findtext(f"{space}EncodingType") == "url" else str
    tags = {f"{space}Contents", f"{space}Version", f"{space}DeleteMarker"}
    rest = ElementTree.Element(root.tag)
    entries = []
    for element in root:
        if element.tag in tags:
            entries.append(_entry(element, space, decode))
        else:
            rest.append(element)
    customized_response_dict[ENTRIES] = entries
    response_dict["body"] = ElementTree.tostring(rest)


def _entry(element: ElementTree.Element, space: str, decode: Callable[[str], str]) -> Entry:
    text = element.findtext
    modified = text(f"{space}LastModified")
    return Entry(
        key=decode(text(f"{space}Key") or ""),
        size_bytes=int(text(f"{space}Size") or 0),
        version_id=text(f"{space}VersionId"),
        is_latest=text(f"{space}IsLatest") != "false",
        is_delete_marker=element.tag == f"{space}DeleteMarker",
        modified_at=datetime.fromisoformat(modified) if modified else None,
        etag=text(f"{space}ETag"),
    )
