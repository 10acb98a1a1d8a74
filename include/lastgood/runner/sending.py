"""Sending one file part by part while it is read, once, and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from lastgood.runner.files import SourceFile, new_buffer
from lastgood.runner.http import Coordinator
from lastgood.runner.parts import HeldPart, PartSender, held_parts
from lastgood.runner.problems import CorruptObject
from lastgood.runner.progress import Progress
from lastgood.runner.retry import Transient
from lastgood.runner.stopping import Stop
from lastgood.runner.ticket import ObjectRecord, Slot, Ticket

SEND_BUFFER_BYTES = 256 << 10  # the HTTP client copies what a socket does not take at once


class FileSender:
    """Sends files of one attempt. `held` are the parts that had arrived before, by path and
    number."""

    def __init__(
        self,
        coordinator: Coordinator,
        ticket: Ticket,
        parts: PartSender,
        held: Mapping[tuple[str, int], HeldPart],
        progress: Progress,
    ) -> None:
        self._coordinator = coordinator
        self._ticket = ticket
        self._parts = parts
        self._held = held
        self._progress = progress

    def send(self, file: SourceFile, rank: int | None) -> ObjectRecord:
        """Send all parts that are not held already; the object as the manifest will name it."""
        slot = self._ticket.slots[file.path]
        buffer = new_buffer(SEND_BUFFER_BYTES)
        digests = []
        with file.reading() as fd:
            reader = PartReader(file, fd, slot, buffer, self._coordinator.stop)
            for number in range(1, slot.parts + 1):
                reader.begin(number)
                self._send_part(reader, number)
                digests.append(reader.part_sha256)
                self._progress.add(slot.part_size(number))
        if slot.part_bytes is None:
            return ObjectRecord(file.path, file.size_bytes, reader.sha256, rank)
        return ObjectRecord(
            file.path, file.size_bytes, reader.sha256, rank, slot.part_bytes, tuple(digests)
        )

    def _send_part(self, reader: PartReader, number: int) -> None:
        if self._arrived_before(reader, number):
            return

        def send_once() -> None:
            try:
                sha256 = reader.hashed() if self._parts.needs_digest else None
                received = self._parts.send(reader.slot, number, reader.chunks(), sha256)
            except Transient:
                if reader.is_read and self._arrived_unanswered(reader, number):
                    return
                raise
            if received not in (None, reader.part_sha256):
                raise Transient(self._damaged(reader, received))

        self._coordinator.retry.call(send_once, self._coordinator.stop)

    def _arrived_before(self, reader: PartReader, number: int) -> bool:
        part = self._held.get((reader.slot.path, number))
        if part is None or part.sha256 is None:
            return False
        if part.size_bytes != reader.slot.part_size(number):
            return False
        return part.sha256 == reader.hashed()

    def _arrived_unanswered(self, reader: PartReader, number: int) -> bool:
        """Whether the part whose answer was lost is there after all."""
        held = held_parts(self._coordinator, self._ticket.attempt)
        part = held.get((reader.slot.path, number))
        return part is not None and part.sha256 == reader.part_sha256

    def _damaged(self, reader: PartReader, received: str | None) -> CorruptObject:
        return CorruptObject(
            path=reader.slot.path,
            checkpoint=self._ticket.checkpoint,
            expected=reader.part_sha256,
            found=received,
        )


class PartReader:
    """Reads a file part after part and hashes each, and the whole, as it goes.

    A part can be read again after a failure: the hash of the whole then goes back to where the part
    began.
    """

    def __init__(
        self, file: SourceFile, fd: int, slot: Slot, buffer: memoryview, stop: Stop
    ) -> None:
        self.slot = slot
        self._file = file
        self._fd = fd
        self._buffer = buffer
        self._stop = stop
        self._whole = hashlib.sha256()
        self._part = self._before = self._whole

    def begin(self, number: int) -> None:
        """Go on to this part; the one before it is done."""
        self._before = self._whole
        self._number = number
        self.is_read = False

    def chunks(self) -> Iterator[memoryview]:
        """The part from its beginning."""
        self.is_read = False
        self._whole = self._before.copy()
        # The only part of an object has the object's own digest: no need to compute it twice.
        self._part = self._whole if self.slot.parts == 1 else hashlib.sha256()
        size_bytes = self.slot.part_size(self._number)
        start = (self._number - 1) * (self.slot.part_bytes or 0)
        for chunk in self._file.chunks(self._fd, start, size_bytes, self._buffer, self._stop):
            self._whole.update(chunk)
            if self._part is not self._whole:
                self._part.update(chunk)
            yield chunk
        self.is_read = True

    def hashed(self) -> str:
        """Read the part without sending it; its digest."""
        for _ in self.chunks():
            pass
        return self.part_sha256

    @property
    def part_sha256(self) -> str:
        return self._part.hexdigest()

    @property
    def sha256(self) -> str:
        return self._whole.hexdigest()
