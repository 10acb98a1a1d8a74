"""Uploads of a store in a database: received in chunks, published by changing whose parts they are.

No lock is held while bytes come: a writer adds chunks to a part of its own, and only its end looks,
under the upload's lock, whether the upload still is. Completing or aborting an upload removes the
parts that are still being received, so a late writer's next chunk finds no part to belong to.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    PartInvalid,
    PendingUpload,
    Prefix,
    UploadGone,
    UploadId,
)
from lastgood.stores.parts import part_count, part_size, require_whole
from lastgood.stores.postgres_database import Connection, Database
from lastgood.stores.postgres_reader import CHUNK_BYTES

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_PENDING = """
    SELECT key, u.upload_id, initiated_at, coalesce(sum(p.size_bytes), 0)::bigint, count(p.part_id)
      FROM uploads u
      LEFT JOIN parts p ON p.upload_id = u.upload_id AND p.sha256 IS NOT NULL
     WHERE starts_with(key, %s)
     GROUP BY u.upload_id ORDER BY key, u.upload_id
"""


@dataclass(frozen=True, slots=True)
class _Begun:
    key: Key
    upload_id: UploadId
    size_bytes: int
    part_bytes: int


class PostgresUploads:
    """The pending uploads of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, key: Key, size_bytes: int, part_bytes: int) -> UploadId:
        """Begin an upload of `size_bytes` in parts of `part_bytes`."""
        upload_id = UploadId(uuid.uuid4().hex)
        with self._database.transaction(key, "begin an upload") as tx:
            tx.execute(
                "INSERT INTO uploads (upload_id, key, size_bytes, part_bytes)"
                " VALUES (%s, %s, %s, %s)",
                (upload_id, key, size_bytes, part_bytes),
            )
        return upload_id

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        """Receive one part, chunk by chunk; it counts once its last byte is stored."""
        with self._transaction(key, upload_id, "receive a part") as tx:
            begun = self._begun(tx, key, upload_id)
            expected = _expected_bytes(begun, number)
            if expected != size_bytes:
                reason = f"{size_bytes} bytes announced, it has {expected or 'no such part'}"
                raise self._invalid(key, number, reason)
            part_id = self._begin_part(tx, begun, number, size_bytes)
        try:
            sha256 = self._receive(begun, part_id, number, size_bytes, chunks)
        except BaseException:
            self._drop_part(begun, part_id)
            raise
        self._finish_part(begun, part_id, number, sha256)
        return Part(number, size_bytes, sha256=sha256)

    def _begin_part(self, tx: Connection, begun: _Begun, number: int, size_bytes: int) -> int:
        start = (number - 1) * begun.part_bytes
        row = tx.execute(
            "INSERT INTO parts (upload_id, number, start, size_bytes) VALUES (%s, %s, %s, %s)"
            " RETURNING part_id",
            (begun.upload_id, number, start, size_bytes),
        ).fetchone()
        assert row is not None
        part_id: int = row[0]
        return part_id

    def _receive(
        self,
        begun: _Begun,
        part_id: int,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> str:
        digest = hashlib.sha256()
        received = 0
        for index, chunk in enumerate(_of_equal_size(chunks)):
            received += len(chunk)
            if received > size_bytes:
                raise self._invalid(begun.key, number, f"more than {size_bytes} bytes came")
            digest.update(chunk)
            with self._transaction(begun.key, begun.upload_id, "receive a part") as tx:
                tx.execute("INSERT INTO chunks VALUES (%b, %b, %b)", (part_id, index, chunk))
        if received != size_bytes:
            raise self._invalid(begun.key, number, f"{received} of {size_bytes} bytes came")
        return digest.hexdigest()

    def _finish_part(self, begun: _Begun, part_id: int, number: int, sha256: str) -> None:
        with self._transaction(begun.key, begun.upload_id, "receive a part") as tx:
            self._begun(tx, begun.key, begun.upload_id, lock=True)
            tx.execute(
                "DELETE FROM parts WHERE upload_id = %s AND number = %s AND sha256 IS NOT NULL",
                (begun.upload_id, number),
            )
            tx.execute("UPDATE parts SET sha256 = %s WHERE part_id = %s", (sha256, part_id))

    def _drop_part(self, begun: _Begun, part_id: int) -> None:
        with self._database.transaction(begun.key, "drop a part") as tx:
            tx.execute("DELETE FROM parts WHERE part_id = %s AND sha256 IS NULL", (part_id,))

    def parts(self, key: Key, upload_id: UploadId) -> tuple[Part, ...]:
        """The finished parts, in order."""
        with self._transaction(key, upload_id, "list parts") as tx:
            return self._held(tx, self._begun(tx, key, upload_id))

    def _held(self, tx: Connection, begun: _Begun) -> tuple[Part, ...]:
        rows = tx.execute(
            "SELECT number, size_bytes, sha256 FROM parts"
            " WHERE upload_id = %s AND sha256 IS NOT NULL ORDER BY number",
            (begun.upload_id,),
        )
        return tuple(Part(number, size, sha256=sha256) for number, size, sha256 in rows)

    def complete(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> None:
        """Publish the object in one transaction."""
        with self._transaction(key, upload_id, "complete an upload") as tx:
            begun = self._begun(tx, key, upload_id, lock=True)
            count = part_count(begun.size_bytes, begun.part_bytes)
            require_whole(self._database.store, key, self._held(tx, begun), parts, count)
            object_id = new_object(tx, self._database.store, key, begun.size_bytes)
            tx.execute(
                "UPDATE parts SET object_id = %s, upload_id = NULL"
                " WHERE upload_id = %s AND sha256 IS NOT NULL",
                (object_id, upload_id),
            )
            tx.execute("DELETE FROM uploads WHERE upload_id = %s", (upload_id,))

    def abort(self, key: Key, upload_id: UploadId) -> Outcome:
        """Throw an upload away, however far it got; an object that it published stays."""
        if not _UPLOAD_ID.fullmatch(upload_id):
            return Outcome.ABSENT
        with self._database.transaction(key, "abort an upload") as tx:
            gone = tx.execute(
                "DELETE FROM uploads WHERE upload_id = %s AND key = %s", (upload_id, key)
            )
            return Outcome.GONE if gone.rowcount else Outcome.ABSENT

    def pending(self, prefix: Prefix) -> Iterator[PendingUpload]:
        """Every upload whose key begins with the prefix, in the order of keys."""
        with (
            self._database.transaction(prefix, "list uploads") as tx,
            tx.cursor("pending_uploads") as cursor,
        ):
            for key, upload_id, initiated_at, held, count in cursor.execute(_PENDING, (prefix,)):
                yield PendingUpload(Key(key), UploadId(upload_id.hex), held, count, initiated_at)

    def _begun(
        self, tx: Connection, key: Key, upload_id: UploadId, *, lock: bool = False
    ) -> _Begun:
        row = tx.execute(
            "SELECT size_bytes, part_bytes FROM uploads WHERE upload_id = %s AND key = %s"
            + (" FOR UPDATE" if lock else ""),
            (upload_id, key),
        ).fetchone()
        if row is None:
            raise self._gone(key, upload_id)
        return _Begun(key, upload_id, row[0], row[1])

    @contextmanager
    def _transaction(self, key: Key, upload_id: UploadId, action: str) -> Iterator[Connection]:
        if not _UPLOAD_ID.fullmatch(upload_id):
            raise self._gone(key, upload_id)
        with self._database.transaction(key, action) as tx:
            try:
                yield tx
            except psycopg.errors.ForeignKeyViolation as error:
                raise self._gone(key, upload_id) from error

    def _gone(self, key: Key, upload_id: UploadId) -> UploadGone:
        return UploadGone(store=self._database.store, upload=upload_id, key=key)

    def _invalid(self, key: Key, number: int, reason: str) -> PartInvalid:
        return PartInvalid(store=self._database.store, key=key, part=number, reason=reason)


def new_object(tx: Connection, store: str, key: Key, size_bytes: int) -> int:
    """The id of a new object without any parts yet. KeyExists where something is there."""
    row = tx.execute(
        "INSERT INTO objects (key, size_bytes) VALUES (%s, %s)"
        " ON CONFLICT (key, hidden) DO NOTHING RETURNING object_id",
        (key, size_bytes),
    ).fetchone()
    if row is None:
        raise KeyExists(store=store, key=key)
    object_id: int = row[0]
    return object_id


def _expected_bytes(begun: _Begun, number: int) -> int | None:
    if not 1 <= number <= part_count(begun.size_bytes, begun.part_bytes):
        return None
    return part_size(begun.size_bytes, begun.part_bytes, number)


def _of_equal_size(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Cut what comes into chunks of CHUNK_BYTES, the last one shorter."""
    waiting = bytearray()
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting[:CHUNK_BYTES])
            del waiting[:CHUNK_BYTES]
    if waiting:
        yield bytes(waiting)
