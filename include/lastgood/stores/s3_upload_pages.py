"""Listings of pending uploads in S3, all pages, with exact keys.

Servers differ here more than anywhere. Some ignore the prefix, or the markers, or repeat entries.
A truncated page may be empty. One encodes the keys as it was asked to, but does not say so, and
leaves the markers as they are; another says so, but leaves the keys as they are: so what is encoded
is found out, not assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from lastgood.stores.base import Key, StoreError, UploadId
from lastgood.stores.begun import BegunUpload
from lastgood.stores.s3_client import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Decode = Callable[[str], str]
_NOT_IN_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class UploadPages:
    """The pages of one listing, below a prefix of the bucket."""

    def __init__(self, client: S3Client, store: str, bucket: str, prefix: str) -> None:
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._found: Decode | None = None  # once there was a key that tells

    def uploads(self) -> Iterator[BegunUpload]:
        """Every pending upload once, with the bucket's own key, in no certain order. StoreError
        where the server repeats itself: what was seen is not all."""
        seen: set[tuple[str, str]] = set()
        begun_at: set[tuple[str, str]] = set()
        markers: dict[str, str] = {}
        while True:
            page = self._page(markers, encoded=self._found is not str)
            decode = self._decoding(page, markers)
            keys = [decode(upload["Key"]) for upload in page.get("Uploads", ())]
            for key, upload in zip(keys, page.get("Uploads", ()), strict=True):
                identity = (key, upload["UploadId"])
                if identity not in seen and key.startswith(self._prefix):
                    yield BegunUpload(Key(key), UploadId(identity[1]), upload.get("Initiated"))
                seen.add(identity)
            if not page.get("IsTruncated"):
                return
            place = (_next_key(page, keys), page.get("NextUploadIdMarker") or "")
            # A truncated page may be empty, as long as the next one begins where none began.
            if not place[0] or place in begun_at:
                raise StoreError(
                    store=self._store,
                    key=self._prefix,
                    bucket=self._bucket,
                    reason="the listing of uploads says that more follows, but repeats itself",
                )
            begun_at.add(place)
            markers = {"KeyMarker": place[0], "UploadIdMarker": place[1]}

    def _page(self, markers: dict[str, str], *, encoded: bool) -> Any:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix, **markers}
        if encoded:
            request["EncodingType"] = "url"
        with translated(self._store, self._prefix, "list uploads", bucket=self._bucket):
            return self._client.list_multipart_uploads(**request)

    def _decoding(self, page: Any, markers: dict[str, str]) -> Decode:
        """What makes the page's keys exact."""
        doubtful = {
            upload["UploadId"]: upload["Key"]
            for upload in page.get("Uploads", ())
            if unquote_plus(upload["Key"]) != upload["Key"]
        }
        if doubtful and self._found is None:
            self._found = self._compared(doubtful, markers)
        return self._found or str

    def _compared(self, doubtful: dict[str, str], markers: dict[str, str]) -> Decode:
        """Ask for the same page without any encoding, and compare."""
        if any(_NOT_IN_XML.search(unquote_plus(key)) for key in doubtful.values()):
            return unquote_plus  # the page could not be read without encoding
        for upload in self._page(markers, encoded=False).get("Uploads", ()):
            if upload["UploadId"] in doubtful:
                is_same = upload["Key"] == doubtful[upload["UploadId"]]
                return str if is_same else unquote_plus
        return unquote_plus  # all of them ended meanwhile


def _next_key(page: Any, keys: Sequence[str]) -> str:
    """Where the next page begins. The marker of a page with entries is its last key, encoded or
    not."""
    marker: str = page.get("NextKeyMarker") or ""
    if marker in keys:
        return marker
    if page.get("EncodingType") == "url" or unquote_plus(marker) in keys:
        return unquote_plus(marker)
    return marker
