"""Deleting objects of an S3 bucket: by version, many in a request, with an outcome for each key."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lastgood.rules.store_profile import Ability, Answer, FoundProfile
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyMissing,
    KeyOutcome,
    Outcome,
    Prefix,
    StoredObject,
    StoreError,
)
from lastgood.stores.s3_client import (
    MISSING,
    BulkForm,
    in_form,
    request_of,
    translated,
)
from lastgood.stores.s3_errors import PASSING
from lastgood.stores.s3_page import Entry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Named = tuple[Key, str | None]  # a key, and the version that is meant
T = TypeVar("T", StoredObject, Named)
BATCH_KEYS = 1000  # of one DeleteObjects
BATCHES_AT_ONCE = 4  # a server takes the keys of one request one after the other
BULK_PAUSES = (0.5, 2.0, 8.0)  # at most, before keys of a bulk delete are asked for again; seconds


class S3Deletes:
    """Deletions below one prefix of one bucket."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        bucket: str,
        prefix: str,
        *,
        versioned: bool,
        form: BulkForm | None,
        by_key: Callable[[Prefix], Iterator[list[Entry]]],
    ) -> None:
        """`form` None: every key is deleted by a request of its own. `by_key` lists the versions
        and markers of each key below a prefix."""
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._versioned = versioned
        self._form = form
        self._by_key = by_key

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        """Delete by version, 1,000 at a time and several times at once. Of all objects the versions
        go before the markers that hide them: what is refused, or left by a crash, must not show
        again. S3 does not tell GONE from ABSENT: it says GONE."""
        versions = [one for one in objects if not one.is_delete_marker]
        markers = [one for one in objects if one.is_delete_marker]
        found = self._in_batches(self._delete_versions, versions)
        if not markers:
            yield from (outcome for told in found for outcome in told)
            return
        outcomes = [outcome for told in found for outcome in told]
        refused = {one.key: one.reason for one in outcomes if one.outcome is Outcome.REFUSED}
        lone = [(one.key, one.version_id) for one in markers if one.key not in refused]
        outcomes += (one for told in self._in_batches(self._delete_batch, lone) for one in told)
        told = {(one.key, one.version_id): one for one in outcomes}
        for one in objects:
            reason = f"it hides what the store refused to delete: {refused.get(one.key)}"
            yield told.get((one.key, one.version_id)) or _refused(one, reason)

    def _in_batches(
        self, delete: Callable[[Sequence[T]], list[KeyOutcome]], items: Sequence[T]
    ) -> Iterator[list[KeyOutcome]]:
        """The outcomes of each batch, in order; no more than a few batches are under way. Where one
        fails, the others that were under way still count, and then its error is raised."""
        batches = _batches(items)
        if len(items) <= BATCH_KEYS:
            yield from map(delete, batches)
            return
        failed: StoreError | None = None
        with ThreadPoolExecutor(BATCHES_AT_ONCE) as threads:
            under_way = deque(
                (batch, threads.submit(delete, batch)) for batch in islice(batches, BATCHES_AT_ONCE)
            )
            while under_way:
                batch, answer = under_way.popleft()
                try:
                    yield answer.result()
                except StoreError as error:
                    failed = failed or error
                    yield [_refused(one, str(error)) for one in batch]
                if failed is None:
                    under_way.extend(
                        (more, threads.submit(delete, more)) for more in islice(batches, 1)
                    )
        if failed is not None:
            raise failed

    def _delete_versions(self, batch: Sequence[StoredObject]) -> list[KeyOutcome]:
        """And the markers over those that were hidden, which then hide nothing."""
        outcomes = self._delete_batch([(one.key, one.version_id) for one in batch])
        bare = self._markers_over([one for one in batch if one.hidden])
        left = self._delete_batch(bare)
        stuck = {one.key: one.reason for one in left if one.outcome is Outcome.REFUSED}
        return [
            replace(one, outcome=Outcome.REFUSED, reason=f"its delete marker: {stuck[one.key]}")
            if one.key in stuck
            else one
            for one in outcomes
        ]

    def require_all(self, named: Sequence[Named], action: str) -> None:
        """Delete these, also current objects, which then lie under a delete marker. AccessRefused
        for the first that was refused."""
        for batch in self._in_batches(self._delete_named, named):
            for outcome in batch:
                if outcome.outcome is Outcome.REFUSED:
                    raise AccessRefused(
                        store=self._store, key=outcome.key, action=action, reason=outcome.reason
                    )

    def _delete_batch(self, named: Sequence[Named]) -> list[KeyOutcome]:
        """Never a current object of a bucket with versions: that would only hide it."""
        if not self._versioned:
            return self._delete_named(named)
        reason = "this bucket keeps versions: name the one to delete"
        told = iter(self._delete_named([one for one in named if one[1] is not None]))
        return [
            next(told) if one[1] is not None else KeyOutcome(*one, Outcome.REFUSED, reason)
            for one in named
        ]

    def _delete_named(self, named: Sequence[Named]) -> list[KeyOutcome]:
        """Many in a request, or one by one what cannot go so."""
        together = self._form is not None
        plain = [one for one in named if together and _survives_xml(one[0])]
        outcomes = dict(self._request(plain)) if plain else {}
        refusal: str | None = None  # of everything: the other keys are not asked for, then
        for one in named:
            if one in outcomes:
                continue
            if refusal is None:
                try:
                    outcomes[one] = self._delete_one(*one)
                    continue
                except StoreError as error:
                    refusal = str(error)
            outcomes[one] = _refused(one, refusal)
        return [outcomes[one] for one in named]

    def _request(self, named: Sequence[Named]) -> Iterable[tuple[Named, KeyOutcome]]:
        """DeleteObjects. Its 200 may hold errors, of which some pass; a key it does not mention was
        not deleted."""
        left = list(named)
        for pause in (*BULK_PAUSES, None):
            told = list(self._request_once(left))
            left = [one for one, _, code in told if code in PASSING and pause is not None]
            yield from ((one, outcome) for one, outcome, _ in told if one not in set(left))
            if not left:
                return
            time.sleep((pause or 0) * random.random())

    def _request_once(
        self, named: Sequence[Named]
    ) -> Iterator[tuple[Named, KeyOutcome, str | None]]:
        """Each key's outcome, and the code of its error."""
        wanted: list[Any] = [
            {"Key": self._prefix + key, **({"VersionId": version} if version else {})}
            for key, version in named
        ]
        with translated(self._store, named[0][0], "delete"), in_form(self._form):
            answer: Any = self._client.delete_objects(
                Bucket=self._bucket, Delete={"Objects": wanted, "Quiet": False}
            )
        gone = {(one["Key"], one.get("VersionId")) for one in answer.get("Deleted", ())}
        gone |= {(key, None) for key, _ in gone}
        errors = {(one["Key"], one.get("VersionId")): one for one in answer.get("Errors", ())}
        for key, version in named:
            full = self._prefix + key
            error = errors.get((full, version)) or errors.get((full, None))
            outcome = _outcome(key, version, (full, version) in gone, error, request_of(answer))
            yield (key, version), outcome, (error or {}).get("Code")

    def _delete_one(self, key: Key, version: str | None) -> KeyOutcome:
        """Raises StoreError for what is not about this key alone."""
        named: dict[str, Any] = {"VersionId": version} if version else {}
        try:
            with translated(self._store, key, "delete", bucket=self._bucket):
                self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key, **named)
        except KeyMissing:
            return KeyOutcome(key, version, Outcome.ABSENT)
        except StoreError as error:
            if type(error) not in (AccessRefused, StoreError):
                raise
            return KeyOutcome(key, version, Outcome.REFUSED, str(error))
        return KeyOutcome(key, version, Outcome.GONE)

    def _markers_over(self, hidden: Sequence[StoredObject]) -> list[Named]:
        """The delete markers of these keys, wherever the keys' versions are gone: they hide
        nothing."""
        keys = {one.key for one in hidden}
        if not keys:
            return []
        shared = _shared_folder(keys)
        return [
            (self._key(entry), entry.version_id)
            for entries in self._by_key(shared)
            if self._key(entries[0]) in keys and all(entry.is_delete_marker for entry in entries)
            for entry in entries
        ]

    def _key(self, entry: Entry) -> Key:
        return Key(entry.key[len(self._prefix) :])


