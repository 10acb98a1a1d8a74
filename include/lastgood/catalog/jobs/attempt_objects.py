"""The objects of an attempt: as they were declared, where each is uploaded to, and what was found
when it was verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.attempts import Attempt, NewAttempt
from lastgood.errors import NotFound


@dataclass(frozen=True, slots=True)
class DeclaredObject:
    """An object as it was announced; `sha256` where it was known already."""

    path: str
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class AttemptObject:
    """An object of an attempt as it stands."""

    path: str
    size_bytes: int
    sha256: str | None
    part_bytes: int | None
    upload_id: str | None
    verified_at: datetime | None
    version_id: str | None
    problem: Mapping[str, Any] | None


_SELECT = """
    SELECT path, size_bytes, sha256, part_bytes, upload_id, verified_at, version_id, problem
      FROM attempt_objects WHERE attempt_id = %s AND project = %s
"""


def declare(
    tx: Transaction,
    new: NewAttempt,
    objects: Sequence[DeclaredObject],
    part_bytes: Sequence[int | None],
) -> None:
    """Record the objects of a new attempt with the part size of each."""
    with tx.copy(
        "COPY attempt_objects (attempt_id, path, project, size_bytes, sha256, part_bytes)"
        " FROM STDIN"
    ) as rows:
        for item, each_bytes in zip(objects, part_bytes, strict=True):
            rows.write_row(
                (new.attempt_id, item.path, new.project, item.size_bytes, item.sha256, each_bytes)
            )


def of(tx: Transaction, attempt: Attempt) -> list[AttemptObject]:
    """Every object of an attempt, by path."""
    rows = tx.execute(_SELECT + ' ORDER BY path COLLATE "C"', (attempt.attempt_id, attempt.project))
    return [AttemptObject(**row) for row in rows]


def at(tx: Transaction, attempt: Attempt, paths: Iterable[str]) -> dict[str, AttemptObject]:
    """Some objects of an attempt by path. Raises NotFound naming the first that is not there."""
    wanted = list(dict.fromkeys(paths))
    rows = tx.execute(
        _SELECT + " AND path = ANY(%s)", (attempt.attempt_id, attempt.project, wanted)
    )
    found = {row["path"]: AttemptObject(**row) for row in rows}
    for path in wanted:
        if path not in found:
            raise NotFound(what=f"object in attempt {attempt.attempt_id}", name=path)
    return found


def record_uploads(tx: Transaction, attempt: Attempt, uploads: Mapping[str, str]) -> dict[str, str]:
    """Remember upload ids by path where none is known; answers those that were already known."""
    tx.executemany(
        "UPDATE attempt_objects SET upload_id = %s"
        " WHERE attempt_id = %s AND path = %s AND upload_id IS NULL",
        [(upload_id, attempt.attempt_id, path) for path, upload_id in uploads.items()],
    )
    known = at(tx, attempt, uploads)
    return {
        path: found.upload_id
        for path, found in known.items()
        if found.upload_id is not None and found.upload_id != uploads[path]
    }


def record_verified(
    tx: Transaction,
    attempt: Attempt,
    verified: Mapping[str, str | None],
    problems: Mapping[str, Mapping[str, Any]],
) -> None:
    """Remember objects found good (with the version, where the store has any) and bad."""
    tx.executemany(
        "UPDATE attempt_objects SET verified_at = catalog_clock(), version_id = %s, problem = NULL"
        " WHERE attempt_id = %s AND path = %s",
        [(version_id, attempt.attempt_id, path) for path, version_id in verified.items()],
    )
    tx.executemany(
        "UPDATE attempt_objects SET problem = %s WHERE attempt_id = %s AND path = %s",
        [(Jsonb(dict(problem)), attempt.attempt_id, path) for path, problem in problems.items()],
    )
