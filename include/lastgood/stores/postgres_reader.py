"""A stream over a range of an object that lies in chunks of a database."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from lastgood.stores.base import Key, KeyMissing
from lastgood.stores.postgres_database import Database

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 1 << 20

_FIND = "SELECT object_id, size_bytes FROM objects WHERE key = %s AND NOT hidden"
_CHUNK = """
    SELECT p.start + c.number::bigint * %(chunk)s, c.bytes
      FROM parts p JOIN chunks c USING (part_id)
     WHERE part_id = (SELECT part_id FROM parts
                       WHERE object_id = %(object)s AND start <= %(at)s AND size_bytes > 0
                       ORDER BY start DESC LIMIT 1)
       AND c.number = (%(at)s - p.start) / %(chunk)s
"""


class ChunkReader(io.RawIOBase):
    """Reads from `start` up to `size_bytes` (None: to the end). It holds one chunk, and no
    connection between reads; an object that is deleted meanwhile ends it with KeyMissing."""

    def __init__(self, database: Database, key: Key, start: int, size_bytes: int | None) -> None:
        self._database = database
        self._key = key
        self._at = start
        self._chunk_at = 0
        self._chunk = memoryview(b"")
        with database.transaction(key, "read") as tx:
            found = tx.execute(_FIND, (key,)).fetchone()
        if found is None:
            raise KeyMissing(store=database.store, key=key)
        self._object_id: int = found[0]
        whole: int = found[1]
        self._end = whole if size_bytes is None else min(whole, start + size_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and self._at < self._end:
            piece = self._piece()[: min(len(view) - filled, self._end - self._at)]
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._at += len(piece)
        return filled

    def _piece(self) -> memoryview:
        if not self._chunk_at <= self._at < self._chunk_at + len(self._chunk):
            self._fetch()
        return self._chunk[self._at - self._chunk_at :]

    def _fetch(self) -> None:
        wanted = {"object": self._object_id, "at": self._at, "chunk": CHUNK_BYTES}
        with (
            self._database.transaction(self._key, "read") as tx,
            tx.cursor(binary=True) as cursor,
        ):
            found = cursor.execute(_CHUNK, wanted).fetchone()
        if found is None:
            raise KeyMissing(store=self._database.store, key=self._key)
        self._chunk_at, self._chunk = found[0], memoryview(found[1])
