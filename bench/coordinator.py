"""What the coordinator itself costs: prepare and commit of a checkpoint of 16 objects.

    .venv/bin/python bench/coordinator.py [--seconds 8] [--clients 4]

The bytes are few and lie in the store already (`direct`), and their digests are known, so what is
left is the coordinator's own work: two requests, transactions, durable small files. Beside
it, in the same run and on the same database, a bare FastAPI route with one psycopg transaction.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.catalog.settings import tokens
from lastgood.flows.settings.apply import apply
from lastgood.stack.ports import LOOPBACK, held_port
from lastgood.stack.postgres import EmbeddedPostgres, remove

OBJECTS = 16
RUNNER = "/lastgood/v1/runner"
CONFIG = {
    "stores/local.yaml": "name: local\nkind: file\nroot: store\ndirect: true\n"
    "failure_domain: here\ntier: fast\n",
    "policies/small.yaml": "name: small\nroles:\n  hot: {keep: newest, count: 2}\n",
    "projects/bench.yaml": "name: bench\nowner: me\nstore: local\npolicy: small\n"
    "finding_owner: me\n",
}
BARE = """
import sys
import uvicorn
from fastapi import FastAPI
from psycopg_pool import ConnectionPool

pool = ConnectionPool(sys.argv[1], min_size=1, max_size=24, open=True)
app = FastAPI()


@app.post("/bare")
def bare(body: dict) -> dict:
    with pool.connection() as connection:
        connection.execute("INSERT INTO bare (body) VALUES (%s)", (str(body),))
    return {"state": "committed"}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
