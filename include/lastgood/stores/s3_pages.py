"""Object listings of S3, page by page.

Two things are done here that boto3 leaves undone. It takes 55 µs to parse a key, which is most of
a long listing; and it sorts versions and delete markers apart, which loses the order that tells
what hides what. So pages are parsed here, while boto3 still signs, retries and raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ENTRIES = "LastgoodEntries"
ENTRY_TAGS = frozenset({"Contents", "Version", "DeleteMarker"})
PAGE_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One object, version or delete marker, as listed; the key is exact."""

    key: str
    size_bytes: int
    version_id: str | None
    is_latest: bool
    is_delete_marker: bool
    modified_at: datetime | None


def parse_listings_fast(client: S3Client) -> None:
    """Make `current` and `versions` below work on this client."""
    for operation in ("ListObjectsV2", "ListObjectVersions"):
        client.meta.events.register(f"before-parse.s3.{operation}", _take_entries)


def current(client: S3Client, bucket: str, prefix: str) -> Iterator[Entry]:
    """Every current object below the prefix, ascending by key, all pages."""
    more: dict[str, Any] = {}
    while True:
        page: Any = client.list_objects_v2(
            Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, EncodingType="url", **more
        )
        yield from page.get(ENTRIES, ())
        if not page.get("IsTruncated"):
            return
        more = _advanced(more, {"ContinuationToken": page.get("NextContinuationToken")})


def versions(client: S3Client, bucket: str, prefix: str) -> Iterator[Entry]:
    """Every version and delete marker below the prefix, ascending by key, the newest first."""
    more: dict[str, Any] = {}
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
    encoded = any(_tag(child) == "EncodingType" and child.text == "url" for child in root)
    taken = [child for child in root if _tag(child) in ENTRY_TAGS]
    customized_response_dict[ENTRIES] = [_entry(element, encoded) for element in taken]
    for element in taken:
        root.remove(element)
    response_dict["body"] = ElementTree.tostring(root)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _entry(element: ElementTree.Element, encoded: bool) -> Entry:
    facts = {_tag(child): child.text or "" for child in element}
    key = facts["Key"]
    modified = facts.get("LastModified")
    return Entry(
        key=unquote_plus(key) if encoded else key,
        size_bytes=int(facts.get("Size", 0)),
        version_id=facts.get("VersionId"),
        is_latest=facts.get("IsLatest", "true") == "true",
        is_delete_marker=_tag(element) == "DeleteMarker",
        modified_at=datetime.fromisoformat(modified) if modified else None,
    )
