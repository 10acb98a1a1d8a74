"""A stream over an object in S3 that survives a broken connection."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, HTTPClientError
from urllib3.exceptions import HTTPError

from lastgood.stores.base import Key
from lastgood.stores.s3_client import translated
from lastgood.stores.s3_errors import StoreSilent

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client

REOPENINGS = 5


class S3Reader(io.RawIOBase):
    """Reads a range of one version of one object. When the connection breaks, goes on behind the
    last byte received, of the same bytes (If-Match), at most five times in a row without
    progress."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        key: Key,
        where: dict[str, str],
        start: int,
        size_bytes: int | None,
    ) -> None:
        """Opens at once. KeyMissing if the object is not there."""
        self._client = client
        self._store = store
        self._key = key
        self._where = where
        self._offset = start
        self._end = None if size_bytes is None else start + size_bytes
        self._etag: str | None = None
        self._body: Any = None
        self._open()

    def _open(self) -> None:
        if self._end is not None and self._offset >= self._end:
            return
        request: dict[str, Any] = dict(self._where)
        if self._offset or self._end is not None:
            last = "" if self._end is None else self._end - 1
            request["Range"] = f"bytes={self._offset}-{last}"
        if self._etag is not None:
            request["IfMatch"] = self._etag
        with translated(self._store, self._key, "read"):
            try:
                answer = self._asked(request)
            except self._client.exceptions.ClientError as error:
                if error.response.get("Error", {}).get("Code") not in ("InvalidRange", "416"):
                    raise
                return  # nothing at or behind this offset
        self._etag = answer["ETag"]
        self._body = answer["Body"]

    def _asked(self, request: dict[str, Any]) -> Any:
        for _ in range(REOPENINGS):
            try:
                return self._client.get_object(**request)
            except HTTPError as error:  # a refusal whose words broke off: botocore lets it through
                broken = error
        raise broken

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if not len(view) or self._body is None:
            return 0
        for _ in range(REOPENINGS):
            try:
                count = int(self._body.readinto(view))
            except (BotoCoreError, HTTPClientError, OSError) as error:
                broken: Exception = error
                self._body.close()
                self._open()
                if self._body is None:
                    return 0
                continue
            self._offset += count
            return count
        reason = f"the connection broke {REOPENINGS} times at byte {self._offset}"
        where = {"store": self._store, "key": self._key}
        raise StoreSilent(**where, action="read", reason=reason) from broken

    def close(self) -> None:
        if self._body is not None:
            self._body.close()
        super().close()
