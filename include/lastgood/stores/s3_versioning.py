"""Whether an S3 bucket keeps versions, asked when its store is opened and before each change that
means another thing where it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from lastgood.stores.s3_client import UNSUPPORTED, code_of, translated
from lastgood.stores.s3_errors import VersioningChanged, VersioningSuspended

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class BucketVersioning:
    """The versioning of a store's bucket. `outdated`: it was changed since, so the store has to be
    opened anew."""

    def __init__(self, client: S3Client, store: str, bucket: str) -> None:
        self._client = client
        self._store = store
        self._bucket = bucket
        self.outdated = False

    def read(self) -> bool:
        """Whether it is enabled. Raises VersioningSuspended: a delete would then destroy, or hide,
        depending on when an object was written."""
        with translated(self._store, "", "read the versioning", bucket=self._bucket):
            try:
                status = self._client.get_bucket_versioning(Bucket=self._bucket).get("Status")
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
                return False
        if status == "Suspended":
            self.outdated = True
            raise VersioningSuspended(store=self._store, key="", bucket=self._bucket)
        return status == "Enabled"

    def require(self, versioned: bool) -> None:
        """What hides, shows or deletes asks for it each time: where versioning was enabled since, a
        deletion frees nothing; where it was suspended, a delete marker destroys what it hides.
        Raises VersioningChanged, VersioningSuspended."""
        if self.read() != versioned:
            self.outdated = True
            raise VersioningChanged(store=self._store, key="", bucket=self._bucket)
