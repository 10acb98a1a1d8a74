"""How fast the runner saves and downloads, against the tools that everybody has.

    python bench/client.py                       2 GiB in 16 shards; some minutes, 8 GiB of disk
    python bench/client.py --bytes 64MiB         a quick look

One PostgreSQL, one coordinator process, one file store reached in two ways. Each client runs in a
process of its own, so that its memory is its own. All ratios come from one run; every time is the
best of `--rounds`, taken in turns with what it is compared to. The last line is JSON.

    save-direct     prepare, and copy into the store's folder while hashing, until it is on the disk
                    / `cp` plus one SHA-256 pass over as many bytes in memory;
                    durable: / the same, with `cp` followed by `sync`
    save-endpoint   through the coordinator, until the checkpoint is committed
                    / `cp` plus `sha256sum` of the same files
    blocked         how long `save_in_background` holds the trainer / how long `save` does
    peak memory     of the client, saving and downloading
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.catalog.settings.tokens import create_project_key
from lastgood.flows.jobs import commit, verify
from lastgood.flows.services import stores_of
from lastgood.flows.settings.apply import apply
from lastgood.runner import Workload, upload
from lastgood.stack.ports import LOOPBACK, held_port
from lastgood.stack.postgres import EmbeddedPostgres

WAYS = ("direct", "endpoint")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MEMORY_LIMIT_BYTES = 300 << 20


# What runs in a process of its own: `python bench/client.py --client NAME FOLDER`


def save_direct(workload: Workload, files: Path) -> dict[str, float]:
    """Sending, and apart from it the commit with the coordinator's own reading."""
    with workload.acquire() as run:
        sizes = {file.name: file.stat().st_size for file in files.iterdir()}
        began = time.perf_counter()
        ticket = run.begin_save(sizes, step=1)
        prepared = time.perf_counter()
        records = upload(ticket, files)
        sent = time.perf_counter()
        run.commit(ticket, records)
        return {
            "seconds": sent - began,
            "prepare_seconds": prepared - began,
            "commit_seconds": time.perf_counter() - sent,
        }


def save_endpoint(workload: Workload, files: Path) -> dict[str, float]:
    with workload.acquire() as run:
        began = time.perf_counter()
        run.save(files, step=1)
        return {"seconds": time.perf_counter() - began}


def save_in_background(workload: Workload, files: Path) -> dict[str, float]:
    """How long the trainer is held."""
    with workload.acquire() as run:
        began = time.perf_counter()
        saving = run.save_in_background(files, step=1)
        blocked = time.perf_counter() - began
        assert saving is not None
        saving.result()
        return {"seconds": blocked}


def download(workload: Workload, files: Path) -> dict[str, float]:
    """Of what was saved last; the bytes are compared."""
    with tempfile.TemporaryDirectory(dir=files.parent) as folder:
        began = time.perf_counter()
        workload.download("latest", Path(folder) / "restored")
        return {"seconds": time.perf_counter() - began}


CLIENTS: dict[str, Callable[[Workload, Path], dict[str, float]]] = {
    "save-direct": save_direct,
    "save-endpoint": save_endpoint,
    "background": save_in_background,
    "download": download,
}


def run_client(name: str, files: Path) -> None:
    workload = Workload(
        os.environ["BENCH_URL"], os.environ["BENCH_KEY"], workload="bench", stage="bench"
    )
    measured = CLIENTS[name](workload, files)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps(measured | {"peak_bytes": peak_bytes}))


# What it is compared to


def time_cp(files: Path) -> dict[str, float]:
    """The copying, and apart from it until the copies are on the disk, as a checkpoint must be."""
    with tempfile.TemporaryDirectory(dir=files.parent) as folder:
        copying = _seconds(["cp", "-r", str(files), folder])
        copies = [str(file) for file in Path(folder, files.name).iterdir()]
        return {"seconds": copying, "durable_seconds": copying + _seconds(["sync", *copies])}


def time_sha256sum(files: Path) -> float:
    return _seconds(["sha256sum", *(str(file) for file in files.iterdir())])


def time_sha256_in_memory(size_bytes: int) -> float:
    block = os.urandom(1 << 20)
    digest = hashlib.sha256()
    began = time.perf_counter()
    for _ in range(size_bytes >> 20):
        digest.update(block)
    return time.perf_counter() - began


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


# The service


CONFIGURATION = {
    "policies/bench.yaml": "name: bench\nroles:\n  hot: {keep: newest, count: 9}\n"
    "gate: {level: checksum}\n",
    "stores/{way}.yaml": "name: {way}\nkind: file\nroot: {root}/{way}\ndirect: {direct}\n"
    "failure_domain: here\ntier: fast\n",
    "projects/{way}.yaml": "name: {way}\nowner: bench\nstore: {way}\npolicy: bench\n"
    "finding_owner: bench\nfinding_deadline: 1d\n",
}