def _refused(one: StoredObject | Named, reason: str) -> KeyOutcome:
    key, version = (one.key, one.version_id) if isinstance(one, StoredObject) else one
    return KeyOutcome(key, version, Outcome.REFUSED, reason)


def _outcome(
    key: Key, version: str | None, gone: bool, error: dict[str, str] | None, request: str
) -> KeyOutcome:
    if error is not None and error.get("Code") in MISSING:
        return KeyOutcome(key, version, Outcome.ABSENT)
    if error is not None:
        reason = f"{error.get('Code')}: {error.get('Message')} (request {request})"
        return KeyOutcome(key, version, Outcome.REFUSED, reason)
    if not gone:
        reason = f"the store did not answer for it (request {request})"
        return KeyOutcome(key, version, Outcome.REFUSED, reason)
    return KeyOutcome(key, version, Outcome.GONE)


def bulk_form(found: FoundProfile) -> BulkForm | None:
    """How many keys may be deleted at once, as a probe found it; None: not at all."""
    md5, crc32 = found.finding(Ability.BULK_DELETE_MD5), found.finding(Ability.BULK_DELETE_CRC32)
    if md5.answer is Answer.YES:
        return BulkForm.MD5
    if crc32.answer is Answer.YES:
        return BulkForm.CRC32
    return None if md5.answer is crc32.answer is Answer.NO else BulkForm.BOTH


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH_KEYS):
        yield items[start : start + BATCH_KEYS]


def _survives_xml(key: str) -> bool:
    """Whether a key comes through an XML body unchanged; control characters do not."""
    return all(character >= " " and character not in "\x7f\ufffe\uffff" for character in key)


def _shared_folder(keys: Iterable[str]) -> Prefix:
    low, high = min(keys), max(keys)
    length = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return Prefix(low[:length])
