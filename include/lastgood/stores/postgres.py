"""A schema of a PostgreSQL database as a store: for small jobs, and where there is no object store.

Jobs reach it through the object endpoint. A deletion leaves dead rows, whose room is free for new
bytes once the server has vacuumed them; and it writes a little to the server's log of changes, so
whoever runs the server keeps room for that.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import BinaryIO, cast

from lastgood.stores.attestations import whole_sha256
from lastgood.stores.base import (
    EVERYTHING,
    Key,
    KeyExists,
    KeyMissing,
    KeyOutcome,
    Listing,
    Lock,
    Outcome,
    Part,
    PendingUpload,
    Prefix,
    SignedRequest,
    StoredObject,
    StoreError,
    StoreProfile,
    UploadId,
    Usage,
)
from lastgood.stores.keys import path_of, prefix_path_of
from lastgood.stores.listing import StreamedListing
from lastgood.stores.parts import part_bytes_for
from lastgood.stores.postgres_database import Connection, Database
from lastgood.stores.postgres_reader import CHUNK_BYTES, ChunkReader
from lastgood.stores.postgres_uploads import PostgresUploads, new_object

_LIST = """
    SELECT key, size_bytes, hidden, modified_at FROM objects
     WHERE starts_with(key, %s) ORDER BY key, hidden
"""
_HELD = """
    SELECT (SELECT coalesce(sum(size_bytes), 0) FROM objects WHERE starts_with(key, %(prefix)s)),
           (SELECT coalesce(sum(p.size_bytes), 0) FROM parts p JOIN uploads u USING (upload_id)
             WHERE p.sha256 IS NOT NULL AND starts_with(u.key, %(prefix)s)),
           (SELECT coalesce(sum(octet_length(c.bytes)), 0)
              FROM chunks c JOIN parts p USING (part_id) JOIN uploads u USING (upload_id)
             WHERE p.sha256 IS NULL AND starts_with(u.key, %(prefix)s))
"""
_ALLOCATED = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
"""