@contextmanager
def service(folder: Path) -> Iterator[dict[str, dict[str, str]]]:
    """A coordinator; by way, the environment that its clients need."""
    with EmbeddedPostgres.start(folder / "postgres", durable=True) as server:
        server.create_role("bench_owner")
        server.create_role("bench_app")
        server.create_database("bench", owner="bench_owner")
        migrate(server.dsn("bench", "bench_owner"), app_role="bench_app")
        dsn = server.dsn("bench", "bench_app")
        with Catalog(dsn) as catalog:
            apply(catalog, write_configuration(folder), actor="operator:bench")
            with catalog.transaction() as tx:
                keys = {way: create_project_key(tx, way, "bench") for way in WAYS}
            with serving(dsn) as url, verifying(catalog):
                yield {way: {"BENCH_URL": url, "BENCH_KEY": key} for way, key in keys.items()}


def write_configuration(folder: Path) -> Path:
    for path, text in CONFIGURATION.items():
        for way in WAYS:
            said = {"way": way, "root": folder / "stores", "direct": str(way == "direct").lower()}
            file = folder / "config" / path.format(**said)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text if "policies" in path else text.format(**said))
    return folder / "config"


@contextmanager
def serving(dsn: str) -> Iterator[str]:
    """The coordinator in a process of its own."""
    with held_port() as port:
        code = f"from lastgood.coordinator.serve import serve; serve('{LOOPBACK}', {port})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"LASTGOOD_CATALOG": dsn},
            stderr=subprocess.DEVNULL,
        )
        try:
            while not _listens(port):
                time.sleep(0.05)
            yield f"http://{LOOPBACK}:{port}"
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def verifying(catalog: Catalog) -> Iterator[None]:
    """The reading part of large commits, which the scheduler's workers do elsewhere."""
    over = threading.Event()
    stores = stores_of(catalog)

    def work() -> None:
        while not over.wait(0.2):
            for attempt in verify.pending(catalog):
                commit.finish(catalog, stores, attempt)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


# The run


def measure(files: Path, service_of: dict[str, dict[str, str]], rounds: int) -> dict[str, Any]:
    """Every time, and the highest memory, as `name.value`."""
    size_bytes = sum(file.stat().st_size for file in files.iterdir())
    plans: dict[str, Callable[[], dict[str, float]]] = {
        "cp": lambda: time_cp(files),
        "sha256sum": lambda: {"seconds": time_sha256sum(files)},
        "sha256": lambda: {"seconds": time_sha256_in_memory(size_bytes)},
        "save-direct": lambda: ask_client("save-direct", files, service_of["direct"]),
        "save-endpoint": lambda: ask_client("save-endpoint", files, service_of["endpoint"]),
        "background": lambda: ask_client("background", files, service_of["endpoint"]),
        "download": lambda: ask_client("download", files, service_of["endpoint"]),
    }
    found: dict[str, Any] = {}
    for _ in range(rounds):
        for name, plan in plans.items():
            os.sync()  # nobody pays for what another one left to be written
            for value, amount in plan().items():
                best = max if value == "peak_bytes" else min
                key = f"{name}.{value}"
                found[key] = best(found.get(key, amount), amount)
            print(f"{name}: {found[f'{name}.seconds']:.3f} s", flush=True)
    return found


def ask_client(name: str, files: Path, environment: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--client", name, str(files)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def judge(found: dict[str, Any]) -> dict[str, tuple[float, bool]]:
    """Each figure that has a target, and whether it was met."""
    copy, hashing = found["cp.seconds"], found["sha256.seconds"]
    direct = (copy + hashing) / found["save-direct.seconds"]
    durable = (found["cp.durable_seconds"] + hashing) / found["save-direct.seconds"]
    endpoint = (copy + found["sha256sum.seconds"]) / found["save-endpoint.seconds"]
    blocked = found["background.seconds"] / found["save-endpoint.seconds"]
    peak = max(value for name, value in found.items() if name.endswith(".peak_bytes"))
    return {
        "save-direct": (direct, direct >= 0.8),
        "save-direct-durable": (durable, durable >= 0.8),
        "save-endpoint": (endpoint, endpoint >= 0.5),
        "blocked": (blocked, blocked < 0.1),
        "peak_bytes": (peak, peak < MEMORY_LIMIT_BYTES),
    }


def write_files(folder: Path, size_bytes: int, shards: int) -> Path:
    folder.mkdir()
    block = os.urandom(1 << 20)
    for number in range(shards):
        with (folder / f"shard{number:02}").open("wb") as file:
            left_bytes = size_bytes // shards
            file.write(number.to_bytes(4))
            left_bytes -= 4
            while left_bytes > 0:
                left_bytes -= file.write(block[:left_bytes])
    return folder


def read_size(text: str) -> int:
    """Bytes, as in 64MiB."""
    found = re.fullmatch(r"([0-9]+)(|KiB|MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; say it as in 64MiB")
    return int(found[1]) * UNITS[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=read_size, default=2 << 30, help="as in 64MiB")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        run_client(options.client[0], Path(options.client[1]))
        return
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-", dir=options.folder))
    try:
        files = write_files(folder / "files", options.bytes, options.shards)
        with service(folder) as service_of:
            found = measure(files, service_of, options.rounds)
    finally:
        shutil.rmtree(folder)
    verdicts = judge(found)
    for name, (value, met) in verdicts.items():
        print(f"{name}: {value:.3g} {'meets' if met else 'MISSES'} its target")
    print(
        json.dumps(
            {"bytes": options.bytes, "shards": options.shards, "rounds": options.rounds}
            | {name: value for name, (value, _) in verdicts.items()}
            | {"measured": found}
        )
    )


if __name__ == "__main__":
    main()
