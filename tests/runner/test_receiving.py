"""An object arrives in spans, in any order, from a store that may not do as asked: it is whole and
right at the end, or named."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lastgood.rules.manifest import ManifestObject
from lastgood.runner import CorruptObject, RemoteProblem
from lastgood.runner.receiving.arriving import BUFFER_BYTES, Arriving
from lastgood.runner.receiving.receiver import Receiver
from lastgood.runner.wire.carrying import Body
from lastgood.runner.wire.client import Client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.wire.spans import cut, is_large, most_bytes
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.retry import Retry

KIB, MIB = 1 << 10, 1 << 20
PART = 64 * KIB
QUICK = Retry(first_pause=timedelta(milliseconds=1))
CONTENT = random.Random(7).randbytes(5 * PART + 1_000)


def asked_for(headers: Mapping[str, str], size_bytes: int) -> tuple[int, int]:
    start, _, last = headers["Range"].removeprefix("bytes=").partition("-")
    return int(start), int(last) + 1 if last else size_bytes


@dataclass
class Store:
    """One object behind a carrier; `asked` are the ranges."""

    content: bytes
    ranges: bool = True  # or it sends the whole whatever is asked
    ends: bool = True  # or it sends all from the start of what is asked
    most_bytes: int | None = None  # of one answer
    asked: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Body]:
        start, end = asked_for(headers, len(self.content))
        self.asked.append((start, end))
        if not self.ranges:
            yield _Body(200, self.content)
        elif start >= len(self.content):
            yield _Body(416, b"<Error><Code>InvalidRange</Code></Error>")
        else:
            end = end if self.ends else len(self.content)
            yield _Body(206, self.content[start:end][: self.most_bytes])

    def put(self, *_: Any) -> Any:
        raise AssertionError

    def close(self) -> None: ...


@dataclass
class _Body:
    status: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"ETag": '"e"'})

    def chunks(self, buffer: memoryview) -> Iterator[memoryview]:
        for start in range(0, len(self.content), 10_000):
            yield memoryview(self.content)[start : start + 10_000]

    def whole(self) -> httpx.Response:
        request = httpx.Request("GET", "http://s3/big")
        return httpx.Response(self.status, content=self.content, request=request)


class Lent:
    """A lease whose URLs are numbered."""

    lease = SimpleNamespace(how="presigned", checkpoint=SimpleNamespace(id="p/w/s/1.1"))

    def __init__(self) -> None:
        self.number = 1

    def request_for(self, path: str) -> tuple[str, dict[str, str]]:
        return f"http://s3/{path}?{self.number}", {}

    def replace(self, refused_url: str, path: str) -> str:
        if self.request_for(path)[0] == refused_url:
            self.number += 1
        return self.request_for(path)[0]


def item_of(content: bytes, *, part_bytes: int | None = PART) -> ManifestObject:
    sha256 = hashlib.sha256(content).hexdigest()
    if part_bytes is None:
        return ManifestObject("big", len(content), sha256)
    parts = (content[at : at + part_bytes] for at in range(0, len(content), part_bytes))
    digests = tuple(hashlib.sha256(part).hexdigest() for part in parts)
    return ManifestObject("big", len(content), sha256, None, part_bytes, digests)


def receive(store: Any, item: ManifestObject, folder: Path, workers: int | Pace = 4) -> Progress:
    nobody = httpx.MockTransport(lambda _: httpx.Response(500))
    client = Client(httpx.Client(transport=nobody), store)
    coordinator = Coordinator.at("http://127.0.0.1:1", "", retry=QUICK, client=client)
    reading: Any = Lent()
    progress = Progress(item.size_bytes)
    pace = Pace.of(workers) if isinstance(workers, int) else workers
    Receiver(coordinator, reading, folder, progress, pace, durable=False).receive([item])
    assert progress.done_bytes == item.size_bytes
    return progress


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.runner.wire.spans.SMALLEST_BYTES", 16 * KIB)
    monkeypatch.setattr("lastgood.runner.wire.spans.LARGEST_BYTES", 2 * PART)
    monkeypatch.setattr("lastgood.runner.receiving.leftover.LARGEST_BYTES", 2 * PART)


# What is in the file, and whether parts have digests: what is asked for.
LEFT: dict[str, tuple[bytes, int | None, set[int]]] = {
    "nothing": (b"", PART, {0, 1, 2, 3, 4, 5}),
    "a part": (CONTENT[:PART], PART, {1, 2, 3, 4, 5}),
    "half a part": (CONTENT[: PART + 5], PART, {1, 2, 3, 4, 5}),
    "a hole": (CONTENT[:PART] + bytes(PART) + CONTENT[2 * PART :], PART, {1}),
    "holes at both ends": (bytes(PART) + CONTENT[PART : 4 * PART] + bytes(PART), PART, {0, 4, 5}),
    "all": (CONTENT, PART, set()),
    "too much": (CONTENT + b"x", PART, {0, 1, 2, 3, 4, 5}),
    "a beginning without parts": (CONTENT[: 2 * PART], None, {2, 3, 4, 5}),
    "a wrong beginning without parts": (bytes(2 * PART), None, {0, 1, 2, 3, 4, 5}),
}


@pytest.mark.usefixtures("small_spans")
@pytest.mark.parametrize(("left", "part_bytes", "parts"), LEFT.values(), ids=LEFT.keys())
@pytest.mark.parametrize(("ranges", "ends"), [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize("workers", [4, 2])
def test_only_what_is_missing_is_asked_for(
    tmp_path: Path,
    left: bytes,
    part_bytes: int | None,
    parts: set[int],
    ranges: bool,
    ends: bool,
    workers: int,
) -> None:
    if left:
        (tmp_path / "big").write_bytes(left)
    store = Store(CONTENT, ranges, ends)

    receive(store, item_of(CONTENT, part_bytes=part_bytes), tmp_path, workers)

    assert (tmp_path / "big").read_bytes() == CONTENT
    assert {
        part for start, end in store.asked for part in range(start // PART, -(-end // PART))
    } == parts


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# What the store has, and the parts that a later try has to ask for again.
DAMAGED = {
    "changed at its end": (flipped(CONTENT, len(CONTENT) - 1), {5}),
    "changed within": (flipped(CONTENT, 2 * PART + 7), {2}),
    "two parts in each other's place": (
        CONTENT[:PART]
        + CONTENT[2 * PART : 3 * PART]
        + CONTENT[PART : 2 * PART]
        + CONTENT[3 * PART :],
        {1, 2},
    ),
    "short": (CONTENT[:-1], {5}),
    "long": (CONTENT + b"x", set()),
    "empty": (b"", {0, 1, 2, 3, 4, 5}),
}
# A stream; spans; parts, of which there are two for each of two workers.
WORKERS = [1, 4, 2]


@pytest.mark.usefixtures("small_spans")
@pytest.mark.parametrize(("stored", "damaged"), DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_not_the_object_is_told_and_only_that_is_asked_for_again(
    tmp_path: Path, stored: bytes, damaged: set[int], workers: int
) -> None:
    item = item_of(CONTENT)
    with pytest.raises(CorruptObject, match=r"big of .* found (\d+ bytes|part \d with SHA-256)"):
        receive(Store(stored), item, tmp_path, workers)

    right = Store(CONTENT)
    receive(right, item, tmp_path, workers)
    assert (tmp_path / "big").read_bytes() == CONTENT
    asked = {part for start, end in right.asked for part in range(start // PART, -(-end // PART))}
    assert asked >= damaged
    if workers == 1:  # otherwise it may stop before it has the others
        assert asked == damaged


@pytest.mark.usefixtures("small_spans")
@pytest.mark.parametrize(("stored", "damaged"), DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("workers", WORKERS)
def test_without_digests_of_parts_what_is_not_the_object_is_thrown_away(
    tmp_path: Path, stored: bytes, damaged: set[int], workers: int
) -> None:
    with pytest.raises(CorruptObject, match=f"big of .* found {len(stored)} bytes"):
        receive(Store(stored), item_of(CONTENT, part_bytes=None), tmp_path, workers)

    assert (tmp_path / "big").stat().st_size == 0


@pytest.mark.usefixtures("small_spans")
def test_without_digests_of_parts_a_try_that_ends_early_leaves_no_hole(tmp_path: Path) -> None:
    class Failing(Store):
        @contextmanager
        def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Body]:
            if not self.asked:
                with super().get(url, headers) as body:
                    yield body
            else:
                yield _Body(400, b"<Error><Code>Odd</Code></Error>")

    item = item_of(CONTENT, part_bytes=None)
    with pytest.raises(RemoteProblem, match="Odd"):
        receive(Failing(CONTENT, most_bytes=3 * PART), item, tmp_path)

    store = Store(CONTENT)
    receive(store, item, tmp_path)
    assert store.asked == [(3 * PART, len(CONTENT))]


@pytest.mark.usefixtures("small_spans")
def test_an_object_that_is_damaged_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(len(CONTENT)))
    before = sorted(os.listdir("/proc/self/fd"))

    with pytest.raises(CorruptObject):
        receive(Store(bytes(len(CONTENT))), item_of(CONTENT, part_bytes=None), tmp_path)

    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("workers", WORKERS)
def test_urls_are_replaced_as_often_as_they_end(tmp_path: Path, workers: int) -> None:
    class Ending(Store):
        @contextmanager
        def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Body]:
            used[url] = used.get(url, 0) + 1
            if used[url] > 2:
                yield _Body(403, b"<Error><Code>AccessDenied</Code></Error>")
            else:
                with super().get(url, headers) as body:
                    yield body

    used: dict[str, int] = {}
    receive(Ending(CONTENT, most_bytes=30_000), item_of(CONTENT), tmp_path, workers)

    assert (tmp_path / "big").read_bytes() == CONTENT
    assert len(used) > 3


def test_a_wrong_part_is_told_before_the_others_have_come(tmp_path: Path) -> None:
    size_bytes = 64 * PART
    wrong = hashlib.sha256(b"other").hexdigest()
    right = hashlib.sha256(bytes(PART)).hexdigest()
    item = ManifestObject("big", size_bytes, wrong, None, PART, (wrong, *[right] * 63))
    store = Store(bytes(size_bytes))

    with pytest.raises(CorruptObject, match=f"found part 1 with SHA-256 {right} in place of"):
        receive(store, item, tmp_path, 2)

    assert len(store.asked) < 32


@pytest.mark.parametrize("workers", WORKERS)
def test_a_store_that_answers_less_than_was_asked_for_is_asked_for_the_rest(
    tmp_path: Path, workers: int
) -> None:
    receive(Store(CONTENT, most_bytes=30_000), item_of(CONTENT), tmp_path, workers)

    assert (tmp_path / "big").read_bytes() == CONTENT


def test_a_store_that_asks_for_less_is_asked_by_half_as_many(tmp_path: Path) -> None:
    class Busy(Store):
        @contextmanager
        def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Body]:
            if not self.asked:
                self.asked.append((0, 0))
                yield _Body(503, b"<Error><Code>SlowDown</Code></Error>")
            else:
                with super().get(url, headers) as body:
                    yield body

    pace = Pace.of(4)
    receive(Busy(CONTENT), item_of(CONTENT), tmp_path, pace)

    assert (tmp_path / "big").read_bytes() == CONTENT
    assert pace.workers == 2


@pytest.mark.parametrize("most", [PART, None], ids=["in order", "by part"])
def test_spans_may_come_in_any_order(tmp_path: Path, most: int | None) -> None:
    item = item_of(CONTENT[: 4 * PART])
    for number, order in enumerate(itertools.permutations(range(4))):
        arriving = Arriving(tmp_path / str(number), item, most, Progress(item.size_bytes))
        spans = arriving.missing
        for index in order:
            with arriving.receiving(spans[index]) as take:
                take(memoryview(CONTENT)[spans[index].start : spans[index].end])
        assert [arriving.end(spans[index]) for index in order] == [False, False, False, True]
        assert arriving.is_right()
        arriving.close()


def test_one_span_that_leads_and_others_that_overtake_it(tmp_path: Path) -> None:
    item = item_of(CONTENT[: 2 * PART])
    arriving = Arriving(tmp_path / "big", item, PART, Progress(item.size_bytes))
    first, second = arriving.missing
    with arriving.receiving(first) as take:
        with arriving.receiving(second) as overtake:
            overtake(memoryview(CONTENT)[second.start : second.end])
        assert not arriving.end(second)
        take(memoryview(CONTENT)[first.start : first.end])
    assert arriving.end(first)
    assert arriving.is_right()
    arriving.close()


def test_an_empty_object_is_not_asked_for(tmp_path: Path) -> None:
    store = Store(b"")

    receive(store, item_of(b"", part_bytes=None), tmp_path)

    assert (tmp_path / "big").read_bytes() == b""
    assert store.asked == []


@dataclass
class Zeros:
    """A large object of zeros, which takes no memory."""

    size_bytes: int

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        start, end = asked_for(headers, self.size_bytes)

        def chunks(buffer: memoryview) -> Iterator[memoryview]:
            yield from (buffer for _ in range((end - start) // len(buffer)))

        yield SimpleNamespace(status=206, chunks=chunks, headers={"ETag": '"e"'})


@pytest.mark.parametrize("workers", [4, 2])
def test_memory_is_two_buffers_for_each_connection(tmp_path: Path, workers: int) -> None:
    size_bytes = 64 * MIB
    zeros = hashlib.sha256(bytes(size_bytes)).hexdigest()
    part = hashlib.sha256(bytes(8 * MIB)).hexdigest()
    item = ManifestObject("big", size_bytes, zeros, None, 8 * MIB, (part,) * 8)
    tracemalloc.start()
    try:
        receive(Zeros(size_bytes), item, tmp_path, workers)
        assert tracemalloc.get_traced_memory()[1] < 2 * 4 * BUFFER_BYTES + 100 * KIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("size_bytes", "total_bytes", "workers", "most"),
    [
        (32 * MIB, 256 * MIB, 4, 32 * MIB),  # one of eight: in one stream
        (256 * MIB, 256 * MIB, 1, 256 * MIB),  # one worker: nobody to share with
        (256 * MIB, 256 * MIB, 4, 16 * MIB),  # sixteen spans
        (1 << 40, 1 << 40, 4, 64 * MIB),
        (9 * MIB, 9 * MIB, 4, 8 * MIB),
        (0, 0, 4, 1),
    ],
)
def test_spans_keep_every_worker_at_work(
    size_bytes: int, total_bytes: int, workers: int, most: int
) -> None:
    assert most_bytes(size_bytes, total_bytes, workers) == most
    assert is_large(size_bytes, total_bytes, workers) == (most < size_bytes)
    spans = list(cut(0, size_bytes, most)) if size_bytes < 1 << 30 else []
    assert all(span.end - span.start <= most for span in spans)
    assert [span.start for span in spans][1:] == [span.end for span in spans][:-1]
