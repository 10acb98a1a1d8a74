"""What a difference of two policies costs over 90 days of hourly marks, against one mark.

    .venv/bin/python bench/policy_diff.py [--checkpoints 1000000]

A scratch PostgreSQL is filled as for the bench of marks, with stages of 100 checkpoints, one every
21 hours, so that they fill the window. Then, each in a process of its own: one replayed mark as of
the end under the default policy; and the difference between it and a candidate that keeps less,
over all 2,161 instants. What is timed is the work of the process and of the server together, and
the clock beside it.

Targets: the difference works at most 20 times as long as the mark, in less than 1 GiB of memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import mark as marking
import psycopg

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.flows.policy_change import policy_diff
from lastgood.flows.retention import mark
from lastgood.flows.settings.configuration import read_policy
from lastgood.rules.policy import Policy
from lastgood.stack.postgres import EmbeddedPostgres

KINDS = ("mark", "diff")
SPACING = timedelta(hours=21)
WINDOW = timedelta(days=90)
PROJECT = "whole"


def main() -> int:
    arguments = parsed()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.dsn)))
        return 0
    with marking.postgres() as server:
        dsn = prepared(server, arguments.checkpoints)
        told = {kind: in_own_process(server, kind, dsn) for kind in KINDS}
    return report(arguments.checkpoints, told)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of a difference of policies.")
    parser.add_argument("--checkpoints", type=int, default=1_000_000)
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--dsn", help=argparse.SUPPRESS)
    return parser.parse_args()


def prepared(server: EmbeddedPostgres, checkpoints: int) -> str:
    server.create_role(marking.APP)
    server.create_role(marking.OWNER)
    server.create_database("bench", owner=marking.OWNER)
    migrate(server.dsn("bench", marking.OWNER), app_role=marking.APP)
    began = datetime.now(UTC) - marking.BY_STAGE * SPACING
    values = {
        "project": PROJECT,
        "stages": checkpoints // marking.BY_STAGE,
        "by_stage": marking.BY_STAGE,
        "began": began,
    }
    with psycopg.connect(server.dsn("bench"), autocommit=True) as connection:
        connection.execute("SET search_path = lastgood")
        connection.execute("SET session_replication_role = replica")
        connection.execute("INSERT INTO stores VALUES ('local', 'file', '{}', 'here', 'fast')")
        connection.execute(
            "INSERT INTO projects VALUES (%s, 'me', 'local', 'default', '{}', NULL)", (PROJECT,)
        )
        for policy in policies():
            connection.execute(
                "INSERT INTO policy_versions VALUES (%s, %s, 1, %s, %s, %s, %s, 'bench')",
                (PROJECT, policy.name, policy.digest, json.dumps(policy.to_json()), began, began),
            )
        for statement in marking.FILLING:
            connection.execute(
                statement.replace("interval '3 hours'", "interval '21 hours'"), values
            )
        connection.execute("VACUUM ANALYZE")
    return server.dsn("bench", marking.APP)


def policies() -> tuple[Policy, Policy]:
    default = read_policy(marking.POLICY)
    document = default.to_json()
    roles = {**document["roles"], "hot": {**document["roles"]["hot"], "count": 2}}
    roles["anchor"] = {**roles["anchor"], "within": "3d"}
    return default, Policy.parse({**document, "name": "candidate", "roles": roles}, where="bench")


def in_own_process(server: EmbeddedPostgres, kind: str, dsn: str) -> dict[str, Any]:
    """What a process of its own measured, and the work of the server meanwhile."""
    words = [sys.executable, __file__, "--measure", kind, "--dsn", dsn]
    before = marking.worked_seconds(server)
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    told["worked"] += marking.worked_seconds(server) - before
    return told


def measured(kind: str, dsn: str) -> dict[str, Any]:
    with Catalog(dsn) as catalog:
        began, worked = time.perf_counter(), time.process_time()
        counts = marked(catalog) if kind == "mark" else compared(catalog)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "worked": worked, "peak_bytes": peak_bytes, **counts}


def marked(catalog: Catalog) -> dict[str, Any]:
    told = mark.run(catalog, PROJECT, at=datetime.now(UTC), kind="replay", policy="default@v1")
    return {"rows": told["counts"]["checkpoints"]}


def compared(catalog: Catalog) -> dict[str, Any]:
    found = policy_diff.run(
        catalog,
        PROJECT,
        "default@v1",
        "candidate@v1",
        since=datetime.now(UTC) - WINDOW,
        actor="bench",
    ).document
    return {
        "instants": found["instants"],
        "decisions": found["decisions"],
        "rows": found["totals"]["checkpoints"],
        "differing": found["totals"]["differing"],
    }


def report(checkpoints: int, told: dict[str, dict[str, Any]]) -> int:
    one, diff = told["mark"], told["diff"]
    for kind, found in told.items():
        print(
            f"{kind}: {found['seconds']:.1f} s, {found['worked']:.1f} s worked, peak"
            f" {found['peak_bytes'] / 2**20:.0f} MiB"
        )
    ratio = diff["worked"] / one["worked"]
    whole = diff["instants"] * checkpoints // marking.BY_STAGE
    print(
        f"{checkpoints} checkpoints, {diff['instants']} instants, {diff['decisions']} of {whole}"
        f" decided, {diff['differing']} differ: {ratio:.1f} times the mark's work,"
        f" {diff['seconds'] / one['seconds']:.1f} times its time"
    )
    kept = ratio <= 20 and diff["peak_bytes"] < 2**30
    print("targets are met" if kept else "TARGETS ARE MISSED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
