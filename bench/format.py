"""How fast the tensors of a checkpoint are loaded and looked at, against hashing it once.

    .venv/bin/python bench/format.py [--mebibytes 2048] [--shards 4] [--rounds 3] [--folder DIR]

The checkpoint is safetensors, half of it F32 and half BF16, read from the page cache. The probe
runs as it does in a validation: its own interpreter, isolated, started anew each time. Rounds
alternate, and the best of each counts: others may be using the machine. Targets for 2 GiB: at most
1.5 times as long as reading and hashing, and at its peak less than 1.2 times the memory of the
largest shard.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.rules.names import ProjectName, StageName, WorkloadName
from lastgood.validators.formatting import FormatFinding, check_format
from lastgood.validators.isolation import Limits

SLOWEST, MOST_MEMORY = 1.5, 1.2
TENSOR_BYTES = 16 << 20
PIECE_BYTES = 1 << 20


def main() -> int:
    arguments = parsed()
    shard_bytes = (arguments.mebibytes << 20) // arguments.shards // TENSOR_BYTES * TENSOR_BYTES
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder) / "checkpoint"
        root.mkdir()
        manifest = filled(root, arguments.shards, shard_bytes)
        hashed, probed, peak = [], [], 0
        for number in range(arguments.rounds):
            hashed.append(hash_once(root))
            finding, seconds = probe(root, manifest, Path(folder) / str(number))
            probed.append(seconds)
            peak = max(peak, finding.outcome.memory_peak_bytes)
    return report(min(hashed), min(probed), peak, shard_bytes, manifest.size_bytes)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed and memory of format validation.")
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to put the files; default: the temporary folder")
    return parser.parse_args()


def filled(root: Path, shards: int, shard_bytes: int) -> Manifest:
    """Write the shards; the values are random and finite."""
    random = np.random.default_rng(1)
    block = random.normal(size=TENSOR_BYTES // 8).astype("<f4").tobytes()
    half = (random.integers(0, 0x7F00, size=TENSOR_BYTES // 4, dtype="<u2")).tobytes()
    objects = []
    for shard in range(shards):
        path = f"model-{shard}.safetensors"
        count = shard_bytes // (TENSOR_BYTES // 2)
        header = json.dumps({f"layer{n}": entry(n) for n in range(count)}).encode()
        with (root / path).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for number in range(count):
                file.write(half if number % 2 else block)
        objects.append(ManifestObject(path, (root / path).stat().st_size, "0" * 64))
    return Manifest(
        ProjectName("bench"), WorkloadName("format"), StageName("s"), 1, 0, 1, tuple(objects)
    )


def entry(number: int) -> dict[str, object]:
    """Every other tensor is BF16; each has half a TENSOR_BYTES."""
    size = TENSOR_BYTES // 2
    dtype, width = ("BF16", 2) if number % 2 else ("F32", 4)
    offsets = [number * size, (number + 1) * size]
    return {"dtype": dtype, "shape": [size // width], "data_offsets": offsets}


def hash_once(root: Path) -> float:
    buffer = memoryview(bytearray(PIECE_BYTES))
    begin = time.perf_counter()
    for path in sorted(root.iterdir()):
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
        digest.hexdigest()
    return time.perf_counter() - begin


def probe(root: Path, manifest: Manifest, scratch: Path) -> tuple[FormatFinding, float]:
    scratch.mkdir()
    begin = time.perf_counter()
    finding = check_format(root, manifest, scratch, Limits())
    seconds = time.perf_counter() - begin
    if finding.verdict != "pass":
        sys.exit(f"the checkpoint did not pass: {finding}")
    return finding, seconds


def report(hashed: float, probed: float, peak_bytes: int, shard_bytes: int, size_bytes: int) -> int:
    ratio, share = probed / hashed, peak_bytes / shard_bytes
    print(
        f"{size_bytes >> 20} MiB, largest shard {shard_bytes >> 20} MiB, {os.cpu_count()} cores:\n"
        f"  read and hash once   {hashed:6.2f} s  {size_bytes / hashed / 1e6:7.0f} MB/s\n"
        f"  validate the format  {probed:6.2f} s  {size_bytes / probed / 1e6:7.0f} MB/s\n"
        f"  {ratio:.2f} times as long (target {SLOWEST}), peak memory {peak_bytes >> 20} MiB,"
        f" {share:.2f} of the largest shard (target {MOST_MEMORY})"
    )
    print(
        json.dumps(
            {
                "bench": "format",
                "mebibytes": size_bytes >> 20,
                "times_hashing": round(ratio, 3),
                "peak_over_largest_shard": round(share, 3),
            }
        )
    )
    return 0 if ratio <= SLOWEST and share < MOST_MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
