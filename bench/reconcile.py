"""How fast an inventory is explained, against bare DuckDB and pandas on the same Parquet.

    .venv/bin/python bench/reconcile.py [--keys 10000000] [--memory 1GiB] [--rounds 3]
                                        [--pandas-keys N] [--export-objects 300000]

Keys of an inventory are joined with as many rows of the catalog; one in 100,000 is missing, one
untracked, one of another size. Every contestant is a process of its own, so that its peak memory is
its own; rounds alternate and the best of each counts. Bare DuckDB answers one query, a full outer
join that counts and adds up; ours checks the files' digests, joins, gives every disagreeing key a
line and a cause, and closes the equation. What the catalog needs to hand its rows out is measured
apart, and is in none of these. On a machine that others use, hold the seconds of CPU against each
other. Targets: at most 1.5 times bare DuckDB with the same memory limit,
a peak under 1.6 GiB, ten times the keys in at most 13 times the time, 5 times faster than pandas.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from lastgood.flows.inventories import join
from lastgood.flows.inventories.explanation import explain
from lastgood.flows.inventories.join import named
from lastgood.flows.inventories.kept import KeptFile, KeptManifest, Place, described
from lastgood.flows.inventories.rows import EXPECTED, LISTED, OWNED, RowWriter, Written
from lastgood.rules.byte_equation import Line
from lastgood.rules.layout import inventory_prefix
from lastgood.stores.base import Usage
from lastgood.stores.file import FileStore

STORE, INVENTORY = "bench", "20260101T000000Z-00000000"
OBJECTS_PER_ATTEMPT = 100
SHARD_ROWS = 1_000_000
RARE = 100_000
SIZE_BYTES = 1_000
GIB = 1 << 30
PANDAS_KEY_BYTES = 1_400
# One attempt's prefix of a running number, in the order of keys.
PREFIX = (
    "printf('checkpoints/p%02d/resnet/train/00000001.%012d/%08x-0000-4000-8000-%012x/',"
    " {n} * 10 // {attempts}, {n}, {n} * 2654435761 % 4294967296, {n})"
)


def main() -> int:
    arguments = parsed()
    if arguments.contestant:
        print(json.dumps(contend(arguments.contestant, Path(arguments.folder), arguments.memory)))
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        return compare(arguments, Path(scratch))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed of explaining an inventory.")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pandas-keys", type=int, help="default: all where memory allows, else a tenth"
    )
    parser.add_argument("--export-objects", type=int, default=300_000)
    parser.add_argument("--folder", help="for scratch; default: the temporary folder")
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(arguments: argparse.Namespace, scratch: Path) -> int:
    few, many = arguments.keys // 10, arguments.keys
    pandas_keys = arguments.pandas_keys or (many if has_room_for_pandas(many) else few)
    for keys in {few, many, pandas_keys}:
        made(scratch / str(keys), keys)
    best = best_of(
        arguments.rounds,
        [("bare", few), ("ours", few), ("bare", many), ("ours", many)],
        scratch,
        arguments.memory,
    )
    small = best_of(1, [("ours", pandas_keys), ("pandas", pandas_keys)], scratch, arguments.memory)
    for (name, keys), told in [*best.items(), *small.items()]:
        print(
            f"{name:8} {keys:>11,} keys {told['seconds']:8.2f} s"
            f" ({told['cpu']:.2f} s of CPU) {told['peak'] / GIB:6.2f} GiB"
        )
    if arguments.export_objects:
        export(scratch, arguments.export_objects)
    ours, bare = best["ours", many], best["bare", many]
    return report(
        {
            "of bare DuckDB": (ours["seconds"] / bare["seconds"], "at most", 1.5),
            "peak in GiB": (ours["peak"] / GIB, "at most", 1.6),
            "time for ten times the keys": (
                ours["seconds"] / best["ours", few]["seconds"],
                "at most",
                13,
            ),
            "times faster than pandas": (
                small["pandas", pandas_keys]["seconds"] / small["ours", pandas_keys]["seconds"],
                "at least",
                5,
            ),
        }
    )


def has_room_for_pandas(keys: int) -> bool:
    """Whether this machine has the memory that pandas takes for so many keys."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 > keys * PANDAS_KEY_BYTES
    return False


