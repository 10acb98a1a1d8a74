"""An audit that needs no catalog: the records of a project in a file, and what proves them.

The file is JSON Lines, compressed where its name ends with `.gz`. It is written under another name
and renamed once it is whole.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import IO

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects
from lastgood.errors import InvalidInput
from lastgood.flows.auditing.records import records
from lastgood.rules.auditor import SEALED_FROM, Auditor, Break
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
        written = hashlib.sha256()
        for record in records(tx, project):
            if record["record"] == "end":
                record["sha256"] = written.hexdigest()
            line = canonical_json(record) + b"\n"
            file.write(line)
            written.update(line)
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
            read = hashlib.sha256()
            for line in file:
                record = _parsed(line)
                found.breaks += auditor.feed(record)
                if auditor.format_version >= SEALED_FROM:
                    found.breaks += _altered(record, read.hexdigest())
                read.update(line)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
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


def _altered(record: object, sha256: str) -> Iterator[Break]:
    """Whatever no other record vouches for, the last one does."""
    if isinstance(record, dict) and record.get("record") == "end":
        said = record.get("sha256")
        if said != sha256:
            problem = f"the lines before it have SHA-256 {sha256}, it says {said}"
            yield Break("record", "end", problem)


@contextmanager
def _opened(path: Path, named: Path, mode: str) -> Iterator[IO[bytes]]:
    if named.suffix == ".gz":
        with gzip.open(path, f"{mode}b") as compressed:
            yield compressed  # type: ignore[misc]
    else:
        with path.open(f"{mode}b") as file:
            yield file
