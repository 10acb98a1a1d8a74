"""How fast the runner's client sends a checkpoint to S3 and fetches it, against rclone and boto3,
on one real S3 server in one run; and how much a commit reads.

    python bench/s3_transfer.py           1 GiB in 8 shards; a quarter of an hour, 9 GiB of memory
    python bench/s3_transfer.py --bytes 64MiB --rounds 1       a quick look

The server is a Ceph gateway on loopback that keeps everything in memory, a new one for the uploads
and one for the downloads of each round, so that none finds less memory than the one before; a
coordinator process grants presigned URLs. All send with the same number of connections
(`--at-once`), each in a process of its own. Two that are compared go beside each other, each time
with another one first, and nobody pays for memory that the machine has to find first. Every time is
the median of all tries, nine uploads and twelve downloads of each in three rounds: one try differs
by half from the next on a machine that the server shares, and whoever has the luckiest one wins a
comparison of bests. Processor time, which the server does not share, is printed beside the clock.
The last line is JSON.

    upload      bytes per second until the server has every part, SHA-256 of each object included
                / `rclone copy` (at least 0.9), / boto3's transfer manager (at least 1.0)
    download    into a folder, every SHA-256 compared, / the same two (0.9 and 1.0): rclone compares
                an MD5, boto3 nothing; what a SHA-256 alone costs is printed beside the processor
                times. "verified too": / the same with a SHA-256 pass over what they fetched.
                "durable both": until it is on the disk, ours by `durable=True`, which is the
                default, theirs by a sync
    single      the same of one file instead of shards
    cpu         processor seconds of the client for each GiB
    read        bytes that a commit reads per committed byte: where the store attests the SHA-256 of
                parts (`attested`), and where it does not (`counted`)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from client import read_size, serving, verifying, write_files
from s3 import ceph_in, cpu_seconds, plain_client, rclone

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.catalog.settings.tokens import create_project_key
from lastgood.flows.settings.apply import apply
from lastgood.runner import Workload, upload
from lastgood.runner.working.pace import FIRST
from lastgood.stack.ceph import Ceph
from lastgood.stack.postgres import EmbeddedPostgres
from tests.ceph.attesting import AttestingServer
from tests.ceph.fixtures import environment_of
from tests.faults.s3_proxy import S3Proxy

TARGETS = {"rclone": 0.9, "boto3": 1.0}  # of the time that the others take
ALSO = ("verified", "durable")
PART_BYTES = 64 << 20  # what everybody sends at once
CONFIGURATION = {
    "policies/bench.yaml": "name: bench\nroles:\n  hot: {keep: newest, count: 99}\n"
    "gate: {level: checksum}\n",
    "stores/bench.yaml": "name: bench\nkind: s3\nbucket: {way}\nfailure_domain: here\ntier: fast\n",
    "projects/bench.yaml": "name: bench\nowner: bench\nstore: bench\npolicy: bench\n"
    "finding_owner: bench\nfinding_deadline: 1d\n",
}


# What runs in a process of its own: `python bench/s3_transfer.py --client NAME FOLDER`


def save(files: Path, at_once: int) -> dict[str, float]:
    with _workload() as workload, workload.acquire() as run:
        sizes = {file.name: file.stat().st_size for file in files.iterdir()}
        with measuring() as cost:
            ticket = run.begin_save(sizes, step=1)
            records = upload(ticket, files, workers=at_once)
        sent = time.perf_counter()
        run.commit(ticket, records)
        return cost | {"commit_seconds": time.perf_counter() - sent}


def fetch(files: Path, at_once: int, *, durable: bool = False) -> dict[str, float]:
    with _folder(files) as folder, _workload() as workload:
        with measuring() as cost:
            workload.download("latest", folder / "restored", workers=at_once, durable=durable)
        return cost


def fetch_durably(files: Path, at_once: int) -> dict[str, float]:
    return fetch(files, at_once, durable=True)


def boto3_up(files: Path, at_once: int) -> dict[str, float]:
    with _manager(at_once) as manager, measuring() as cost:
        sending = [manager.upload(str(file), "boto3", file.name) for file in files.iterdir()]
        for one in sending:
            one.result()
    return cost


def boto3_down(files: Path, at_once: int) -> dict[str, float]:
    with _folder(files) as folder, _manager(at_once) as manager:
        with measuring() as cost:
            arriving = [
                manager.download("boto3", file.name, str(folder / file.name))
                for file in files.iterdir()
            ]
            for one in arriving:
                one.result()
        return cost | until_sure(cost, folder)


def rclone_up(files: Path, at_once: int) -> dict[str, float]:
    with measuring() as cost:
        rclone(_ceph(), "copy", *_as_many(at_once), "--ignore-times", str(files), "ceph:rclone")
    return cost


def rclone_down(files: Path, at_once: int) -> dict[str, float]:
    with _folder(files) as folder:
        with measuring() as cost:
            rclone(_ceph(), "copy", *_as_many(at_once), "ceph:rclone", str(folder))
        return cost | until_sure(cost, folder)


# Each fetches what it sent itself, from its own bucket: rclone compares an MD5 that it has kept
# beside a large object.
CLIENTS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "upload.ours": save,
    "download.ours": fetch,
    "durable.ours": fetch_durably,
    "upload.rclone": rclone_up,
    "download.rclone": rclone_down,
    "upload.boto3": boto3_up,
    "download.boto3": boto3_down,
}


# Who goes beside whom in a round, and how often: more often where it is close.
UPLOADS = (
    (("upload.ours", "upload.boto3"), 3),
    (("upload.rclone",), 1),
)
DOWNLOADS = (
    (("download.ours", "download.boto3"), 4),
    (("durable.ours", "download.rclone"), 2),
)
Turns = Sequence[tuple[Sequence[str], int]]
Ask = Callable[[str], dict[str, float]]


def run_client(name: str, files: Path, at_once: int) -> None:
    measured = CLIENTS[name](files, at_once)
    who = resource.RUSAGE_CHILDREN if "rclone" in name else resource.RUSAGE_SELF
    print(json.dumps(measured | {"peak_bytes": resource.getrusage(who).ru_maxrss << 10}))


@contextmanager
def measuring() -> Iterator[dict[str, float]]:
    """The seconds of the block by the clock, and of processors; known when it ends."""
    cost: dict[str, float] = {}
    cpu_before, began = cpu_seconds(), time.perf_counter()
    yield cost
    cost |= {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu_before}


def until_sure(cost: Mapping[str, float], folder: Path) -> dict[str, float]:
    """The seconds until what was fetched would outlive a power cut, and those until its SHA-256 is
    known, as of ours they are."""
    began = time.perf_counter()
    for file in folder.iterdir():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    synced = time.perf_counter()
    with ThreadPoolExecutor(FIRST) as pool:
        list(pool.map(_sha256, folder.iterdir()))
    return {
        "durable_seconds": cost["seconds"] + synced - began,
        "verified_seconds": cost["seconds"] + time.perf_counter() - synced,
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_seconds() -> float:
    """Of a processor, for a GiB that is in its cache."""
    digest, block = hashlib.sha256(), memoryview(bytes(512 << 10))
    before = cpu_seconds()
    for _ in range((1 << 30) // len(block)):
        digest.update(block)
    return cpu_seconds() - before


def _workload() -> Workload:
    return Workload(os.environ["BENCH_URL"], os.environ["BENCH_KEY"], workload="w", stage="s")


def _ceph() -> Ceph:
    return Ceph(**json.loads(os.environ["BENCH_CEPH"]))


@contextmanager
def _manager(at_once: int) -> Iterator[Any]:
    from boto3.s3.transfer import TransferConfig, create_transfer_manager

    parts = TransferConfig(
        multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=at_once
    )
    with create_transfer_manager(plain_client(_ceph()), parts) as manager:
        yield manager


def _as_many(at_once: int) -> list[str]:
    """As many connections in all, whatever the number of files."""
    parts = ["--s3-upload-concurrency", os.environ["BENCH_PARTS"]]
    streams = ["--multi-thread-streams", os.environ["BENCH_PARTS"]]
    size = f"{PART_BYTES >> 20}Mi"
    files = ["--transfers", str(max(1, at_once // int(os.environ["BENCH_PARTS"])))]
    return [*files, *parts, *streams, "--s3-chunk-size", size, "--s3-upload-cutoff", size]


@contextmanager
def _folder(files: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=files.parent) as folder:
        yield Path(folder)


# The service


@contextmanager
def service(ceph: Ceph, folder: Path, way: str, endpoint: str) -> Iterator[dict[str, str]]:
    """A coordinator whose store is a bucket behind the endpoint; the environment of its clients."""
    plain_client(ceph).create_bucket(Bucket=way)
    with (
        EmbeddedPostgres.start(folder / f"postgres-{way}", durable=True) as server,
        environment_of(ceph, endpoint),
    ):
        server.create_role("bench_owner")
        server.create_role("bench_app")
        server.create_database("bench", owner="bench_owner")
        migrate(server.dsn("bench", "bench_owner"), app_role="bench_app")
        dsn = server.dsn("bench", "bench_app")
        with Catalog(dsn) as catalog:
            apply(catalog, write_configuration(folder / f"config-{way}", way), actor="operator:b")
            with catalog.transaction() as tx:
                key = create_project_key(tx, "bench", "bench")
            # Small commits are read in the coordinator, large ones by whoever comes for them.
            reading = verifying(catalog) if way == "plain" else nullcontext()
            with serving(dsn) as url, reading:
                yield {"BENCH_URL": url, "BENCH_KEY": key}


def write_configuration(folder: Path, way: str) -> Path:
    for path, text in CONFIGURATION.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if "policies" in path else text.format(way=way))
    return folder


# The run


def ask_client(
    name: str, files: Path, at_once: int, environment: Mapping[str, str]
) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--client", name, str(files), "--at-once", str(at_once)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def find_memory(folder: Path, size_bytes: int) -> None:
    """Have the machine find memory for as many bytes of files: a virtual one gets it from its host,
    and the first to write there would pay for that."""
    scratch = folder / "scratch"
    with scratch.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(bytes(1 << 20))
    scratch.unlink()


def in_turns(turns: Turns, number: int) -> Iterator[str]:
    """The names of who goes next in a round."""
    for names, times in turns:
        for turn in range(times):
            first = (number + turn) % len(names)
            yield from (*names[first:], *names[:first])


@contextmanager
def served(folder: Path, files: Path, at_once: int) -> Iterator[Ask]:
    """A server and a coordinator; a function that has a client work with them."""
    folder.mkdir()
    with ceph_in(folder) as ceph, service(ceph, folder, "plain", ceph.endpoint) as service_of:
        environment = {
            **service_of,
            "BENCH_CEPH": json.dumps(vars(ceph)),
            "BENCH_PARTS": str(at_once if len(list(files.iterdir())) == 1 else 1),
        }
        for name in TARGETS:
            plain_client(ceph).create_bucket(Bucket=name)

        def ask(name: str) -> dict[str, float]:
            return ask_client(name, files, at_once, environment)

        yield ask


def tries(ask: Ask, files: Path, turns: Turns, number: int) -> Iterator[tuple[str, float]]:
    """What each client measured in one round: its times and its peak of memory, by name."""
    size_bytes = sum(file.stat().st_size for file in files.iterdir())
    for name in in_turns(turns, number):
        find_memory(files.parent, size_bytes)
        os.sync()  # nobody pays for what another one left to be written
        measured = ask(name)
        yield from ((f"{name}.{value}", amount) for value, amount in measured.items())
        seconds, cpu = measured["seconds"], measured["cpu_seconds"]
        print(f"  {name}: {seconds:.3f} s, {cpu:.3f} s of processors", flush=True)


def transfers(folder: Path, files: Path, at_once: int, rounds: int) -> dict[str, float]:
    """The median of what each client measured in all rounds, by name."""
    measured: dict[str, list[float]] = {}
    for number in range(rounds):
        print(f"{files.name}, round {number + 1}", flush=True)
        with served(folder / f"{files.name}-uploads-{number}", files, at_once) as ask:
            for key, amount in tries(ask, files, UPLOADS, number):
                measured.setdefault(key, []).append(amount)
        with served(folder / f"{files.name}-downloads-{number}", files, at_once) as ask:
            for name in ("ours", *TARGETS):
                ask(f"upload.{name}")
            for key, amount in tries(ask, files, DOWNLOADS, number):
                measured.setdefault(key, []).append(amount)
    return {key: median(amounts) for key, amounts in measured.items()}


def bytes_read(ceph: Ceph, folder: Path, files: Path, at_once: int) -> dict[str, float]:
    """Bytes that the server gave out for a commit, per byte committed."""
    size_bytes = sum(file.stat().st_size for file in files.iterdir())
    found = {}
    servers: dict[str, AbstractContextManager[AttestingServer | S3Proxy]]
    servers = {
        "attested": AttestingServer(ceph.endpoint).running(),
        "counted": S3Proxy(ceph.endpoint).running(),
    }
    for way, running in servers.items():
        with running as server, service(ceph, folder, way, server.endpoint) as service_of:
            before = server.read_bytes
            ask_client("upload.ours", files, at_once, service_of)
            found[way] = (server.read_bytes - before) / size_bytes
    return found


def judge(found: Mapping[str, Any]) -> dict[str, tuple[float, float | None]]:
    """How many times as fast we are, and how many we ought to be."""
    verdicts: dict[str, tuple[float, float | None]] = {}
    for kind in ("shards", "single"):
        times = found[kind]
        for what in ("upload", "download"):
            for other, target in TARGETS.items():
                ratio = times[f"{what}.{other}.seconds"] / times[f"{what}.ours.seconds"]
                verdicts[f"{kind}: {what} / {other}"] = (ratio, target)
        for other in TARGETS:
            theirs = {name: times[f"download.{other}.{name}_seconds"] for name in ALSO}
            ratio = theirs["verified"] / times["download.ours.seconds"]
            verdicts[f"{kind}: download / {other}, verified too"] = (ratio, None)
            ratio = theirs["durable"] / times["durable.ours.seconds"]
            verdicts[f"{kind}: download / {other}, durable both"] = (ratio, None)
    for name, amount in found["read"].items():
        verdicts[f"bytes read per committed byte, {name}"] = (amount, None)
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=read_size, default=1 << 30, help="as in 64MiB")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=4, help="connections of each client")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        run_client(options.client[0], Path(options.client[1]), options.at_once)
        return
    folder = Path(tempfile.mkdtemp(prefix=f"lastgood-bench-{uuid4().hex[:4]}", dir=options.folder))
    try:
        found = measure(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for kind in ("shards", "single"):
        for name in CLIENTS:
            cpu = found[kind][f"{name}.cpu_seconds"] / options.bytes * (1 << 30)
            print(f"{kind}: {name}: {cpu:.2f} processor seconds for each GiB")
    print(f"SHA-256 alone: {sha256_seconds():.2f} processor seconds for each GiB")
    verdicts = judge(found)
    for name, (value, target) in verdicts.items():
        if target is None:
            print(f"{name}: {value:.3g}")
        else:  # to a hundredth, which is less than two runs differ by
            verdict = "meets" if round(value, 2) >= target else "MISSES"
            print(f"{name}: {value:.2f} {verdict} its target, {target}")
    figures = {name: round(value, 4) for name, (value, _) in verdicts.items()}
    print(json.dumps({"bytes": options.bytes, "at_once": options.at_once} | figures | found))


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, number in (("shards", options.shards), ("single", 1)):
        files = write_files(folder / kind, options.bytes, number)
        found[kind] = transfers(folder, files, options.at_once, options.rounds)
    few = write_files(folder / "few", min(options.bytes, 64 << 20), 4)
    with ceph_in(folder) as ceph:
        found["read"] = bytes_read(ceph, folder, few, options.at_once)
    return found


if __name__ == "__main__":
    main()
