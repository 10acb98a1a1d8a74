"""What the backend accounts for a store, whole and by project, against what was listed of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import duckdb

from lastgood.catalog.reconciliation.inventory import project_prefixes
from lastgood.flows.inventories.join import after_all, named
from lastgood.stores.base import EVERYTHING, Prefix, Store, Usage

WHOLE_STORE = ""
"""Stands for the whole store where others stand for a project."""


def usages(store: Store, projects: Collection[str]) -> Mapping[str, Usage]:
    """What the backend accounts for the whole store and for each project's prefixes."""
    found = {WHOLE_STORE: store.usage(EVERYTHING)}
    for project in projects:
        parts = [store.usage(Prefix(one)) for one in project_prefixes(project)]
        causes: dict[str, int] = {}
        for part in parts:
            for cause, size_bytes in part.causes.items():
                causes[cause] = causes.get(cause, 0) + size_bytes
        used = sum(part.used_bytes for part in parts)
        found[project] = Usage(used, parts[0].total_bytes, parts[0].how, None, causes)
    return found


def listed_bytes(
    db: duckdb.DuckDBPyConnection,
    effective: str,
    uploads: Sequence[Path],
    projects: Collection[str],
) -> Mapping[str, int]:
    """The bytes that were listed of the whole store and of each project, parts included;
    `effective` is a query for the rows that count."""
    source = f"SELECT key, size FROM ({effective})"
    if uploads:
        source += f" UNION ALL SELECT key, size FROM read_parquet({named(uploads)})"
    columns = ["coalesce(sum(size), 0)::BIGINT"]
    parameters: list[bytes] = []
    for project in projects:
        within = []
        for prefix in project_prefixes(project):
            within.append("key >= ? AND key < ?")
            parameters += [prefix.encode(), after_all(prefix)]
        columns.append(f"coalesce(sum(size) FILTER (WHERE {' OR '.join(within)}), 0)::BIGINT")
    row = db.execute(f"SELECT {', '.join(columns)} FROM ({source})", parameters).fetchone()
    assert row is not None
    return dict(zip((WHOLE_STORE, *projects), row, strict=True))


def is_exact(usage: Usage, listed: int) -> bool:
    """Whether a listing and the accounting agree to the byte."""
    return usage.used_bytes - sum(usage.causes.values()) == listed
