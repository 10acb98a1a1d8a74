"""Two inventories of one store against each other: new, gone and changed, by prefix, in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.flows.inventories.join import Join, engine, named
from lastgood.flows.inventories.kept import KeptManifest, Place

FOLDERS = 4  # of a key that name its prefix: checkpoints/<project>/<workload>/<stage>/
PREFIXES_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """What happened below a prefix: objects and bytes. `changed_bytes` is what the changed ones
    grew by; it may be negative."""

    prefix: str
    new: int
    new_bytes: int
    gone: int
    gone_bytes: int
    changed: int
    changed_bytes: int


@dataclass(frozen=True, slots=True)
class Compared:
    """All changes, the largest first, and their sums; parts of pending uploads count like
    objects."""

    store: str
    before: str
    after: str
    total: Change
    by_prefix: Sequence[Change]

    @property
    def grown_bytes(self) -> int:
        """By how many bytes the later one is larger."""
        return self.total.new_bytes - self.total.gone_bytes + self.total.changed_bytes


def compare(before: tuple[Place, KeptManifest], after: tuple[Place, KeptManifest]) -> Compared:
    """Compare two inventories of the same store. Raises InventoryUnusable."""
    with (
        before[0].opened(before[1]) as old_paths,
        after[0].opened(after[1]) as new_paths,
        engine() as db,
    ):
        for name, manifest, paths in (
            ("old", before[1], old_paths),
            ("new", after[1], new_paths),
        ):
            _prepare(db, name, manifest, paths)
        rows = db.execute(_DIFFERENCE).fetchall()
    changes = [Change(*row) for row in rows]
    total = (
        Change("", *(sum(column) for column in zip(*[row[1:] for row in rows], strict=True)))
        if rows
        else Change("", 0, 0, 0, 0, 0, 0)
    )
    return Compared(
        after[1].store, before[1].inventory, after[1].inventory, total, changes[:PREFIXES_LIMIT]
    )


def _prepare(db: Any, name: str, manifest: KeptManifest, paths: Mapping[str, Path]) -> None:
    """One row for each object, version and part: effective rows go into a table of their own, for
    what moved is told by a table that the next inventory replaces."""
    join = Join(db, manifest, paths)
    uploads = [paths[one.name] for one in manifest.of("uploads")]
    columns = "key, kind, version_id, upload_id, part_number, hidden, size"
    parts = f" UNION ALL SELECT {columns} FROM read_parquet({named(uploads)})" if uploads else ""
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM ({join.effective(columns)}){parts}"
    )


_DIFFERENCE = f"""
WITH both_sides AS (
  SELECT coalesce(b.key, a.key) AS key, a.size AS was, b.size AS now
    FROM old AS a FULL OUTER JOIN new AS b
      ON a.key = b.key AND a.version_id IS NOT DISTINCT FROM b.version_id
     AND a.upload_id IS NOT DISTINCT FROM b.upload_id
     AND a.part_number IS NOT DISTINCT FROM b.part_number
   WHERE a.size IS DISTINCT FROM b.size
), placed AS (
  SELECT *, array_to_string(string_split(decode(key, 'replace'), '/')[:{FOLDERS}], '/') AS prefix
    FROM both_sides
)
SELECT prefix, count(*) FILTER (WHERE was IS NULL),
       coalesce(sum(now) FILTER (WHERE was IS NULL), 0)::BIGINT,
       count(*) FILTER (WHERE now IS NULL),
       coalesce(sum(was) FILTER (WHERE now IS NULL), 0)::BIGINT,
       count(*) FILTER (WHERE was IS NOT NULL AND now IS NOT NULL),
       coalesce(sum(now - was) FILTER (WHERE was IS NOT NULL AND now IS NOT NULL), 0)::BIGINT
  FROM placed GROUP BY prefix
 ORDER BY coalesce(sum(abs(coalesce(now, 0) - coalesce(was, 0))), 0) DESC, prefix
"""
