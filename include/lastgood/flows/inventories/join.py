"""Joining an inventory with what the catalog expected, by DuckDB, in bounded memory.

The join goes shard by shard: both sides come in the order of keys, so a shard of the listing meets
only its own part of the catalog's, and memory is that of one shard, however many there are. What
agrees is only counted: what the catalog expects, less what disagrees. What does not agree comes out
in the order of keys, for `inventory_merge` to give each a line and a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from lastgood.catalog.reconciliation.inventory import ExpectedObject
from lastgood.flows.inventories.kept import KeptFile, KeptManifest
from lastgood.flows.inventories.rows import stored_object
from lastgood.rules.byte_equation import Line
from lastgood.stores.base import StoredObject

MEMORY = "1GiB"
_FETCH_ROWS = 4_096
_COLUMNS = "key, kind, size, allocated, is_foreign, device, inode"
_LINES = {"present": Line.COMMITTED, "quarantined": Line.QUARANTINED}


@dataclass(frozen=True, slots=True)
class Disagreeing:
    """One key whose listed rows and expected row are not simply the same."""

    key: str
    listed: list[StoredObject]
    expected: ExpectedObject | None


@dataclass(slots=True)
class Agreed:
    """(objects, bytes) that lie as the catalog expects them, by project and line."""

    objects: Counter[tuple[str, Line]] = field(default_factory=Counter)
    size_bytes: Counter[tuple[str, Line]] = field(default_factory=Counter)


@contextmanager
def engine(memory: str = MEMORY, threads: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in memory that spills beyond its limit into a temporary folder."""
    with TemporaryDirectory(prefix="lastgood-duckdb-") as spill, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{memory}'")
        connection.execute(f"SET temp_directory = '{spill}'")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET TimeZone = 'UTC'")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        yield connection


class Join:
    """One inventory's files, joined. `agreed` is whole once `disagreeing` has come to its end."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        manifest: KeptManifest,
        paths: Mapping[str, Path],
    ) -> None:
        self._db = connection
        self._manifest = manifest
        self._paths = paths
        self.agreed = Agreed()
        ranges = [(one.encode(), after_all(one)) for one in manifest.moving]
        connection.execute("CREATE OR REPLACE TEMP TABLE moving (low BLOB, high BLOB)")
        if ranges:
            connection.executemany("INSERT INTO moving VALUES (?, ?)", ranges)

    def disagreeing(self) -> Iterator[Disagreeing]:
        """The keys that need a look, ascending, but for those that were re-checked."""
        for file in self._manifest.of("listed"):
            yield from self._joined([file], self._expected_for(file), file, skip_moving=True)

    def rechecked(self) -> Iterator[Disagreeing]:
        """The same of what was looked at once more, ascending."""
        listed, expected = (
            self._manifest.of("rechecked"),
            self._manifest.of("rechecked-expected"),
        )
        if listed or expected:
            yield from self._joined(listed, expected, None, skip_moving=False)

    def effective(self, columns: str = _COLUMNS) -> str:
        """A query for the listed rows that count: what was re-checked as it was then."""
        base = self._source(self._manifest.of("listed"), _EMPTY_LISTED, None, skip_moving=True)
        again = self._source(self._manifest.of("rechecked"), _EMPTY_LISTED, None, skip_moving=False)
        return f"SELECT {columns} FROM ({base}) UNION ALL SELECT {columns} FROM ({again})"

    def in_flight(self) -> tuple[int, int]:
        """(objects, bytes) that came, went or changed size between the listing and the
        re-check."""
        if not self._manifest.moving or not self._manifest.of("listed"):
            return 0, 0
        source = named([self._paths[one.name] for one in self._manifest.of("listed")])
        again = self._source(self._manifest.of("rechecked"), _EMPTY_LISTED, None, skip_moving=False)
        row = self._db.execute(_IN_FLIGHT.format(listed=source, again=again)).fetchone()
        assert row is not None
        return row[0], row[1]

    def _expected_for(self, shard: KeptFile) -> list[KeptFile]:
        """The files of expected rows that may reach into a shard."""
        after = shard.after.encode()
        through = None if shard.through is None else shard.through.encode()
        return [
            one
            for one in self._manifest.of("expected")
            if bytes.fromhex(one.last) > after
            and (through is None or bytes.fromhex(one.first) <= through)
        ]

    def _joined(
        self,
        listed: Sequence[KeptFile],
        expected: Sequence[KeptFile],
        shard: KeptFile | None,
        *,
        skip_moving: bool,
    ) -> Iterator[Disagreeing]:
        wanted = self._source(expected, _EMPTY_EXPECTED, shard, skip_moving=skip_moving)
        found = self._source(listed, _EMPTY_LISTED, None, skip_moving=skip_moving)
        query = _JOIN.format(listed=found, expected=wanted)
        totals = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for project, state, objects, size_bytes in self._db.execute(
            f"SELECT project, state, count(*), sum(size)::BIGINT FROM ({wanted}) GROUP BY ALL"
        ).fetchall():
            totals[0][project, state] += objects
            totals[1][project, state] += size_bytes
        rows = self._rows(query, {"hides": self._manifest.hides})
        for key, group in groupby(rows, key=itemgetter("placed")):
            yield _disagreeing(key, list(group), totals)
        for (project, state), objects in totals[0].items():
            if objects:
                line = _LINES[state]
                self.agreed.objects[project, line] += objects
                self.agreed.size_bytes[project, line] += totals[1][project, state]

    def _source(
        self, files: Sequence[KeptFile], empty: str, shard: KeptFile | None, *, skip_moving: bool
    ) -> str:
        """A query for the rows of files: of a shard, and without what moves."""
        if not files:
            return empty
        source = f"SELECT r.* FROM read_parquet({self._named(files)}) AS r"
        conditions = []
        if skip_moving and self._manifest.moving:
            source += " ASOF LEFT JOIN moving AS m ON r.key >= m.low"
            conditions.append("(m.low IS NULL OR r.key >= m.high)")
        if shard is not None:
            conditions.append(f"r.key > {_blob(shard.after.encode())}")
            if shard.through is not None:
                conditions.append(f"r.key <= {_blob(shard.through.encode())}")
        return source + (f" WHERE {' AND '.join(conditions)}" if conditions else "")

    def _named(self, files: Sequence[KeptFile]) -> str:
        return named([self._paths[one.name] for one in files])

    def _rows(self, query: str, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        cursor = self._db.execute(query, parameters)
        names = [one[0] for one in cursor.description or ()]
        while rows := cursor.fetchmany(_FETCH_ROWS):
            for row in rows:
                yield dict(zip(names, row, strict=True))


def named(paths: Sequence[Path]) -> str:
    """A list of files as DuckDB reads it."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def after_all(prefix: str) -> bytes:
    """The first bytes after every key that begins with a prefix, which ends with `/`."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])


def _blob(raw: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in raw) + "'::BLOB"


def _disagreeing(
    key: bytes,
    rows: list[dict[str, Any]],
    totals: tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]],
) -> Disagreeing:
    text = key.decode("utf-8", "surrogatepass")
    first = rows[0]
    expected = None
    if first["wanted_size"] is not None:
        expected = ExpectedObject(
            text,
            first["wanted_size"],
            first["wanted_version"],
            first["state"],
            first["project"],
            first["settled"],
        )
        totals[0][expected.project, expected.copy_state] -= 1
        totals[1][expected.project, expected.copy_state] -= expected.size_bytes
    listed = [stored_object(row) for row in rows if row["key"] is not None]
    return Disagreeing(text, listed, expected)


_IN_FLIGHT = """
SELECT count(*), coalesce(sum(abs(coalesce(a.size, 0) - coalesce(b.size, 0))), 0)::BIGINT
  FROM (SELECT r.* FROM read_parquet({listed}) AS r
          ASOF JOIN moving AS m ON r.key >= m.low WHERE r.key < m.high) AS a
  FULL OUTER JOIN ({again}) AS b
    ON a.key = b.key AND a.version_id IS NOT DISTINCT FROM b.version_id AND a.hidden = b.hidden
 WHERE a.size IS DISTINCT FROM b.size