class PostgresStore:
    """See `base.Store` for what each method promises."""

    def __init__(self, name: str, dsn: str, schema: str) -> None:
        """`dsn` is a libpq connection string; `create_tables` has made the tables in `schema`."""
        self.name = name
        self.profile = StoreProfile(
            kind="postgres",
            presigns=False,
            direct=False,
            attests_sha256=True,
            versioned=False,
            hides=True,
        )
        self._database = Database(name, dsn, schema)
        self._uploads = PostgresUploads(self._database)

    def close(self) -> None:
        """End the connections to the database."""
        self._database.close()

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        path_of(self.name, key)
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            with self._database.transaction(key, "write") as tx:
                self._insert(tx, key, data, sha256)
        except KeyExists:
            there = self.stat(key)
            if there is None or there.sha256 != sha256:
                raise
            return there
        return self._stat_or_missing(key)

    def _insert(self, tx: Connection, key: Key, data: bytes, sha256: str) -> None:
        object_id = new_object(tx, self.name, key, len(data))
        row = tx.execute(
            "INSERT INTO parts (object_id, number, start, size_bytes, sha256)"
            " VALUES (%s, 1, 0, %s, %s) RETURNING part_id",
            (object_id, len(data), sha256),
        ).fetchone()
        assert row is not None
        for index, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            chunk = data[start : start + CHUNK_BYTES]
            tx.execute("INSERT INTO chunks VALUES (%b, %b, %b)", (row[0], index, chunk))

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        with self.open(key, size_bytes=limit_bytes + 1) as stream:
            data = stream.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise StoreError(store=self.name, key=key, reason=f"larger than {limit_bytes} bytes")
        return data

    def stat(self, key: Key) -> StoredObject | None:
        path_of(self.name, key)
        with self._database.transaction(key, "stat") as tx:
            row = tx.execute(
                "SELECT size_bytes, modified_at FROM objects WHERE key = %s AND NOT hidden", (key,)
            ).fetchone()
            if row is None:
                return None
            return StoredObject(
                key,
                row[0],
                modified_at=row[1],
                sha256=whole_sha256(self._parts_of(tx, key, at_most=2)),
            )

    def attested_parts(self, key: Key) -> Sequence[Part] | None:
        path_of(self.name, key)
        with self._database.transaction(key, "stat") as tx:
            return self._parts_of(tx, key) or None

    def _parts_of(
        self, tx: Connection, key: Key, *, at_most: int | None = None
    ) -> tuple[Part, ...]:
        rows = tx.execute(
            "SELECT p.number, p.size_bytes, p.sha256 FROM parts p JOIN objects o USING (object_id)"
            " WHERE o.key = %s AND NOT o.hidden ORDER BY p.start, p.number LIMIT %s",
            (key, at_most),
        )
        return tuple(Part(number, size, sha256=sha256) for number, size, sha256 in rows)

    @contextmanager
    def open(
        self,
        key: Key,
        *,
        start: int = 0,
        size_bytes: int | None = None,
        version_id: str | None = None,
    ) -> Iterator[BinaryIO]:
        path_of(self.name, key)
        if version_id is not None:
            raise KeyMissing(store=self.name, key=f"{key} (version {version_id})")
        reader = ChunkReader(self._database, key, start, size_bytes)
        yield cast(BinaryIO, io.BufferedReader(reader, CHUNK_BYTES))

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        for one in objects:
            yield self._delete_one(one)

    def _delete_one(self, one: StoredObject) -> KeyOutcome:
        try:
            with self._database.transaction(one.key, "delete") as tx:
                gone = tx.execute(
                    "DELETE FROM objects WHERE key = %s AND hidden = %s", (one.key, one.hidden)
                )
                outcome = Outcome.GONE if gone.rowcount else Outcome.ABSENT
        except StoreError as error:
            return KeyOutcome(one.key, one.version_id, Outcome.REFUSED, str(error))
        return KeyOutcome(one.key, one.version_id, outcome)

    def locked(self, objects: Sequence[StoredObject]) -> Mapping[tuple[Key, str | None], Lock]:
        return {}

    def prune(self, prefix: Prefix) -> None:
        """There are no folders."""

    def list(self, prefix: Prefix, *, versions: bool = False) -> Listing[StoredObject]:
        prefix_path_of(self.name, prefix)
        return StreamedListing(lambda: self._listed(prefix))

    def _listed(self, prefix: Prefix) -> Iterator[StoredObject]:
        with (
            self._database.transaction(prefix, "list") as tx,
            tx.cursor("listed_objects") as cursor,
        ):
            for key, size_bytes, hidden, modified_at in cursor.execute(_LIST, (prefix,)):
                yield _listed(key, size_bytes, hidden, modified_at)

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        self._move(prefix, hidden=True, action="quarantine")

    def unquarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        self._move(prefix, hidden=False, action="unquarantine")

    def _move(self, prefix: Prefix, *, hidden: bool, action: str) -> None:
        if not prefix_path_of(self.name, prefix):
            raise StoreError(store=self.name, key=prefix, reason="this is the whole store")
        with self._database.transaction(prefix, action) as tx:
            tx.execute(
                "UPDATE objects SET hidden = %(hidden)s"
                " WHERE starts_with(key, %(prefix)s) AND hidden <> %(hidden)s",
                {"hidden": hidden, "prefix": prefix},
            )

    def protect(self, prefix: Prefix) -> None:
        """Nothing to do: nobody but this class changes an object, and it never replaces one."""

    def usage(self, prefix: Prefix = EVERYTHING) -> Usage:
        prefix_path_of(self.name, prefix)
        with self._database.transaction(prefix, "account") as tx:
            row = tx.execute(_HELD, {"prefix": prefix}).fetchone()
            allocated = tx.execute(_ALLOCATED).fetchone() if prefix == "" else None
        assert row is not None
        published, held, unfinished = (int(size) for size in row)
        return Usage(
            published + held + unfinished,
            None,
            how="rows",
            allocated_bytes=int(allocated[0]) if allocated else None,
            causes={"unfinished-parts": unfinished} if unfinished else {},
        )

    def part_bytes(self, size_bytes: int) -> int:
        return part_bytes_for(size_bytes)

    def create_upload(self, key: Key, size_bytes: int) -> UploadId:
        path_of(self.name, key)
        return self._uploads.create(key, size_bytes, self.part_bytes(size_bytes))

    def presign_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        expires_seconds: int,
        *,
        sha256: str | None = None,
    ) -> SignedRequest:
        raise StoreError(store=self.name, key=key, reason="a database has no presigned URLs")

    def presign_read(self, key: Key, expires_seconds: int, *, version_id: str | None = None) -> str:
        raise StoreError(store=self.name, key=key, reason="a database has no presigned URLs")

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        return self._uploads.write_part(key, upload_id, number, size_bytes, chunks)

    def parts(self, key: Key, upload_id: UploadId) -> Sequence[Part]:
        return self._uploads.parts(key, upload_id)

    def complete_upload(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> StoredObject:
        self._uploads.complete(key, upload_id, parts)
        return self._stat_or_missing(key)

    def abort_upload(self, key: Key, upload_id: UploadId) -> Outcome:
        return self._uploads.abort(key, upload_id)

    def uploads(self, prefix: Prefix) -> Listing[PendingUpload]:
        prefix_path_of(self.name, prefix)
        return StreamedListing(lambda: self._uploads.pending(prefix))

    def direct_path(self, prefix: Prefix) -> str:
        raise StoreError(store=self.name, key=prefix, reason="jobs do not share a database's files")

    def local_path(self, prefix: Prefix) -> str | None:
        return None

    def _stat_or_missing(self, key: Key) -> StoredObject:
        found = self.stat(key)
        if found is None:
            raise KeyMissing(store=self.name, key=key)
        return found


def _listed(key: str, size_bytes: int, hidden: bool, modified_at: datetime) -> StoredObject:
    return StoredObject(Key(key), size_bytes, hidden=hidden, modified_at=modified_at)
