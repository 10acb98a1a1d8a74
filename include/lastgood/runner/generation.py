"""One incarnation of the writer of a stage: it saves, and it notices when another took its
place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, Unpack

from lastgood.errors import FencedGeneration, LastgoodError, NotFound
from lastgood.rules.manifest import CheckpointKind
from lastgood.rules.names import StageId
from lastgood.runner.attempts import Attempts, Request
from lastgood.runner.checkpoint import Checkpoint, NoCheckpoint
from lastgood.runner.commit import Facts, kind_of
from lastgood.runner.disk.files import Source, SourceFile, measured, sizes_of
from lastgood.runner.disk.snapshot import Snapshot, snapshot_of
from lastgood.runner.lease import WriterLease
from lastgood.runner.problems import Cancelled
from lastgood.runner.receiving.download import Downloaded, download
from lastgood.runner.saving import SaveHandle
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.sending.upload import upload_files
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.progress import Progress, Report
from lastgood.runner.working.stopping import Stop

log = logging.getLogger("lastgood.runner")
_UNKNOWN_SHA256 = "0" * 64


@dataclass(frozen=True, slots=True)
class Grant:
    """What the coordinator answered to acquire."""

    stage: StageId
    number: int
    heartbeat: timedelta
    resume: Checkpoint | NoCheckpoint


class Generation:
    """The right to write checkpoints of a stage, as long as nobody acquires a later generation.

    A context manager: leaving it waits for a save in the background, then releases the generation,
    so that a successor need not wait for the lease to end. From `Workload.acquire`.
    """

    def __init__(self, coordinator: Coordinator, grant: Grant, reader: str) -> None:
        self.stage = grant.stage
        self.number = grant.number
        self.resume = grant.resume
        resumed_from = grant.resume.as_resumed_from() if grant.resume else None
        self._lease = WriterLease(coordinator, grant.stage, grant.number, grant.heartbeat)
        self.fenced = self._lease.lost
        self._coordinator = coordinator  # bears the generation's token
        self._reader = reader
        self._attempts = Attempts(coordinator, grant.stage, grant.number, resumed_from)
        self._saving: SaveHandle | None = None

    def save(
        self,
        source: Source,
        *,
        step: int,
        ranks: Mapping[str, int] | None = None,
        progress: Report | None = None,
        workers: int | None = None,
        **facts: Unpack[Facts],
    ) -> Checkpoint:
        """Save files as one checkpoint; when this returns it is committed and verified.

        `source`: a folder (everything below it), or a mapping from object path to file. `ranks`:
        the rank that owns an object, by its path. `progress(bytes_done, bytes_total)` is called
        from the threads that send. `workers` connections are used; if it is not said, as many as
        pay. After a failure that passed, the same files and step again go
        on where the upload ended.

        Raises FencedGeneration, FileChanged, UnusableFiles, NoRoom, IntegrityFailure, Unreachable,
        …
        """
        self._settle(wait=True)
        pace = Pace.of(workers)
        handle, work = self._plan(measured(source), step, ranks or {}, progress, pace, facts)
        handle.run(work)
        return handle.result()

    def save_in_background(
        self,
        source: Source,
        *,
        step: int,
        snapshot: Snapshot = "link",
        busy: Literal["wait", "skip"] = "wait",
        ranks: Mapping[str, int] | None = None,
        progress: Report | None = None,
        workers: int | None = None,
        **facts: Unpack[Facts],
    ) -> SaveHandle | None:
        """`save` while training goes on. Returns once the files are held as `snapshot` says.

        "link" (the default) is safe where each checkpoint is written into new files, or replaces
        old ones by rename; "copy" always; see `lastgood.runner.disk.snapshot`. One save is under
        way at a time: if there is one, this waits for it, or with busy="skip" saves nothing
        and returns None.

        Raises what `save` raises before the upload, and the failure of an earlier save in the
        background that nobody asked for.
        """
        if not self._settle(wait=busy == "wait"):
            return None
        pace = Pace.of(workers)
        with ExitStack() as snapshot_held:
            files = snapshot_held.enter_context(snapshot_of(measured(source), snapshot))
            handle, work = self._plan(files, step, ranks or {}, progress, pace, facts)
            until_saved = snapshot_held.pop_all()

        def save() -> Checkpoint:
            with until_saved:
                return work()

        self._saving = handle
        handle.start(save)
        return handle

    def begin_save(
        self, sizes: Mapping[str, int], *, step: int, kind: CheckpointKind = CheckpointKind.FULL
    ) -> Ticket:
        """Prepare a checkpoint whose objects other processes send with the ticket.

        `sizes`: the bytes of each object of all ranks, by its path.
        """
        self._settle(wait=True)
        request = Request(step, kind, dict(sizes))
        ticket = self._attempts.prepare(request, self._lease.new_stop())
        self._lease.cover(ticket.attempt)
        return ticket

    def commit(
        self, ticket: Ticket, records: Sequence[ObjectRecord], **facts: Unpack[Facts]
    ) -> Checkpoint:
        """Commit what all ranks sent; `records` are what each rank's `upload` answered, in any
        order."""
        return self._commit(ticket, records, facts, self._lease.new_stop())

    def download(
        self,
        dest: str | Path,
        *,
        workers: int | None = None,
        progress: Report | None = None,
        durable: bool = True,
    ) -> Downloaded:
        """Fetch the checkpoint that this generation resumes from; see `Workload.download`.

        Raises NotFound if there is none.
        """
        if not self.resume:
            raise NotFound(what="checkpoint to resume from", name=str(self.stage))
        return download(
            self._coordinator,
            self.stage.workload,
            self.stage.stage,
            self.resume.position,
            Path(dest),
            reader=self._reader,
            pace=Pace.of(workers),
            progress=progress,
            durable=durable,
        )

    def check(self) -> None:
        """Raise why this generation may not write any more, if so; `fenced` is then set."""
        self._lease.check()

    def close(self) -> None:
        """Wait for a save in the background, then release the generation."""
        try:
            self._settle(wait=True)
        finally:
            self._lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except LastgoodError as failure:
            if error is None:
                raise
            log.error("while leaving generation %s of %s: %s", self.number, self.stage, failure)

    def _settle(self, *, wait: bool) -> bool:
        """Have no save under way; False if there is one and it was not to be waited for."""
        self.check()
        if self._saving is None:
            return True
        if not wait and not self._saving.done:
            return False
        try:
            self._saving.raise_unasked()
        finally:
            if self._saving.done:  # otherwise the wait was interrupted
                self._saving = None
        return True

    def _plan(
        self,
        files: list[SourceFile],
        step: int,
        ranks: Mapping[str, int],
        report: Report | None,
        pace: Pace,
        facts: Facts,
    ) -> tuple[SaveHandle, Callable[[], Checkpoint]]:
        request = Request(step, kind_of(facts), sizes_of(files))
        owners = {file.path: ranks.get(file.path) for file in files}
        drafts = [
            ObjectRecord(file.path, file.size_bytes, _UNKNOWN_SHA256, owners[file.path])
            for file in files
        ]
        self._attempts.check(request, drafts, facts)
        progress = Progress(sum(request.sizes.values()), report)
        stop = self._lease.new_stop()
        handle = SaveHandle(step, progress, stop)

        def work() -> Checkpoint:
            resume = self._attempts.is_unfinished(request)
            ticket = self._attempts.prepare(request, stop)
            self._lease.cover(ticket.attempt, progress)
            handle.phase = "upload"
            sender = self._coordinator.bearing(ticket.fencing_token).until(stop)
            records = upload_files(
                sender, ticket, files, owners, progress, resume=resume, pace=pace
            )
            handle.phase = "commit"
            return self._commit(ticket, records, facts, stop)

        return handle, lambda: self._kept_or_forgotten(work)

    def _kept_or_forgotten(self, work: Callable[[], Checkpoint]) -> Checkpoint:
        try:
            return work()
        except FencedGeneration as error:
            self._lease.lose(error)
            raise
        except Cancelled:
            self._attempts.cancel()
            raise
        except LastgoodError as error:
            if error.status < 500:  # refused: the same attempt again would be refused again
                self._attempts.forget()
            raise
        finally:
            self._lease.uncover()

    def _commit(
        self, ticket: Ticket, records: Sequence[ObjectRecord], facts: Facts, stop: Stop
    ) -> Checkpoint:
        self._lease.uncover()  # sealing ends the attempt's own lease
        return self._attempts.commit(ticket, records, facts, stop)