def report(found: dict[str, tuple[float, str, float]]) -> int:
    """Print each figure against its target; 1 if one is missed."""
    missed = 0
    for name, (figure, how, target) in found.items():
        is_met = figure <= target if how == "at most" else figure >= target
        missed += not is_met
        word = "ok" if is_met else "MISSED"
        print(f"{name}: {figure:.2f}, {how} {target}: {word}")
    return 1 if missed else 0


def best_of(
    rounds: int, contestants: list[tuple[str, int]], scratch: Path, memory: str
) -> dict[tuple[str, int], dict[str, float]]:
    best: dict[tuple[str, int], dict[str, float]] = {}
    for _ in range(rounds):
        for name, keys in contestants:
            command = [sys.executable, __file__, "--contestant", name, "--memory", memory]
            done = subprocess.run(
                [*command, "--folder", str(scratch / str(keys))],
                check=True,
                capture_output=True,
                text=True,
            )
            told = json.loads(done.stdout)
            require_right(told, keys)
            known = best.get((name, keys))
            if known is None or told["seconds"] < known["seconds"]:
                best[name, keys] = told
    return best


def require_right(told: dict[str, Any], keys: int) -> None:
    """A wrong answer is worth no figure."""
    rare = keys // RARE
    for name in ("missing", "untracked", "size_differs"):
        assert told[name] == rare, (name, told)
    assert told["listed_bytes"] == keys * SIZE_BYTES + rare, told


# --- what is joined ---------------------------------------------------------------------------


