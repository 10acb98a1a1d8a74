"""An audit that needs no catalog: the records of a project in a file, and what proves them.

The file is JSON Lines, compressed where its name ends with `.gz`. It is written under another name
and renamed once it is whole.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO

from lastgood.catalog import projects
from lastgood.catalog.db import Catalog
from lastgood.errors import InvalidInput
from lastgood.flows.auditing.records import records
from lastgood.rules.auditor import Auditor, Break
from lastgood.rules.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. `digest` is the newest daily digest among it: keep it elsewhere."""

    project: str
    path: Path
    records: int
    bytes: int
    digest: str | None
    day: date | None


@dataclass(slots=True)
class Checked:
    """What a file holds, and every break. `covered_until` is the last day that a daily digest
    covers: what was recorded later, a digest that was kept elsewhere says nothing of."""

    project: str = ""
    records: int = 0
    stages: int = 0
    receipts: int = 0
    tombstones: int = 0
    open_tombstones: int = 0
    certificates: int = 0
    digests: int = 0
    covered_until: date | None = None
    newest_digest: str | None = None
    breaks: list[Break] = field(default_factory=list)


def export(catalog: Catalog, project: str, path: Path) -> Exported:
    """Write a project's records of one moment into a new file. Raises NotFound, and OSError where
    the file cannot be written."""
    with catalog.transaction() as tx:
        projects.get(tx, project)
    unfinished = path.with_name(f"{path.name}.unfinished")
    count, digest, day = 0, None, None
    with catalog.transaction() as tx, _opened(unfinished, path, "w") as file:
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for record in records(tx, project):
            file.write(canonical_json(record) + b"\n")
            count += 1
            if record["record"] == "digest":
                digest, day = record["digest"], date.fromisoformat(record["body"]["day"])
    os.replace(unfinished, path)
    return Exported(project, path, count, path.stat().st_size, digest, day)


def check(path: Path, *, expect: str | None = None) -> Checked:
    """Audit a file. Raises OSError where it cannot be read, and InvalidInput if it is no export at
    all."""
    auditor, found = Auditor(), Checked()
    try:
        with _opened(path, path, "r") as file:
            for line in file:
                found.breaks += auditor.feed(_parsed(line))
    except (EOFError, gzip.BadGzipFile) as error:
        found.breaks.append(Break("record", "file", f"it cannot be read to its end: {error}"))
    if not auditor.project:
        raise InvalidInput(where=str(path), reason="it is no export of `lastgood audit export`")
    found.breaks += auditor.finish(expect)
    found.project, found.records = auditor.project, auditor.counts["record"]
    for kind in ("stage", "receipt", "tombstone", "certificate", "digest"):
        setattr(found, f"{kind}s", auditor.counts[kind])
    found.open_tombstones = auditor.open_tombstones
    found.covered_until = auditor.covered_until
    found.newest_digest = next(reversed(auditor.digests), None)
    return found


def _parsed(line: bytes) -> object:
    """A line's JSON; what is none becomes a record that nobody can read."""
    try:
        document: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document


@contextmanager
def _opened(path: Path, named: Path, mode: str) -> Iterator[IO[bytes]]:
    if named.suffix == ".gz":
        with gzip.open(path, f"{mode}b") as compressed:
            yield compressed  # type: ignore[misc]
    else:
        with path.open(f"{mode}b") as file:
            yield file
