"""What a mark costs: how long and how large over many checkpoints, against fetching the same rows.

    .venv/bin/python bench/mark.py [--checkpoints 1000000] [--snapshots 200]

A scratch PostgreSQL is filled with stages of 100 checkpoints, one every three hours: each with a
copy and a receipt, every fourth with a second receipt and every tenth with a metric. Then, each in
a process of its own: the one query of a mark with its rows fetched and dropped; the first live mark
under the default policy, to which every checkpoint is new; and the next one, as it comes every
hour. Both store their candidates, four of five checkpoints, and what changed. The same over a
tenth.

Seconds are those of a clock, and those that processors worked: for the process and for the server
together, so that whoever else uses the machine plays no part. Targets, of the hourly mark in
processor seconds: at most 3 times the fetch, growth from a tenth to the whole of at most 12; and of
both marks, less than 1 GiB of memory.

Beside it, `restic forget --dry-run` with rules alike, by snapshot.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.catalog.retention import stage_history
from lastgood.flows.retention import mark
from lastgood.flows.settings.configuration import read_policy
from lastgood.stack.postgres import EmbeddedPostgres, remove

BY_STAGE = 100
KINDS = ("fetch", "first", "next")
POLICY = Path(__file__).parent.parent / "include/config/policies/default.yaml"
OWNER, APP = "lastgood_owner", "lastgood_app"


def main() -> int:
    arguments = parsed()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.dsn, arguments.project)))
        return 0
    sizes = {"tenth": arguments.checkpoints // 10, "whole": arguments.checkpoints}
    with postgres() as server:
        dsn = prepared(server, sizes)
        told = {
            name: {kind: in_own_process(server, kind, dsn, name) for kind in KINDS}
            for name in sizes
        }
    return report(sizes, told, restic_seconds(arguments.snapshots))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of a mark.")
    parser.add_argument("--checkpoints", type=int, default=1_000_000)
    parser.add_argument("--snapshots", type=int, default=200, help="in the restic repository")
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--dsn", help=argparse.SUPPRESS)
    parser.add_argument("--project", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-postgres-"))
    try:
        with EmbeddedPostgres.start(folder, durable=False) as server:
            yield server
    finally:
        remove(folder)


def prepared(server: EmbeddedPostgres, sizes: dict[str, int]) -> str:
    """A catalog with a project of each size; answers the application's DSN."""
    server.create_role(APP)
    server.create_role(OWNER)
    server.create_database("bench", owner=OWNER)
    migrate(server.dsn("bench", OWNER), app_role=APP)
    with psycopg.connect(server.dsn("bench"), autocommit=True) as connection:
        connection.execute("SET search_path = lastgood")
        # What the rows refer to, beside one another, plays no part: it is left out.
        connection.execute("SET session_replication_role = replica")
        connection.execute("INSERT INTO stores VALUES ('local', 'file', '{}', 'here', 'fast')")
        for project, checkpoints in sizes.items():
            fill(connection, project, checkpoints // BY_STAGE)
        connection.execute("VACUUM ANALYZE")
    return server.dsn("bench", APP)


def fill(connection: psycopg.Connection[Any], project: str, stages: int) -> None:
    policy = read_policy(POLICY)
    began = datetime.now(UTC) - timedelta(hours=3 * BY_STAGE)
    connection.execute(
        "INSERT INTO projects VALUES (%s, 'me', 'local', 'default', '{}', NULL)", (project,)
    )
    connection.execute(
        "INSERT INTO policy_versions VALUES (%(project)s, 'default', 1, %(digest)s, %(document)s,"
        " %(at)s, %(at)s, 'bench')",
        {
            "project": project,
            "digest": policy.digest,
            "document": json.dumps(policy.to_json()),
            "at": began,
        },
    )
    values = {"project": project, "stages": stages, "by_stage": BY_STAGE, "began": began}
    for statement in FILLING:
        connection.execute(statement, values)


FILLING = (
    """
    INSERT INTO stages (project, workload, stage, kind, class, generation, last_recorded_at)
    SELECT %(project)s, 'job-' || n, 'train', 'checkpointed', 'c', 1, %(began)s
      FROM generate_series(1, %(stages)s) AS n
    """,
    """
    INSERT INTO checkpoints (project, stage_id, generation, sequence, step, attempt_id, manifest,
                             total_bytes, object_count, metrics, final, recorded_at)
    SELECT project, stage_id, 1, n, n * 500, gen_random_uuid(),
           encode(sha256((stage_id || '.' || n)::bytea), 'hex'), 600000000000, 16,
           CASE WHEN n %% 10 = 0 THEN jsonb_build_object('eval/loss', 1 + random()) ELSE '{}' END,
           false, %(began)s::timestamptz + n * interval '3 hours' - interval '1 hour'
      FROM stages, generate_series(1, %(by_stage)s) AS n WHERE project = %(project)s
     ORDER BY n, stage_id
    """,
    """
    INSERT INTO copies (project, stage_id, checkpoint_id, store, prefix, control_bytes, recorded_at,
                        state, state_at)
    SELECT project, stage_id, checkpoint_id, 'local', attempt_id::text, 5000, recorded_at,
           'present', recorded_at
      FROM checkpoints WHERE project = %(project)s
    """,
    """
    INSERT INTO copy_transitions (copy_id, number, project, stage_id, to_state, actor, reason,
                                  facts, recorded_at)
    SELECT copy_id, 1, project, stage_id, 'present', 'bench', '', '{}', recorded_at
      FROM copies WHERE project = %(project)s
    """,
    """
    INSERT INTO receipts (receipt, project, stage_id, number, checkpoint_id, copy_id, level,
                          verdict, validator, validator_version, started_at, finished_at,
                          bytes_read, reason, body, recorded_at)
    SELECT encode(sha256((c.copy_id || level)::bytea), 'hex'), c.project, c.stage_id,
           k.sequence * 2 + (level = 'format')::int, c.checkpoint_id, c.copy_id, level, 'pass',
           'bench', '1', c.recorded_at, c.recorded_at, 0, '', '{}', c.recorded_at
      FROM copies AS c JOIN checkpoints AS k USING (checkpoint_id),
           unnest(ARRAY['checksum', 'format']) AS level
     WHERE c.project = %(project)s AND (level = 'checksum' OR k.sequence %% 4 = 0)
    """,
)


def in_own_process(server: EmbeddedPostgres, kind: str, dsn: str, project: str) -> dict[str, Any]:
    """What a process of its own measured, so that its memory is its own, too."""
    command = [sys.executable, __file__, "--measure", kind, "--dsn", dsn, "--project", project]
    before = worked_seconds(server)
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(ran.stdout)
    told["worked"] += worked_seconds(server) - before
    return told


def worked_seconds(server: EmbeddedPostgres) -> float:
    """What the processes of the server have worked so far, those that ended as well."""
    postmaster = psutil.Process(server.pid)
    ended = postmaster.cpu_times()
    living = [process.cpu_times() for process in postmaster.children()]
    return (
        ended.children_user
        + ended.children_system
        + sum(times.user + times.system for times in living)
    )


def measured(kind: str, dsn: str, project: str) -> dict[str, Any]:
    with Catalog(dsn) as catalog:
        began, worked = time.perf_counter(), time.process_time()
        counts = fetched(catalog, project) if kind == "fetch" else marked(catalog, project)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "worked": worked, "peak_bytes": peak_bytes, **counts}


