"""The demo's store as its S3 server shows it to anybody, without the library that is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lastgood.stack.demo.disk import is_written_last

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True)
class Bucket:
    """A store that is a bucket."""

    client: S3Client
    name: str

    def bytes_held(self, until: datetime, inventory: str) -> int:
        """See `disk.Outside`."""
        objects = sum(
            int(one["Size"])
            for one in self._versions("")
            if one["LastModified"] <= until and not self._is_later(one["Key"], inventory)
        )
        return objects + self._bytes_pending("")

    @staticmethod
    def _is_later(key: str, inventory: str) -> bool:
        return key.startswith(inventory) and is_written_last(key.removeprefix(inventory))

    def bytes_of_attempt(self, prefix: str, attempt: str) -> int:
        """See `disk.Outside`."""
        objects = sum(int(one["Size"]) for one in self._versions(prefix))
        return objects + self._bytes_pending(prefix)

    def _versions(self, prefix: str) -> Iterator[Any]:
        pages = self.client.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self.name, Prefix=prefix):
            yield from page.get("Versions", ())

    def _bytes_pending(self, prefix: str) -> int:
        uploads = self.client.get_paginator("list_multipart_uploads")
        parts = self.client.get_paginator("list_parts")
        return sum(
            part["Size"]
            for page in uploads.paginate(Bucket=self.name, Prefix=prefix)
            for upload in page.get("Uploads", ())
            for held in parts.paginate(
                Bucket=self.name, Key=upload["Key"], UploadId=upload["UploadId"]
            )
            for part in held.get("Parts", ())
        )
