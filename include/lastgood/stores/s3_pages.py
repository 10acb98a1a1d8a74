"""Object listings of S3, page by page.

Two things are done here that boto3 leaves undone. It takes 55 µs to parse a key, which is most of
a long listing; and it sorts versions and delete markers apart, which loses the order that tells
what hides what. So pages are parsed here, while boto3 still signs, retries and raises. The next
page is on its way while one is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Any

from lastgood.stores.s3_page import Entry, Page, PageUnreadable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ENTRIES = "LastgoodEntries"
UNREADABLE = "LastgoodUnreadable"
PAGE_KEYS = 1000
PAGES_AHEAD = 2

More = dict[str, Any]  # where a page begins
Fetch = Callable[[More], Any]


class ListingStuck(Exception):
    """The server does not say how a listing goes on; what was seen is not all."""


def parse_listings_fast(client: S3Client) -> None:
    """Make `current` and `versions` below work on this client."""
    for operation in ("ListObjectsV2", "ListObjectVersions"):
        # By such a name it runs before botocore's own hook, which parses all that is left in the
        # page to look for an error.
        client.meta.events.register_first(f"before-parse.*.{operation}", _take_entries)


def current(client: S3Client, bucket: str, prefix: str, after: str = "") -> Iterator[Entry]:
    """Every current object below the prefix, ascending by key, all pages; with `after`, only keys
    after that one. Raises ListingStuck, PageUnreadable, and boto3's errors."""
    for page in current_pages(client, bucket, prefix, after):
        yield from page


def current_pages(
    client: S3Client, bucket: str, prefix: str, after: str = ""
) -> Iterator[list[Entry]]:
    """`current`, page by page."""

    def fetch(more: More) -> Any:
        return client.list_objects_v2(
            Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, EncodingType="url", **more
        )

    yield from _pages(fetch, {"StartAfter": after} if after else {}, _after_token)


def versions(client: S3Client, bucket: str, prefix: str, after: str = "") -> Iterator[Entry]:
    """Every version and delete marker below the prefix, ascending by key, the newest first; with
    `after`, only of keys after that one. Raises as `current` does."""

    def fetch(more: More) -> Any:
        return client.list_object_versions(
            Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, EncodingType="url", **more
        )

    for page in _pages(fetch, {"KeyMarker": after} if after else {}, _after_markers):
        # Stable: some servers put all markers of a page behind all its versions.
        yield from sorted(page, key=lambda entry: entry.key)


def _pages(fetch: Fetch, more: More, following: Callable[[Any], More]) -> Iterator[list[Entry]]:
    """The entries of each page. A listing of several pages has a thread that fetches the next ones
    meanwhile."""
    first = fetch(more)
    if not first.get("IsTruncated"):
        yield _entries(first)
        return
    with _ahead(_fetched(first, fetch, more, following)) as pages:
        for page in pages:
            yield _entries(page)


def _fetched(
    page: Any, fetch: Fetch, more: More, following: Callable[[Any], More]
) -> Iterator[Any]:
    yield page
    while page.get("IsTruncated"):
        more = _advanced(more, following(page))
        page = fetch(more)
        yield page


@contextmanager
def _ahead(pages: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """The same pages, taken by a thread a little ahead. Whoever gives the listing up does not wait
    for the request that is under way."""
    room, taken, is_over = Semaphore(PAGES_AHEAD), SimpleQueue[Any](), Event()

    def take() -> None:
        try:
            for page in pages:
                taken.put(page)
                room.acquire()
                if is_over.is_set():
                    return
            taken.put(None)
        except BaseException as error:  # of the listing, wherever it is read
            taken.put(error)

    def arriving() -> Iterator[Any]:
        while (page := taken.get()) is not None:
            if isinstance(page, BaseException):
                raise page
            room.release()
            yield page

    Thread(target=copy_context().run, args=(take,), name="lastgood-listing", daemon=True).start()
    try:
        yield arriving()
    finally:
        is_over.set()
        room.release()


def _after_token(page: Any) -> More:
    return {"ContinuationToken": page.get("NextContinuationToken")}


def _after_markers(page: Any) -> More:
    following = {"KeyMarker": page.get("NextKeyMarker")}
    if page.get("NextVersionIdMarker"):
        following["VersionIdMarker"] = page["NextVersionIdMarker"]
    return following


def _advanced(before: More, following: More) -> More:
    if not all(following.values()) or following == before:
        raise ListingStuck(f"a page says that more follows, but not where: {following}")
    return following


def _entries(page: Any) -> list[Entry]:
    if UNREADABLE in page:
        raise page[UNREADABLE]
    received: Page | None = page.get(ENTRIES)
    return [] if received is None else received.entries()


def _take_entries(response_dict: More, customized_response_dict: More, **_: Any) -> None:
    if response_dict["status_code"] != 200:
        return
    page = Page(response_dict["body"])
    try:
        response_dict["body"] = page.without_entries()
        customized_response_dict[ENTRIES] = page
    except PageUnreadable as error:
        customized_response_dict[UNREADABLE] = error
        response_dict["body"] = b"<ListBucketResult/>"
