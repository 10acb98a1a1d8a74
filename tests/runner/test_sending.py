"""The parts of a file are sent side by side, hashed in order, and each as it is in the file."""

from __future__ import annotations

import hashlib
import random
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lastgood.errors import InvalidInput
from lastgood.runner import FileChanged, Unreachable
from lastgood.runner.disk.files import measured
from lastgood.runner.sending.file_sender import FileSender
from lastgood.runner.sending.outgoing import SEND_BUFFER_BYTES
from lastgood.runner.sending.parts import HeldPart
from lastgood.runner.sending.ticket import ObjectRecord, Slot
from lastgood.runner.wire.carrying import Chunks
from lastgood.runner.wire.client import Client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.retry import Retry, Transient

MIB = 1 << 20
PART = 1000
SIZES = {"big": 7 * PART + 1, "other": 5 * PART, "small": 10, "empty": 0}


@dataclass
class Parts:
    """Where parts go: kept, and counted while they are on their way."""

    needs_digest: bool = False
    keeps: bool = True
    meet: threading.Barrier | None = None  # parts that are on their way at the same time
    stored: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def send(self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None) -> str:
        if self.meet is not None:
            self.meet.wait(timeout=60)
        digest = hashlib.sha256()
        content = b""
        for chunk in chunks:
            digest.update(chunk)
            content += bytes(chunk) if self.keeps else b""
        self.stored[slot.path, number] = content
        assert (sha256 is not None) == self.needs_digest
        assert sha256 in (None, digest.hexdigest())
        return digest.hexdigest()


def send(
    folder: Path,
    parts: Any,
    *,
    part_bytes: int = PART,
    workers: int | Pace = 4,
    held: Sequence[tuple[str, int, HeldPart]] = (),
    answer: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(500),
) -> list[ObjectRecord]:
    client = Client.of(httpx.Client(transport=httpx.MockTransport(answer)))
    coordinator = Coordinator.at("http://127.0.0.1:1", "", retry=Retry(), client=client)
    files = measured(folder)
    sizes = {file.path: file.size_bytes for file in files}
    ticket: Any = SimpleNamespace(
        attempt="a1",
        slots={
            path: Slot(path, size, part_bytes, max(1, -(-size // part_bytes)))
            for path, size in sizes.items()
        },
    )
    before = {(path, number): part for path, number, part in held}
    progress = Progress(sum(sizes.values()))
    pace = Pace.of(workers) if isinstance(workers, int) else workers
    sender = FileSender(coordinator, ticket, parts, before, progress, pace)
    records = sender.send(files, dict.fromkeys(sizes))
    assert progress.done_bytes == progress.total_bytes
    return records


@pytest.fixture
def contents(tmp_path: Path) -> dict[str, bytes]:
    made = {path: random.Random(path).randbytes(size) for path, size in SIZES.items()}
    for path, content in made.items():
        (tmp_path / path).write_bytes(content)
    return made


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("needs_digest", [False, True])
def test_every_byte_arrives_and_is_named(
    tmp_path: Path, contents: dict[str, bytes], needs_digest: bool, workers: int
) -> None:
    parts = Parts(needs_digest)

    records = send(tmp_path, parts, workers=workers)

    for record in records:
        content = contents[record.path]
        assert record.sha256 == hashlib.sha256(content).hexdigest()
        pieces = [content[at : at + PART] for at in range(0, max(1, len(content)), PART)]
        assert record.part_sha256 == tuple(hashlib.sha256(one).hexdigest() for one in pieces)
        assert [parts.stored[record.path, n] for n in range(1, len(pieces) + 1)] == pieces
    assert {record.path for record in records} == set(contents)


def test_the_parts_of_one_file_are_on_their_way_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(8 * PART))

    send(tmp_path, Parts(meet=threading.Barrier(4)))


def test_parts_that_are_held_are_not_sent_again(tmp_path: Path, contents: dict[str, bytes]) -> None:
    right = hashlib.sha256(contents["big"][PART : 2 * PART]).hexdigest()
    held = [("big", 2, HeldPart(PART, right)), ("big", 3, HeldPart(PART, right))]
    parts = Parts()

    records = send(tmp_path, parts, held=held)

    assert ("big", 2) not in parts.stored
    assert ("big", 3) in parts.stored
    assert records[0].sha256 == hashlib.sha256(contents["big"]).hexdigest()


def test_a_store_that_asks_for_less_is_sent_half_as_much_at_a_time(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    refusals = [Transient(InvalidInput(where="s3", reason="slow down"), asks_for_less=True)]

    class Busy(Parts):
        def send(self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None) -> str:
            if refusals:
                raise refusals.pop()
            return super().send(slot, number, chunks, sha256)

    parts, pace = Busy(), Pace.of(4)
    send(tmp_path, parts, workers=pace)

    assert len(parts.stored) == 15
    assert pace.workers == 2


def test_only_after_a_lost_answer_is_asked_whether_the_part_arrived_and_only_of_its_object(
    tmp_path: Path, contents: dict[str, bytes]
) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        digest = hashlib.sha256(parts.stored["big", 2]).hexdigest()
        held = [{"number": 2, "bytes": PART, "sha256": digest}]
        return httpx.Response(200, json={"parts": [{"path": "big", "held": held}]})

    class Failing(Parts):
        def send(self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None) -> str:
            received = super().send(slot, number, chunks, sha256)
            if failures and (slot.path, number) == ("big", 2):
                raise failures.pop()
            return received

    failures = [
        Transient(Unreachable(where="s3", reason="it was reset")),
        Transient(InvalidInput(where="s3", reason="slow down"), asks_for_less=True),
    ]
    parts = Failing()
    send(tmp_path, parts, answer=answer)

    assert not failures
    assert asked == ["parts=true&path=big"]


def test_a_file_that_changes_while_its_parts_are_sent_is_named(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(bytes(8 * PART))

    class Changing(Parts):
        def send(self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None) -> str:
            if number == 6:
                file.write_bytes(b"x" * 8 * PART)
            return super().send(slot, number, chunks, sha256)

    with pytest.raises(FileChanged, match="big"):
        send(tmp_path, Changing())


def test_memory_is_a_buffer_for_each_connection(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 * MIB)
    tracemalloc.start()
    try:
        send(tmp_path, Parts(keeps=False), part_bytes=8 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * SEND_BUFFER_BYTES + 200_000
    finally:
        tracemalloc.stop()
