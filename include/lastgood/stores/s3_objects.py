"""Objects of an S3 bucket: listed with what hides them, deleted key by key, hidden and shown
again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby, pairwise, takewhile
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from lastgood.rules.shards import WHOLE, Shard
from lastgood.stores import s3_pages
from lastgood.stores.base import Key, KeyOutcome, Prefix, StoredObject, StoreError
from lastgood.stores.s3_client import MISSING, UNSUPPORTED, BulkForm, code_of, translated
from lastgood.stores.s3_deletes import S3Deletes
from lastgood.stores.s3_page import Entry, PageUnreadable
from lastgood.stores.s3_pages import ListingStuck

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

TAG = {"Key": "lastgood-state", "Value": "quarantined"}
TAGGERS = 16
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
        self._deletes = S3Deletes(
            client, store, bucket, prefix, versioned=versioned, form=form, by_key=self._by_key
        )

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
        """See `S3Deletes.delete`."""
        return self._deletes.delete(objects)

    def hide(self, prefix: Prefix) -> None:
        """Put a delete marker on every current object; without versions, a tag that tells
        people."""
        keys = [self._key(entry) for entry in self._current(prefix)]
        if not self._versioned:
            self._each(keys, self._tag)
            return
        self._deletes.require_all([(key, None) for key in keys], "quarantine")

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
            self._deletes.require_all(markers, "unquarantine")
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
        where: dict[str, Any] = {"store": self._store, "key": prefix, "bucket": self._bucket}
        with translated(**where, action="list"):
            try:
                yield
            except (ListingStuck, PageUnreadable) as error:
                raise StoreError(**where, reason=f"list: {error}") from error

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


def _require_order(before: str, keys: Sequence[str]) -> None:
    if keys == sorted(keys) and (not keys or keys[0] >= before):
        return
    for earlier, later in pairwise([before, *keys]):
        if later < earlier:
            raise ListingStuck(f"{later!r} came after {earlier!r}")
