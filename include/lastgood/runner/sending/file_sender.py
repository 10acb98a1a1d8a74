"""Sending the files of one attempt: whole files side by side, and the parts of a large one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from lastgood.runner.disk.files import SourceFile
from lastgood.runner.problems import CorruptObject, Unreachable
from lastgood.runner.sending.outgoing import Outgoing, PartReader
from lastgood.runner.sending.parts import HeldPart, PartSender, held_parts
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.wire.spans import is_large
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.retry import Transient


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
        pace: Pace,
    ) -> None:
        self._coordinator = coordinator
        self._ticket = ticket
        self._parts = parts
        self._held = held
        self._progress = progress
        self._pace = pace

    def send(
        self, files: Sequence[SourceFile], ranks: Mapping[str, int | None]
    ) -> list[ObjectRecord]:
        """Send all parts that are not held already, on as many threads as the pace says; the
        objects as the manifest will name them, in the order of the files."""
        stop = self._coordinator.stop
        total_bytes = sum(file.size_bytes for file in files)
        outgoing = []
        for file in files:
            slot = self._ticket.slots[file.path]
            shared = slot.parts > 1 and is_large(file.size_bytes, total_bytes, self._pace.workers)
            outgoing.append(Outgoing(file, slot, ranks[file.path], stop, shared=shared))
        try:
            in_parallel(self._take_turn, _turns(outgoing), workers=self._pace, stop=stop)
        finally:
            for one in outgoing:
                one.close()
        return [one.record() for one in outgoing]

    def _take_turn(self, outgoing: Outgoing) -> None:
        for _ in range(1 if outgoing.is_shared else outgoing.slot.parts):
            part = outgoing.begin_part(self._needs_digest)
            self._send_part(part)
            outgoing.end_part(part)
            self._progress.add(part.size_bytes)

    def _needs_digest(self, path: str, number: int) -> bool:
        return self._parts.needs_digest or (path, number) in self._held

    def _send_part(self, part: PartReader) -> None:
        if self._arrived_before(part):
            return

        def send_once() -> None:
            try:
                if self._parts.needs_digest:  # the other end compares: no need to hash it twice
                    sha256, chunks = part.known_sha256(), part.again()
                else:
                    sha256, chunks = None, part.chunks()
                carried = self._pace.carried(chunks)
                received = self._parts.send(part.slot, part.number, carried, sha256)
            except Transient as failure:
                if failure.asks_for_less:
                    self._pace.slow_down()
                is_unanswered = isinstance(failure.error, Unreachable)
                if is_unanswered and part.is_read and self._is_held(part):
                    return
                part.is_read = False  # what was refused may have been read while it changed
                raise
            if received not in (None, part.sha256):
                raise Transient(self._damaged(part, received))

        self._coordinator.retry.call(send_once, self._coordinator.stop)

    def _arrived_before(self, part: PartReader) -> bool:
        held = self._held.get((part.slot.path, part.number))
        if held is None or held.sha256 is None or held.size_bytes != part.size_bytes:
            return False
        return held.sha256 == part.known_sha256()

    def _is_held(self, part: PartReader) -> bool:
        """Whether the part whose answer was lost is there after all."""
        held = held_parts(self._coordinator, self._ticket.attempt, part.slot.path)
        there = held.get((part.slot.path, part.number))
        return there is not None and there.sha256 == part.sha256

    def _damaged(self, part: PartReader, received: str | None) -> CorruptObject:
        return CorruptObject(
            path=part.slot.path,
            checkpoint=self._ticket.checkpoint,
            expected=part.sha256,
            found=received,
        )


def _turns(outgoing: Sequence[Outgoing]) -> list[Outgoing]:
    """What the workers take, in order: a part of each shared file in turn, so that not all wait for
    the hash of one; then the other files."""
    rounds = itertools.zip_longest(*([one] * one.slot.parts for one in outgoing if one.is_shared))
    shared = [one for each in rounds for one in each if one is not None]
    return shared + [one for one in outgoing if not one.is_shared]
