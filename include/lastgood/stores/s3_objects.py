"""Objects of an S3 bucket: listed with what hides them, deleted key by key, hidden and shown
again."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby, pairwise, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from lastgood.rules.shards import WHOLE, Shard
from lastgood.rules.store_profile import Ability, Answer, FoundProfile
from lastgood.stores import s3_pages
from lastgood.stores.base import (
    AccessRefused,
    Key,
    KeyOutcome,
    Outcome,
    Prefix,
    StoredObject,
    StoreError,
)
from lastgood.stores.s3_client import (
    MISSING,
    UNSUPPORTED,
    BulkForm,
    code_of,
    described,
    in_form,
    request_of,
    translated,
)
from lastgood.stores.s3_errors import PASSING
from lastgood.stores.s3_page import Entry, PageUnreadable
from lastgood.stores.s3_pages import ListingStuck

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
BATCH_KEYS = 1000  # of one DeleteObjects
TAG = {"Key": "lastgood-state", "Value": "quarantined"}
TAGGERS = 16
BULK_PAUSES = (0.5, 2.0, 8.0)  # at most, before keys of a bulk delete are asked for again; seconds
ROUNDS = 10  # of looking for delete markers: several may lie on one object


class S3Objects:
    """The objects below one prefix of one bucket."""

    def __init__(
        self,
        client: S3Client,
        store: str,
        bucket: str,
        prefix: str,
        *,
        versioned: bool,
        form: BulkForm | None = BulkForm.BOTH,
    ) -> None:
        """`form` None: every key is deleted by a request of its own."""
        self._client = client
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._versioned = versioned
        self._form = form

    def first(self, key: Key) -> StoredObject | None:
        """The oldest version of a key since its latest delete marker: what counts where a later
        write cannot be refused. None under a marker."""
        full = self._prefix + key
        oldest = None
        with translated(self._store, key, "list the versions"):
            entries = s3_pages.versions(self._client, self._bucket, full)
            of_key = list(takewhile(lambda entry: entry.key == full, entries))
        for entry in sorted(of_key, key=lambda entry: not entry.is_latest):
            if entry.is_delete_marker:
                break
            oldest = entry
        return None if oldest is None else self._stored(oldest)

    def listed(
        self, prefix: Prefix, *, versions: bool, shard: Shard = WHOLE
    ) -> Iterator[StoredObject]:
        """What lies below the prefix and in the shard; an object under a delete marker is hidden.
        With `versions`, also what is older, and the markers themselves."""
        if not self._versioned:
            yield from self._plain(prefix, shard)
            return
        for entries in self._by_key(prefix, shard):
            hidden = entries[0].is_delete_marker
            newest = next((entry for entry in entries if not entry.is_delete_marker), None)
            for entry in entries:
                if entry is newest:
                    yield self._stored(entry, hidden=hidden, is_latest=True)
                elif versions:
                    yield self._stored(entry)

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        """Delete by version, 1,000 at a time. S3 does not tell GONE from ABSENT: it says GONE."""
        for batch in _batches(objects):
            told = self._delete_together(batch)
            yield from (told[one.key, one.version_id] for one in batch)

    def _delete_together(
        self, batch: Sequence[StoredObject]
    ) -> dict[tuple[Key, str | None], KeyOutcome]:
        """Versions first, then the markers that hide them: what is refused must not show again."""
        named = [(one.key, one.version_id) for one in batch if not one.is_delete_marker]
        told = dict(zip(named, self._delete_batch(named), strict=True))
        refused = {key for (key, _), one in told.items() if one.outcome is Outcome.REFUSED}
        markers = [(one.key, one.version_id) for one in batch if one.is_delete_marker]
        for key, version in markers:
            reason = "it hides a version that the store refused to delete"
            told[key, version] = KeyOutcome(key, version, Outcome.REFUSED, reason)
        markers = [marker for marker in markers if marker[0] not in refused]
        told.update(zip(markers, self._delete_batch(markers), strict=True))
        bare = self._markers_over([one for one in batch if one.hidden])
        left = zip(bare, self._delete_batch(bare), strict=True)
        stuck = {key: one.reason for (key, _), one in left if one.outcome is Outcome.REFUSED}
        for key, version in named:
            if key in stuck:
                reason = f"its delete marker: {stuck[key]}"
                told[key, version] = KeyOutcome(key, version, Outcome.REFUSED, reason)
        return told

    def hide(self, prefix: Prefix) -> None:
        """Put a delete marker on every current object; without versions, a tag that tells
        people."""
        keys = [self._key(entry) for entry in self._current(prefix)]
        if not self._versioned:
            self._each(keys, self._tag)
            return
        for batch in _batches(keys):
            self._require_gone(self._request([(key, None) for key in batch]), "quarantine")

    def show(self, prefix: Prefix) -> None:
        """Undo `hide`."""
        if not self._versioned:
            self._each([self._key(entry) for entry in self._current(prefix)], self._untag)
            return
        for _ in range(ROUNDS):
            markers = [
                (self._key(entries[0]), entries[0].version_id)
                for entries in self._by_key(prefix)
                if entries[0].is_delete_marker and not all(e.is_delete_marker for e in entries)
            ]
            if not markers:
                return
            for batch in _batches(markers):
                self._require_gone(self._request(batch), "unquarantine")
        raise StoreError(store=self._store, key=prefix, reason="delete markers come back")

    def _plain(self, prefix: Prefix, shard: Shard) -> Iterator[StoredObject]:
        """As `_current`, page by page: what is done for every key is what a listing costs."""
        full, cut = self._prefix + prefix, len(self._prefix)
        before = ""
        with self._listing(prefix):
            pages = s3_pages.current_pages(self._client, self._bucket, full, self._start(shard))
            for page in pages:
                keys = [Key(entry.key[cut:]) for entry in page]
                _require_order(before, keys)
                before = keys[-1] if keys else before
                # A server that begins before the shard's first key is not believed.
                low = bisect_right(keys, shard.after) if shard.after else 0
                high = len(keys) if shard.through is None else bisect_right(keys, shard.through)
                yield from (
                    # By position: key, size, ..., modified_at, ..., etag.
                    StoredObject(
                        key, one[1], None, None, True, False, False, one[5], None, None, one[6]
                    )
                    for key, one in zip(keys[low:high], page[low:high], strict=True)
                )
                if high < len(keys):
                    return

    def _current(self, prefix: Prefix, shard: Shard = WHOLE) -> Iterator[Entry]:
        entries = s3_pages.current(
            self._client, self._bucket, self._prefix + prefix, self._start(shard)
        )
        yield from self._ordered(prefix, self._up_to(shard, entries))

    def _by_key(self, prefix: Prefix, shard: Shard = WHOLE) -> Iterator[list[Entry]]:
        """The versions and markers of each key, the latest first."""
        entries = s3_pages.versions(
            self._client, self._bucket, self._prefix + prefix, self._start(shard)
        )
        ordered = self._ordered(prefix, self._up_to(shard, entries))
        for _, group in groupby(ordered, key=lambda entry: entry.key):
            yield sorted(group, key=lambda entry: not entry.is_latest)

    def _start(self, shard: Shard) -> str:
        return self._prefix + shard.after if shard.after else ""

    def _up_to(self, shard: Shard, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The entries of the shard; a server that begins before its first key is not believed."""
        for entry in entries:
            key = entry.key[len(self._prefix) :]
            if shard.through is not None and key > shard.through:
                return
            if key > shard.after or not shard.after:
                yield entry

    def _ordered(self, prefix: Prefix, entries: Iterator[Entry]) -> Iterator[Entry]:
        before = ""
        with self._listing(prefix):
            for entry in entries:
                if entry.key < before:
                    raise ListingStuck(f"{entry.key!r} came after {before!r}")
                before = entry.key
                yield entry

    @contextmanager
    def _listing(self, prefix: Prefix) -> Iterator[None]:
        with translated(self._store, prefix, "list"):
            try:
                yield
            except (ListingStuck, PageUnreadable) as error:
                raise StoreError(store=self._store, key=prefix, reason=f"list: {error}") from error

    def _delete_batch(self, named: Sequence[tuple[Key, str | None]]) -> list[KeyOutcome]:
        unnamed = {one for one in named if self._versioned and one[1] is None}
        together = self._form is not None
        plain = [one for one in named if one not in unnamed and together and _survives_xml(one[0])]
        outcomes = dict(self._request(plain)) if plain else {}
        for one in named:
            if one in unnamed:
                reason = "this bucket keeps versions: name the one to delete"
                outcomes[one] = KeyOutcome(*one, Outcome.REFUSED, reason)
            elif one not in outcomes:
                outcomes[one] = self._delete_one(*one)
        return [outcomes[one] for one in named]

    def _request(
        self, named: Sequence[tuple[Key, str | None]]
    ) -> Iterable[tuple[tuple[Key, str | None], KeyOutcome]]:
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
        self, named: Sequence[tuple[Key, str | None]]
    ) -> Iterator[tuple[tuple[Key, str | None], KeyOutcome, str | None]]:
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
        named: dict[str, Any] = {"VersionId": version} if version else {}
        with translated(self._store, key, "delete"):
            try:
                self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key, **named)
            except ClientError as error:
                if code_of(error) in MISSING:
                    return KeyOutcome(key, version, Outcome.ABSENT)
                return KeyOutcome(key, version, Outcome.REFUSED, described(error))
        return KeyOutcome(key, version, Outcome.GONE)

    def _markers_over(self, hidden: Sequence[StoredObject]) -> list[tuple[Key, str | None]]:
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

    def _require_gone(
        self, outcomes: Iterable[tuple[tuple[Key, str | None], KeyOutcome]], action: str
    ) -> None:
        for _, outcome in outcomes:
            if outcome.outcome is Outcome.REFUSED:
                raise AccessRefused(
                    store=self._store, key=outcome.key, action=action, reason=outcome.reason
                )

    def _each(self, keys: Sequence[Key], change: Any) -> None:
        with ThreadPoolExecutor(TAGGERS) as pool:
            for _ in pool.map(change, keys):
                pass

    def _tag(self, key: Key) -> None:
        self._change_tags(key, lambda others: [*others, TAG])

    def _untag(self, key: Key) -> None:
        self._change_tags(key, lambda others: others)

    def _change_tags(self, key: Key, change: Any) -> None:
        where: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + key}
        with translated(self._store, key, "tag"):
            try:
                tags = self._client.get_object_tagging(**where)["TagSet"]
                wanted = change([tag for tag in tags if tag["Key"] != TAG["Key"]])
                if wanted and tags != wanted:
                    self._client.put_object_tagging(**where, Tagging={"TagSet": wanted})
                elif tags != wanted:  # an empty set is refused by some servers
                    self._client.delete_object_tagging(**where)
            except ClientError as error:
                # A server without tags hides nothing either way; a vanished object needs no tag.
                if code_of(error) not in UNSUPPORTED | MISSING:
                    raise

    def _key(self, entry: Entry) -> Key:
        return Key(entry.key[len(self._prefix) :])

    def _stored(
        self, entry: Entry, *, hidden: bool = False, is_latest: bool | None = None
    ) -> StoredObject:
        return StoredObject(
            self._key(entry),
            entry.size_bytes,
            version_id=entry.version_id if self._versioned else None,
            is_latest=entry.is_latest if is_latest is None else is_latest,
            is_delete_marker=entry.is_delete_marker,
            hidden=hidden,
            modified_at=entry.modified_at,
            etag=entry.etag,
        )


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


def _require_order(before: str, keys: Sequence[str]) -> None:
    if keys == sorted(keys) and (not keys or keys[0] >= before):
        return
    for earlier, later in pairwise([before, *keys]):
        if later < earlier:
            raise ListingStuck(f"{later!r} came after {earlier!r}")


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
