"""How fast a commit on the file store is verified, against SHA-256 of bytes that are in memory.

    .venv/bin/python bench/verify.py [--mebibytes 256] [--objects 16] [--rounds 40] [--folder DIR]

Every byte is read (nothing is taken as attested), from the page cache. Rounds of the contestants
alternate, and the best of each counts: others may be using the machine. Targets: one thread at
least 0.85 of memory, two threads at least 1.5 times one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lastgood.stores.base import Key
from lastgood.stores.file import FileStore
from lastgood.stores.hashing import ExpectedObject, cores, verify_objects

LONGEST_SECONDS = 60
PIECE_BYTES = 1 << 20


def main() -> int:
    arguments = parsed()
    size = (arguments.mebibytes << 20) // arguments.objects
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store, expected = filled(Path(folder), arguments.objects, size)
        content = memoryview((Path(folder) / expected[0].key).read_bytes())
        seconds = best_of(
            arguments.rounds,
            {
                "memory": lambda: hash_in_memory(content, arguments.objects),
                "one thread": lambda: verify(store, expected, 1),
                "two threads": lambda: verify(store, expected, 2),
            },
        )
    return report(seconds, size * arguments.objects)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed of verification on the file store.")
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--objects", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", help="where to put the store; default: the temporary folder")
    return parser.parse_args()


def filled(root: Path, objects: int, size: int) -> tuple[FileStore, list[ExpectedObject]]:
    content = os.urandom(size)
    sha256 = hashlib.sha256(content).hexdigest()
    expected = [ExpectedObject(Key(f"shard-{n:03d}"), size, sha256) for n in range(objects)]
    for one in expected:
        (root / one.key).write_bytes(content)
    return FileStore("bench", root), expected


def hash_in_memory(content: memoryview, times: int) -> None:
    for _ in range(times):
        digest = hashlib.sha256()
        for start in range(0, len(content), PIECE_BYTES):
            digest.update(content[start : start + PIECE_BYTES])
        digest.hexdigest()


def verify(store: FileStore, expected: list[ExpectedObject], threads: int) -> None:
    results = verify_objects(store, expected, threads=threads, reread=True)
    if not all(one.ok for one in results):
        raise SystemExit("verification failed: the numbers would mean nothing")


def best_of(rounds: int, contestants: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The shortest time of each, in seconds; fewer rounds where time runs out."""
    best: dict[str, float] = {}
    began = time.perf_counter()
    for _ in range(rounds):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
        if time.perf_counter() - began > LONGEST_SECONDS * 0.7:
            break
    return best


def report(seconds: dict[str, float], total_bytes: int) -> int:
    mib_per_second = {name: total_bytes / (1 << 20) / took for name, took in seconds.items()}
    one = seconds["memory"] / seconds["one thread"]
    two = seconds["one thread"] / seconds["two threads"]
    for name, rate in mib_per_second.items():
        print(f"{name:<12} {rate:8.0f} MiB/s")
    print(f"one thread / memory      {one:5.2f}   target 0.85")
    print(f"two threads / one thread {two:5.2f}   target 1.50   ({cores()} cores)")
    print(
        json.dumps(
            {
                "bench": "verify",
                "mib_per_second": {name: round(rate) for name, rate in mib_per_second.items()},
                "one_thread_over_memory": round(one, 3),
                "two_threads_over_one": round(two, 3),
            }
        )
    )
    return 0 if one >= 0.85 and two >= 1.5 else 1


if __name__ == "__main__":
    sys.exit(main())