def made(folder: Path, keys: int) -> None:
    """An inventory of so many keys below `folder`, as one that was taken lies in a store."""
    place = folder / inventory_prefix(STORE, INVENTORY)
    place.mkdir(parents=True)
    attempts = keys // OBJECTS_PER_ATTEMPT
    files: list[KeptFile] = []
    with duckdb.connect() as db:
        for role, schema, query in (
            ("listed", LISTED, LISTED_ROWS),
            ("expected", EXPECTED, EXPECTED_ROWS),
        ):
            for number, start in enumerate(range(0, attempts, SHARD_ROWS // OBJECTS_PER_ATTEMPT)):
                end = min(attempts, start + SHARD_ROWS // OBJECTS_PER_ATTEMPT)
                rows = query.format(
                    prefix=PREFIX.format(n="a", attempts=attempts),
                    start=start,
                    end=end,
                    objects=OBJECTS_PER_ATTEMPT,
                    rare=RARE,
                    size=SIZE_BYTES,
                )
                written = written_as(db, rows, place / f"{role}-{number:04d}.parquet", schema)
                files.append(described(written, role))
        owned = OWNED_ROWS.format(prefix=PREFIX.format(n="a", attempts=attempts), end=attempts)
        files.append(described(written_as(db, owned, place / "owned.parquet", OWNED), "owned"))
    Place(FileStore(STORE, folder), STORE, INVENTORY).close(manifest_of(bounded(files), keys))


def written_as(db: duckdb.DuckDBPyConnection, query: str, path: Path, schema: Any) -> Written:
    with RowWriter(path, schema) as writer:
        for batch in db.sql(query).to_arrow_reader(100_000):
            writer.add_batch(batch)
        return writer.close()


def bounded(files: list[KeptFile]) -> list[KeptFile]:
    """With the bounds of shards, which chain."""
    listed = [one for one in files if one.role == "listed"]
    ends = [bytes.fromhex(one.last).decode() for one in listed[:-1]]
    starts = ["", *ends]
    shards = [
        KeptFile(**{**one.to_json(), "after": after, "through": through})
        for one, after, through in zip(listed, starts, [*ends, None], strict=True)
    ]
    return [*shards, *(one for one in files if one.role != "listed")]


def manifest_of(files: list[KeptFile], keys: int) -> KeptManifest:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    listed = keys * SIZE_BYTES + keys // RARE
    return KeptManifest(
        inventory=INVENTORY,
        store=STORE,
        source="listing",
        started_at=at,
        finished_at=at,
        hides=True,
        projects=[f"p{number:02d}" for number in range(10)],
        files=files,
        moving=[],
        passes=1,
        objects=keys,
        size_bytes=listed,
        uploads=0,
        upload_bytes=0,
        in_flight_objects=0,
        in_flight_bytes=0,
        usages={"": Usage(listed, None, "made")},
        usages_before=None,
    )


# Of each RARE keys one is missing, an untracked one in its place, and one is a byte longer.
_KEY = "{prefix} || printf('objects/model/%05d.bin', o)"
_NUMBER = "(a * {objects} + o)"
_ALL = "FROM range({start}, {end}) AS x(a), range({objects}) AS y(o)"
LISTED_ROWS = f"""
SELECT encode(k || CASE WHEN n % {{rare}} = 7 THEN '~' ELSE '' END) AS key, 'object' AS kind,
       ({{size}} + CASE WHEN n % {{rare}} = 9 THEN 1 ELSE 0 END)::BIGINT AS size,
       4096::BIGINT AS allocated, true AS alone, false AS hidden, true AS is_latest,
       NULL::VARCHAR AS version_id, TIMESTAMPTZ '2026-01-01 00:00:00Z' AS modified,
       NULL::VARCHAR AS etag, NULL::VARCHAR AS sha256, NULL::VARCHAR AS is_foreign,
       NULL::BIGINT AS device, NULL::BIGINT AS inode, NULL::BLOB AS raw_key,
       NULL::VARCHAR AS upload_id, NULL::INTEGER AS part_number
  FROM (SELECT {_KEY} AS k, {_NUMBER} AS n {_ALL}) ORDER BY key
"""
EXPECTED_ROWS = f"""
SELECT encode({_KEY}) AS key, {{size}}::BIGINT AS size, NULL::VARCHAR AS version_id,
       'present' AS state, split_part({{prefix}}, '/', 2) AS project, true AS settled
  {_ALL} ORDER BY key
"""
OWNED_ROWS = """
SELECT encode({prefix}) AS prefix, split_part({prefix}, '/', 2) AS project, 'committed' AS attempt,
       'present' AS copy, false AS lease_live, 0::BIGINT AS generation, 0::BIGINT AS event
  FROM range({end}) AS x(a) ORDER BY prefix
"""


# --- who joins --------------------------------------------------------------------------------


def contend(name: str, folder: Path, memory: str) -> dict[str, Any]:
    """Run one contestant in this process: its answer, its seconds, its peak memory."""
    place = Place(FileStore(STORE, folder), STORE, INVENTORY)
    manifest = place.manifest()
    paths = {
        role: [folder / place.prefix / one.name for one in manifest.of(role)]
        for role in ("listed", "expected")
    }
    started, worked = time.perf_counter(), time.process_time()
    if name == "ours":
        answer = ours(place, manifest, memory)
    elif name == "bare":
        answer = bare(paths, memory)
    else:
        answer = with_pandas(paths)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    return {**answer, "seconds": seconds, "cpu": cpu, "peak": peak_bytes()}


def peak_bytes() -> int:
    """The most memory that this program held; what its parent held before it began is not in it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no /proc/self/status")


def ours(place: Place, manifest: KeptManifest, memory: str) -> dict[str, int]:
    join.MEMORY = memory
    told = explain(place, manifest)
    assert told.whole.equation.closes()
    assert told.whole.equation.totals[Line.COMMITTED].keys
    return {
        "missing": told.causes["missing"].objects,
        "untracked": told.causes["untracked"].objects,
        "size_differs": told.causes["size-differs"].objects,
        "listed_bytes": told.whole.equation.sum_bytes,
    }


def bare(paths: dict[str, list[Path]], memory: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as spill, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory}'")
        db.execute(f"SET temp_directory = '{spill}'")
        db.execute("SET preserve_insertion_order = false")
        row = db.execute(
            f"""
            SELECT count(*) FILTER (WHERE l.key IS NULL), count(*) FILTER (WHERE e.key IS NULL),
                   count(*) FILTER (WHERE l.size <> e.size), sum(l.size)::BIGINT
              FROM read_parquet({named(paths["listed"])}) AS l
              FULL OUTER JOIN read_parquet({named(paths["expected"])}) AS e ON l.key = e.key
            """
        ).fetchone()
    assert row is not None
    return dict(zip(("missing", "untracked", "size_differs", "listed_bytes"), row, strict=True))


def with_pandas(paths: dict[str, list[Path]]) -> dict[str, int]:
    import pandas as pd

    listed = pd.concat([pd.read_parquet(one, columns=["key", "size"]) for one in paths["listed"]])
    expected = pd.concat(
        [pd.read_parquet(one, columns=["key", "size"]) for one in paths["expected"]]
    )
    both = listed.merge(expected, on="key", how="outer", indicator=True)
    sides = both["_merge"].value_counts()
    differs = (both["_merge"] == "both") & (both["size_x"] != both["size_y"])
    return {
        "missing": int(sides["right_only"]),
        "untracked": int(sides["left_only"]),
        "size_differs": int(differs.sum()),
        "listed_bytes": int(both["size_x"].sum()),
    }


CONTESTANTS = ("ours", "bare", "pandas")


# --- the catalog's part -----------------------------------------------------------------------


def export(scratch: Path, objects: int) -> None:
    """How fast the catalog hands out what it expects."""
    from lastgood.catalog.db import Catalog
    from lastgood.catalog.migrate import migrate
    from lastgood.flows.inventories.export import export_expected
    from lastgood.stack.postgres import EmbeddedPostgres, remove

    data = Path(tempfile.mkdtemp(prefix="lastgood-bench-"))
    with EmbeddedPostgres.start(data, durable=False) as server:
        server.create_role("bench_app")
        server.create_role("bench_owner")
        server.create_database("bench", owner="bench_owner")
        owner = server.dsn("bench", "bench_owner")
        migrate(owner, app_role="bench_app")
        fill(owner, objects)
        folder = scratch / "export"
        folder.mkdir()
        with Catalog(server.dsn("bench", "bench_app")) as catalog, catalog.transaction() as tx:
            started = time.perf_counter()
            files = export_expected(tx, STORE, folder)
            seconds = time.perf_counter() - started
    remove(data)
    rows = sum(one.rows for one in files)
    print(f"export   {rows:>11,} rows {seconds:8.2f} s, {rows / seconds:,.0f} rows/s (apart)")


def fill(dsn: str, objects: int) -> None:
    import psycopg

    attempts = objects // OBJECTS_PER_ATTEMPT
    with psycopg.connect(dsn) as connection:
        connection.execute("SET search_path = lastgood")
        for statement in FILLING:
            connection.execute(
                statement,
                {"attempts": attempts, "objects": OBJECTS_PER_ATTEMPT},
            )


FILLING = (
    "INSERT INTO stores (store, kind, config, failure_domain, tier)"
    " VALUES ('bench', 'file', '{}', 'rack-1', 'fast')",
    "INSERT INTO projects (project, owner, store, policy, config)"
    " VALUES ('p', 'team', 'bench', 'default', '{}')",
    "INSERT INTO stages (project, workload, stage, kind, class, generation)"
    " VALUES ('p', 'resnet', 'train', 'checkpointed', 'default', 1)",
    "INSERT INTO generations SELECT stage_id, 1, 'p', 'k', 'job', false, NULL, NULL, NULL,"
    " catalog_clock() FROM stages",
    "INSERT INTO manifests VALUES ('p', repeat('0', 64), '{}', catalog_clock())",
    """
    INSERT INTO attempts (attempt_id, project, stage_id, generation, sequence, step, kind,
                          idempotency_key, request_sha256, token_sha256, store, prefix,
                          declared_bytes, claimed_bytes, recorded_at, state, state_at,
                          lease_expires_at, grant_expires_at)
    SELECT gen_random_uuid(), 'p', stage_id, 1, n, n, 'full', n::text, '', n::text::bytea, 'bench',
           format('checkpoints/p/resnet/train/00000001.%%s/%%s/', lpad(n::text, 12, '0'),
                  gen_random_uuid()),
           1, 1, catalog_clock(), 'committed', catalog_clock(), catalog_clock(), catalog_clock()
      FROM stages, generate_series(1, %(attempts)s) AS n
    """,
    """
    INSERT INTO checkpoints (project, stage_id, generation, sequence, step, attempt_id, manifest,
                             total_bytes, object_count, metrics, final, recorded_at)
    SELECT 'p', stage_id, 1, sequence, step, attempt_id, repeat('0', 64), 1, %(objects)s, '{}',
           false, catalog_clock() FROM attempts
    """,
    """
    INSERT INTO copies (project, stage_id, checkpoint_id, store, prefix, control_bytes, recorded_at,
                        state, state_at)
    SELECT 'p', k.stage_id, k.checkpoint_id, 'bench', a.prefix, 9, catalog_clock(), 'present',
           catalog_clock()
      FROM checkpoints AS k JOIN attempts AS a USING (attempt_id)
    """,
    """
    INSERT INTO copy_objects
    SELECT copy_id, format('model/%%s.bin', lpad(o::text, 5, '0')), 'p', 1000, repeat('0', 64), NULL
      FROM copies, generate_series(1, %(objects)s) AS o
    """,
)


if __name__ == "__main__":
    sys.exit(main())