def fetched(catalog: Catalog, project: str) -> dict[str, Any]:
    with catalog.transaction() as tx:
        rows = sum(1 for _ in stage_history.rows_of(tx, project, datetime.now(UTC)))
    return {"rows": rows}


def marked(catalog: Catalog, project: str) -> dict[str, Any]:
    counts = mark.run(catalog, project)["counts"]
    return {"rows": counts["checkpoints"], "candidates": counts["candidates"]}


def restic_seconds(snapshots: int) -> float | None:
    """Of one `forget --dry-run`, divided by the snapshots that it judges; None without restic."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "RESTIC_PASSWORD": "bench",
            "RESTIC_REPOSITORY": f"{folder}/repository",
            "RESTIC_CACHE_DIR": f"{folder}/cache",
        }

        def restic(*words: str) -> None:
            subprocess.run(["restic", *words], env=environment, check=True, capture_output=True)

        data = Path(folder, "data")
        data.write_text("one checkpoint")
        try:
            restic("init")
        except FileNotFoundError:
            return None
        began = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(snapshots):
            at = began + timedelta(hours=3 * number)
            restic("backup", "--host", "bench", "--time", f"{at:%F %T}", str(data))
        started = time.perf_counter()
        restic("forget", "--dry-run", "--keep-last", "4", "--keep-hourly", "8", "--keep-daily", "7")
        return (time.perf_counter() - started) / snapshots


def report(
    sizes: dict[str, int], told: dict[str, dict[str, dict[str, Any]]], restic: float | None
) -> int:
    for name, size in sizes.items():
        print(f"{size} checkpoints:")
        for kind, found in told[name].items():
            stored = f", {found['candidates']} candidates" if "candidates" in found else ""
            print(
                f"  {kind:5} {found['seconds']:6.1f} s, {found['worked']:6.1f} s worked,"
                f" {found['worked'] / size * 1e6:4.0f} us each, peak"
                f" {found['peak_bytes'] / 2**20:.0f} MiB{stored}"
            )
    whole, tenth = told["whole"], told["tenth"]
    for measure in ("worked", "seconds"):
        ratios = [whole[kind][measure] / whole["fetch"][measure] for kind in ("first", "next")]
        growth = whole["next"][measure] / tenth["next"][measure]
        print(
            f"{measure}: first mark {ratios[0]:.2f} and next {ratios[1]:.2f} times the fetch,"
            f" growth from a tenth {growth:.1f}"
        )
    if restic is not None:
        print(f"restic forget --dry-run: {restic * 1e6:.0f} us a snapshot")
    kept = (
        whole["next"]["worked"] <= 3 * whole["fetch"]["worked"]
        and whole["next"]["worked"] <= 12 * tenth["next"]["worked"]
        and max(found["peak_bytes"] for found in whole.values()) < 2**30
    )
    print("targets are met" if kept else "TARGETS ARE MISSED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
