"""How fast a bucket is listed, freed of incomplete uploads and emptied, against the tools that
everybody has, on one real S3 server in one run.

    python bench/s3.py                                    100,000 keys, 5,000 uploads; some minutes
    python bench/s3.py --keys 5000 --uploads 200          a quick look

The server is a Ceph gateway on loopback, of Debian's packages `radosgw ceph-mon ceph-osd`. Every
time is the best of `--rounds`, taken in turns with what it is compared to; deletions cannot be
repeated. The last line is JSON. A figure "ours / theirs" is how many times as fast we are.

    listing     keys per second: `Store.list` / obstore (at least 0.8), / boto3's paginator (at
                least 4), / `rclone size`; and the CPU per key of each
    uploads     inventory with the bytes of all parts, then aborts until the server knows them no
                more / `rclone backend cleanup`, which aborts and does not look again
    deletion    `Store.delete`, with an outcome for each key / `rclone delete`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import obstore
from obstore.store import S3Store as ObstoreS3

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lastgood.stack.ceph import Ceph, missing_programs, stop
from lastgood.stores.base import Outcome, Prefix
from lastgood.stores.begun import several
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import client_of

WRITERS = 24
EVERYTHING = Prefix("")
Contest = Mapping[str, Callable[[], int]]


@contextmanager
def ceph_in(folder: Path) -> Iterator[Ceph]:
    """A Ceph node of our own, gone at the end."""
    missing = missing_programs()
    if missing:
        raise SystemExit(f"{', '.join(missing)} not found: install radosgw ceph-mon ceph-osd")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing stays behind then, either
    try:
        yield Ceph.start(folder / "ceph")
    finally:
        stop(folder / "ceph")


def rclone(ceph: Ceph, *arguments: str) -> str:
    """What an rclone prints, whose remote `ceph:` is the server."""
    settings = {
        "TYPE": "s3",
        "PROVIDER": "Ceph",
        "ENDPOINT": ceph.endpoint,
        "ACCESS_KEY_ID": ceph.access_key,
        "SECRET_ACCESS_KEY": ceph.secret_key,
    }
    environment = {k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"}  # it ends over it
    environment |= {f"RCLONE_CONFIG_CEPH_{name}": value for name, value in settings.items()}
    done = subprocess.run(
        ["rclone", "--config", "/dev/null", "--s3-no-check-bucket", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"rclone {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def plain_client(ceph: Ceph) -> Any:
    """boto3 as it comes."""
    return boto3.client(
        "s3",
        endpoint_url=ceph.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ceph.access_key,
        aws_secret_access_key=ceph.secret_key,
    )


def raced(contest: Contest, rounds: int) -> dict[str, dict[str, float]]:
    """Units per second and CPU microseconds per unit, the best of the rounds for each."""
    found: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, work in contest.items():
            cpu_before, began = cpu_seconds(), time.perf_counter()
            count = work()
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
            rate, cost = count / seconds, cpu / count * 1e6
            best = found.setdefault(name, {"per_second": rate, "cpu_us": cost})
            best["per_second"] = max(best["per_second"], rate)
            best["cpu_us"] = min(best["cpu_us"], cost)
            print(f"  {name}: {count} at {rate:,.0f}/s, {cost:.1f} us of CPU each", flush=True)
    return found


def cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def fill(bucket: ObstoreS3, count: int) -> None:
    """Objects as checkpoints name them. By obstore: boto3 would take most of the benchmark's time
    for it."""

    async def put(numbers: Iterator[int]) -> None:
        for number in numbers:
            key = f"checkpoints/llm/base/g{number // 50:06d}/model-{number % 50:05d}-of-00050.bin"
            await obstore.put_async(bucket, key, b"x" * (number % 7), use_multipart=False)

    async def put_all() -> None:
        numbers = iter(range(count))
        await asyncio.gather(*(put(numbers) for _ in range(WRITERS)))

    asyncio.run(put_all())


def obstore_of(ceph: Ceph, bucket: str) -> ObstoreS3:
    """A bucket as obstore has it."""
    return ObstoreS3(
        bucket,
        endpoint=ceph.endpoint,
        access_key_id=ceph.access_key,
        secret_access_key=ceph.secret_key,
        region="us-east-1",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


def begin_uploads(client: Any, bucket: str, count: int) -> None:
    """Incomplete uploads with one part each."""

    def begin(number: int) -> None:
        where = {"Bucket": bucket, "Key": f"checkpoints/llm/base/g{number:06d}/model.bin"}
        upload_id = client.create_multipart_upload(**where)["UploadId"]
        client.upload_part(**where, UploadId=upload_id, PartNumber=1, Body=b"part")

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(begin, range(count)))


def listing(ceph: Ceph, store: S3Store, rounds: int) -> dict[str, dict[str, float]]:
    """The same bucket by everybody."""
    bare = obstore_of(ceph, store.bucket)

    def ours() -> int:
        found = store.list(EVERYTHING)
        count = sum(1 for _ in found)
        assert found.complete
        return count

    def boto3s() -> int:
        pages = plain_client(ceph).get_paginator("list_objects_v2").paginate(Bucket=store.bucket)
        return sum(len(page["Contents"]) for page in pages)

    def rclones() -> int:
        told = rclone(ceph, "size", "--json", "--fast-list", f"ceph:{store.bucket}")
        return int(json.loads(told)["count"])

    contest: Contest = {
        "ours": ours,
        "obstore": lambda: sum(len(page) for page in obstore.list(bare, chunk_size=1000)),
        "boto3": boto3s,
        "rclone": rclones,
    }
    return raced(contest, rounds)


def clean_up(ceph: Ceph, ours: S3Store, theirs: S3Store, count: int) -> dict[str, Any]:
    """Inventory and aborts, each in a bucket of its own with as many uploads."""
    for store in (ours, theirs):
        begin_uploads(ours.client, store.bucket, count)
    pending = []

    def take_inventory() -> int:
        pending.extend(ours.uploads(EVERYTHING))
        return len(pending)

    def abort() -> int:
        outcomes = several(
            lambda one: ours.abort_upload(one.key, one.upload_id), pending, over_network=True
        )
        return sum(1 for outcome in outcomes if outcome is Outcome.GONE)

    def rclones() -> int:
        rclone(ceph, "backend", "cleanup", f"ceph:{theirs.bucket}", "-o", "max-age=0s")
        return count - len(list(theirs.uploads(EVERYTHING)))

    found = raced({"inventory": take_inventory, "aborts": abort, "rclone cleanup": rclones}, 1)
    assert list(ours.uploads(EVERYTHING)) == []
    found["ours"] = {"per_second": 1 / sum(1 / found[n]["per_second"] for n in _OURS)}
    return found


_OURS = ("inventory", "aborts")


def delete(ceph: Ceph, ours: S3Store, theirs: S3Store, count: int) -> dict[str, Any]:
    """Everything in each bucket, listed first."""

    def by_outcome() -> int:
        told = list(ours.delete(list(ours.list(EVERYTHING))))
        return sum(1 for one in told if one.outcome is Outcome.GONE)

    def rclones() -> int:
        rclone(ceph, "delete", "--transfers", "16", "--checkers", "16", f"ceph:{theirs.bucket}")
        return count

    found = raced({"ours": by_outcome, "rclone delete": rclones}, 1)
    assert list(ours.list(EVERYTHING)) == [] == list(theirs.list(EVERYTHING))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--uploads", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-", dir=options.folder))
    try:
        with ceph_in(folder) as ceph:
            found = measure(ceph, options.keys, options.uploads, options.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judge(found)
    for name, (value, target) in verdicts.items():
        said = "" if target is None else " meets" if value >= target else " MISSES"
        print(f"{name}: {value:.2f}{said and f'{said} its target, {target}'}")
    figures = {name: round(value, 3) for name, (value, _) in verdicts.items()}
    print(
        json.dumps({"key_count": options.keys, "upload_count": options.uploads} | figures | found)
    )


def measure(ceph: Ceph, keys: int, uploads: int, rounds: int) -> dict[str, Any]:
    client = client_of(ceph)
    stores = {}
    for name in ("keys", "others-keys", "uploads", "others-uploads"):
        client.create_bucket(Bucket=name)
        stores[name] = S3Store(name, client, name)
    for name in ("keys", "others-keys"):
        began = time.perf_counter()
        fill(obstore_of(ceph, name), keys)
        print(f"{keys} keys were written in {time.perf_counter() - began:.0f} s", flush=True)
    found: dict[str, Any] = {}
    print("listing", flush=True)
    found["listing"] = listing(ceph, stores["keys"], rounds)
    print("incomplete uploads", flush=True)
    found["uploads"] = clean_up(ceph, stores["uploads"], stores["others-uploads"], uploads)
    print("deletion", flush=True)
    found["deletion"] = delete(ceph, stores["keys"], stores["others-keys"], keys)
    return found


def judge(found: Mapping[str, Any]) -> dict[str, tuple[float, float | None]]:
    """How many times as fast we are, and how many we ought to be."""

    def ratio(of: str, theirs: str) -> float:
        return float(found[of]["ours"]["per_second"] / found[of][theirs]["per_second"])

    return {
        "listing / obstore": (ratio("listing", "obstore"), 0.8),
        "listing / boto3": (ratio("listing", "boto3"), 4.0),
        "listing / rclone size": (ratio("listing", "rclone"), None),
        "inventory and clean-up / rclone cleanup": (ratio("uploads", "rclone cleanup"), None),
        "deletion / rclone delete": (ratio("deletion", "rclone delete"), None),
    }


if __name__ == "__main__":
    main()