"""
SERVE = "import sys; from lastgood.coordinator.serve import serve;"
SERVE += "serve('127.0.0.1', int(sys.argv[2]), sys.argv[1])"


def main() -> int:
    arguments = parsed()
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        os.environ["LASTGOOD_VAR"] = folder
        dsn, key = prepared_catalog(server, Path(folder))
        with running(SERVE, dsn, "/lastgood/health") as url, running(BARE, dsn, None) as bare:
            report(
                sequential=Saver(url, key, "warm").measure(arguments.seconds),
                saves_per_second=throughput(
                    [Saver(url, key, f"job-{n}").save for n in range(arguments.clients)],
                    arguments.seconds,
                ),
                bare_per_second=throughput(
                    [bare_request(bare) for _ in range(arguments.clients)], arguments.seconds
                ),
                clients=arguments.clients,
                fsync_seconds=fsync_seconds(Path(folder)),
            )
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The coordinator's own cost.")
    parser.add_argument("--seconds", type=float, default=8, help="for each of three measurements")
    parser.add_argument("--clients", type=int, default=4)
    return parser.parse_args()


@contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    """A durable server: commits reach the disk, as in production."""
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-postgres-"))
    try:
        with EmbeddedPostgres.start(folder) as server:
            yield server
    finally:
        remove(folder)


def prepared_catalog(server: EmbeddedPostgres, folder: Path) -> tuple[str, str]:
    server.create_role("lastgood_app")
    server.create_role("lastgood_owner")
    server.create_database("bench", owner="lastgood_owner")
    migrate(server.dsn("bench", "lastgood_owner"), app_role="lastgood_app")
    import psycopg

    with psycopg.connect(server.dsn("bench", "lastgood_owner")) as owner:
        owner.execute("CREATE TABLE public.bare (body text)")
        owner.execute("GRANT INSERT ON public.bare TO lastgood_app")
    dsn = server.dsn("bench", "lastgood_app")
    for name, content in CONFIG.items():
        (folder / "config" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "config" / name).write_text(content)
    with Catalog(dsn) as catalog:
        apply(catalog, folder / "config", actor="operator:bench")
        with catalog.transaction() as tx:
            key = tokens.create_project_key(tx, "bench", "bench")
    return dsn, key


@contextmanager
def running(program: str, dsn: str, health: str | None) -> Iterator[str]:
    """A server in a process of its own."""
    with held_port() as port:
        process = subprocess.Popen([sys.executable, "-c", program, dsn, str(port)])
        url = f"http://{LOOPBACK}:{port}"
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    httpx.get(f"{url}{health or '/'}")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait()


class Saver:
    """One job that saves checkpoints one after the other."""

    def __init__(self, url: str, key: str, workload: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)
        self.workload = workload
        self.sequence = 0
        self.files = {f"shard-{n:02d}": os.urandom(64) for n in range(OBJECTS)}
        body = {
            "workload": workload,
            "stage": "train",
            "after": 0,
            "idempotency_key": "a",
            "holder": "bench",
        }
        self.token = key
        self.token = self.post("generations", body)["token"]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(
            f"{RUNNER}/{path}", json=body, headers={"Authorization": f"Bearer {self.token}"}
        )
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def save(self) -> tuple[float, float]:
        """One checkpoint; answers the seconds of prepare and of commit."""
        self.sequence += 1
        began = time.perf_counter()
        prepared = self.post("checkpoints/prepare", self.request())
        between = time.perf_counter() - began
        for path, data in self.files.items():
            Path(prepared["direct_path"], path).write_bytes(data)
        began = time.perf_counter()
        self.post(
            "checkpoints/commit", {"attempt": prepared["attempt"], "manifest": self.manifest()}
        )
        return between, time.perf_counter() - began

    def request(self) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "step": self.sequence,
            "idempotency_key": str(self.sequence),
            "objects": [
                {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for path, data in self.files.items()
            ],
        }

    def manifest(self) -> dict[str, Any]:
        runtime = (
            "model_config",
            "tokenizer",
            "optimizer",
            "rng_state",
            "data_cursor",
            "code_version",
            "container_digest",
        )
        return {
            "format_version": 1,
            "project": "bench",
            "workload": self.workload,
            "stage": "train",
            "generation": 1,
            "sequence": self.sequence,
            "step": self.sequence,
            "kind": "full",
            "world_size": 1,
            "sharding": {},
            "objects": [
                {**item, "rank": 0, "part_bytes": None, "part_sha256": None}
                for item in self.request()["objects"]
            ],
            "runtime": dict.fromkeys(runtime),
            "runtime_contract_version": None,
            "restore": None,
            "metrics": {},
            "resumed_from": None,
            "dependencies": [],
            "outputs": [],
            "final": False,
        }

    def measure(self, seconds: float) -> list[tuple[float, float]]:
        for _ in range(5):
            self.save()
        until = time.monotonic() + seconds
        taken = []
        while time.monotonic() < until:
            taken.append(self.save())
        return taken


def bare_request(url: str) -> Callable[[], object]:
    client = httpx.Client(base_url=url, timeout=60)
    return lambda: client.post("/bare", json={"sequence": 1}).raise_for_status()


def throughput(works: list[Callable[[], object]], seconds: float) -> float:
    """How often per second the works together are done, each in a thread of its own."""
    until = time.monotonic() + seconds

    def repeat(work: Callable[[], object]) -> int:
        done = 0
        while time.monotonic() < until:
            work()
            done += 1
        return done

    with ThreadPoolExecutor(len(works)) as threads:
        return sum(threads.map(repeat, works)) / seconds


def fsync_seconds(folder: Path) -> float:
    """What making one small file durable takes; a save does so for each file and a few more."""
    taken = []
    for number in range(50):
        with (folder / f"probe-{number}").open("wb") as file:
            file.write(bytes(64))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def report(
    *,
    sequential: list[tuple[float, float]],
    saves_per_second: float,
    bare_per_second: float,
    clients: int,
    fsync_seconds: float,
) -> None:
    spans = {
        "prepare": [prepare for prepare, _ in sequential],
        "commit": [commit for _, commit in sequential],
        "both": [prepare + commit for prepare, commit in sequential],
    }
    milliseconds = {}
    for name, seconds in spans.items():
        hundredths = statistics.quantiles(seconds, n=100)
        p50, p99 = hundredths[49] * 1000, hundredths[98] * 1000
        milliseconds[name] = {"p50": round(p50, 1), "p99": round(p99, 1)}
        print(f"{name:8} p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   ({len(seconds)} saves)")
    print(f"one fsync of a small file here: {fsync_seconds * 1000:.1f} ms")
    requests = 2 * saves_per_second
    print(f"{clients} clients: {requests:.0f} requests/s, bare route {bare_per_second:.0f}/s")
    print(
        json.dumps(
            {
                "milliseconds": milliseconds,
                "fsync_milliseconds": round(fsync_seconds * 1000, 2),
                "requests_per_second": round(requests, 1),
                "bare_requests_per_second": round(bare_per_second, 1),
                "ratio": round(requests / bare_per_second, 3),
            }
        )
    )


if __name__ == "__main__":
    sys.exit(main())
