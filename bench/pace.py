"""What the measured number of connections brings where each carries little, and costs where a few
fill the way.

    python bench/pace.py                  1 GiB in 64 shards, each connection held to 16 MiB/s
    python bench/pace.py --bytes 256MiB --each 0       nothing held back

The server is a Ceph gateway on loopback behind a relay that lets so many bytes a second through
each connection, as a long way or a store's front end does. The last line is JSON.

    fixed N     seconds of an upload and of a download by N connections
    measured    the same where nothing is said: from 4 connections up to 16
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from client import read_size, write_files
from s3 import ceph_in
from s3_transfer import service

from lastgood.runner import Workload, upload
from lastgood.runner.working.pace import FIRST, MOST

CHUNK_BYTES = 64 << 10
LIMIT_BYTES = 1 << 20  # of what may be read ahead of the pace


class Relay:
    """Passes bytes on to `target`; each connection carries `each_bytes` a second, both ways alike,
    or all that it can if that is 0."""

    def __init__(self, target: str, each_bytes: int) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname, parts.port
        self._each_bytes = each_bytes
        self.endpoint = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        listens = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._listen(listens)))
        thread.start()
        listens.wait()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()

    async def _listen(self, listens: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT_BYTES)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        listens.set()
        await self._over.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(self._host, self._port, limit=LIMIT_BYTES)
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        free_at = 0.0
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
            if self._each_bytes:
                now = time.monotonic()
                free_at = max(free_at, now) + len(chunk) / self._each_bytes
                await asyncio.sleep(free_at - now)
        sink.close()


def seconds(files: Path, folder: Path, workers: int | None) -> dict[str, float]:
    """How long a save's upload and a download take."""
    key = os.environ["BENCH_KEY"]
    with Workload(os.environ["BENCH_URL"], key, workload="w", stage="s") as workload:
        with workload.acquire() as run:
            sizes = {file.name: file.stat().st_size for file in files.iterdir()}
            ticket = run.begin_save(sizes, step=1)
            began = time.perf_counter()
            records = upload(ticket, files, workers=workers)
            sent = time.perf_counter()
            run.commit(ticket, records)
        found = {"upload": sent - began}
        began = time.perf_counter()
        workload.download("latest", folder / f"restored-{workers}", workers=workers, durable=False)
        return found | {"download": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=read_size, default=1 << 30, help="as in 64MiB")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--each", type=read_size, default=16 << 20, help="bytes a second")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-"))
    ways = {f"fixed {FIRST}": FIRST, f"fixed {MOST}": MOST, "measured": None}
    found = {}
    try:
        files = write_files(folder / "shards", options.bytes, options.shards)
        with ceph_in(folder) as ceph:
            relay = Relay(ceph.endpoint, options.each)
            with relay.running(), service(ceph, folder, "plain", relay.endpoint) as service_of:
                os.environ.update(service_of)
                for name, workers in ways.items():
                    found[name] = seconds(files, folder, workers)
                    shown = ", ".join(f"{what} {took:.1f} s" for what, took in found[name].items())
                    print(f"{name}: {shown}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"bytes": options.bytes, "each": options.each} | found))


if __name__ == "__main__":
    main()
