"""Object Lock: which versions a retention or a legal hold keeps. What cannot be seen is locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.stores.base import Key, Lock, StoredObject
from lastgood.stores.s3_client import (
    MISSING,
    REFUSED,
    UNSUPPORTED,
    code_of,
    described,
    translated,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NO_LOCK = frozenset(
    {"NoSuchObjectLockConfiguration", "ObjectLockConfigurationNotFoundError", "InvalidRequest"}
)
ASKERS = 16


class S3Locks:
    """The locks of one bucket, below one prefix."""

    def __init__(self, client: S3Client, store: str, bucket: str, prefix: str) -> None:
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix

    def possible(self) -> bool:
        """Whether any version may be locked: the bucket has Object Lock, or will not say."""
        with translated(self._store, "", "read the Object Lock", bucket=self._bucket):
            try:
                found = self._client.get_object_lock_configuration(Bucket=self._bucket)
            except ClientError as error:
                if code_of(error) in REFUSED:
                    return True
                if code_of(error) in NO_LOCK | UNSUPPORTED | MISSING:
                    return False
                raise
        return found["ObjectLockConfiguration"].get("ObjectLockEnabled") == "Enabled"

    def locked(self, objects: Sequence[StoredObject]) -> Mapping[tuple[Key, str | None], Lock]:
        """Those of these versions that are locked, or may be, by key and version, and why."""
        versions = [one for one in objects if not one.is_delete_marker]
        with ThreadPoolExecutor(ASKERS) as threads:
            locks = threads.map(self._lock, versions)
            return {
                (one.key, one.version_id): lock
                for one, lock in zip(versions, locks, strict=True)
                if lock is not None
            }

    def _lock(self, one: StoredObject) -> Lock | None:
        where: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + one.key}
        if one.version_id is not None:
            where["VersionId"] = one.version_id
        return self._held(one.key, where) or self._retained(one.key, where)

    def _held(self, key: Key, where: dict[str, Any]) -> Lock | None:
        with translated(self._store, key, "ask for a legal hold"):
            try:
                hold = self._client.get_object_legal_hold(**where).get("LegalHold", {})
            except ClientError as error:
                return _unseen(error, "its legal hold")
        return Lock("under legal hold") if hold.get("Status") == "ON" else None

    def _retained(self, key: Key, where: dict[str, Any]) -> Lock | None:
        """By the store's clock: what has run out still answers, and the deletion itself is then
        allowed; so the store is believed, and a version that it refuses stays."""
        with translated(self._store, key, "ask for a retention"):
            try:
                answer: Any = self._client.get_object_retention(**where)
            except ClientError as error:
                return _unseen(error, "its retention")
        until = answer.get("Retention", {}).get("RetainUntilDate")
        now = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        return None if until is None else _while_it_lasts(until, now)


def _while_it_lasts(until: datetime, now: str | None) -> Lock | None:
    if now is not None and until <= parsedate_to_datetime(now):
        return None
    return Lock(f"retained until {until.isoformat()}", until)


def _unseen(error: ClientError, what: str) -> Lock | None:
    """None where there is no lock; a reason where these credentials may not see it."""
    if code_of(error) in NO_LOCK | MISSING:
        return None
    if code_of(error) in REFUSED | UNSUPPORTED:
        reason = f"{what} cannot be seen ({described(error)}), so it counts as locked"
        return Lock(reason, seen=False)
    raise error