"""
_EMPTY_LISTED = (
    "SELECT NULL::BLOB AS key, NULL::VARCHAR AS kind, 0::BIGINT AS size, 0::BIGINT AS allocated,"
    " false AS alone, false AS hidden, false AS is_latest, NULL::VARCHAR AS version_id,"
    " NULL::VARCHAR AS is_foreign, NULL::TIMESTAMPTZ AS modified, NULL::BIGINT AS device,"
    " NULL::BIGINT AS inode, NULL::VARCHAR AS upload_id, NULL::INTEGER AS part_number WHERE false"
)
_EMPTY_EXPECTED = (
    "SELECT NULL::BLOB AS key, 0::BIGINT AS size, NULL::VARCHAR AS version_id,"
    " NULL::VARCHAR AS state, NULL::VARCHAR AS project, false AS settled WHERE false"
)
# What agrees is told by the same rule as in `inventory_merge`: one row alone, a whole regular
# object, in the version and on the side of quarantine that the copy's state asks for.
_JOIN = """
SELECT coalesce(l.key, e.key) AS placed, l.key, l.kind, l.size, l.allocated, l.hidden, l.is_latest,
       l.version_id, l.is_foreign, e.size AS wanted_size, e.version_id AS wanted_version, e.state,
       e.project, e.settled
  FROM ({listed}) AS l FULL OUTER JOIN ({expected}) AS e ON l.key = e.key
 WHERE (l.size = e.size AND l.alone AND e.settled AND l.kind = 'object' AND l.is_foreign IS NULL
        AND (e.version_id IS NULL OR e.version_id = l.version_id)
        AND (e.state = 'present' AND NOT l.hidden
             OR e.state = 'quarantined' AND l.hidden = $hides)) IS NOT TRUE
 ORDER BY placed, l.is_latest DESC, l.hidden, l.modified DESC NULLS LAST
"""
