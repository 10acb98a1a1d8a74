"""Object bytes between the network and a store: the event loop moves them, threads hash and write.

Both work at once: while a thread hashes and writes one buffer, the loop receives the next.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, TypeVar

import anyio

from lastgood.errors import LastgoodError

BUFFER_BYTES = 1 << 20
_BUFFERS = 2  # waiting beside the one that is written: memory is three buffers for each stream
STALL_SECONDS = 60
T = TypeVar("T")


class StreamStalled(LastgoodError):
    """Nothing came for {seconds} s; send the part again."""

    status = 408
    type = "stream-stalled"


class StreamBroken(LastgoodError):
    """The body ended before its announced length: {reason}."""

    status = 400
    type = "stream-broken"


class ObjectShort(LastgoodError):
    """The object ends {left_bytes} bytes before what was committed: it is damaged in the store."""

    status = 422
    type = "object-short"


Buffer = list[bytes]
_Item = Buffer | LastgoodError | None  # None: the body is over


async def receive(
    body: AsyncIterator[bytes],
    work: Callable[[Iterable[bytes]], T],
    limiter: anyio.CapacityLimiter,
) -> T:
    """What `work` answers in a thread of the limiter, given the chunks of the body as they come."""
    waiting: asyncio.Queue[_Item] = asyncio.Queue(_BUFFERS)
    loop = asyncio.get_running_loop()

    def chunks() -> Iterator[bytes]:
        while (item := _next(waiting, loop)) is not None:
            if isinstance(item, LastgoodError):
                raise item
            yield from item

    pump = loop.create_task(_pump(body, waiting))
    try:
        return await anyio.to_thread.run_sync(lambda: work(chunks()), limiter=limiter)
    finally:
        pump.cancel()


def _next(waiting: asyncio.Queue[_Item], loop: asyncio.AbstractEventLoop) -> _Item:
    coming = asyncio.run_coroutine_threadsafe(waiting.get(), loop)
    try:
        return coming.result(STALL_SECONDS)
    except concurrent.futures.TimeoutError:
        coming.cancel()
        raise StreamStalled(seconds=STALL_SECONDS) from None


async def _pump(body: AsyncIterator[bytes], waiting: asyncio.Queue[_Item]) -> None:
    buffer: Buffer = []
    held_bytes = 0
    try:
        async for chunk in body:
            buffer.append(chunk)
            held_bytes += len(chunk)
            if held_bytes >= BUFFER_BYTES:
                await waiting.put(buffer)
                buffer, held_bytes = [], 0
        await waiting.put(buffer)
        await waiting.put(None)
    except Exception as error:
        await waiting.put(StreamBroken(reason=type(error).__name__))


async def send(
    opened: AbstractContextManager[BinaryIO], size_bytes: int, limiter: anyio.CapacityLimiter
) -> AsyncIterator[bytes]:
    """`size_bytes` from a store's stream; each read takes a thread of the limiter, no longer."""
    stream = await anyio.to_thread.run_sync(opened.__enter__, limiter=limiter)
    try:
        left = size_bytes
        while left:
            wanted = min(left, BUFFER_BYTES)
            data = await anyio.to_thread.run_sync(stream.read, wanted, limiter=limiter)
            if not data:
                raise ObjectShort(left_bytes=left)
            left -= len(data)
            yield data
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(opened.__exit__, None, None, None, limiter=limiter)


async def begun(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same stream with its first bytes already read: what fails there is told in place of an
    answer, not by breaking one off."""
    first = await anext(stream, b"")

    async def all_of_it() -> AsyncIterator[bytes]:
        yield first
        async for chunk in stream:
            yield chunk

    return all_of_it()
