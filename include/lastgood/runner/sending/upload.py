"""One rank's uploading: files, and the parts of large files, go in parallel, are hashed on their
way, and are resumed by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lastgood.runner.disk.files import Source, SourceFile, measured
from lastgood.runner.problems import FileChanged, UnusableFiles
from lastgood.runner.sending.direct import write_direct
from lastgood.runner.sending.file_sender import FileSender
from lastgood.runner.sending.parts import (
    EndpointSender,
    PartSender,
    PresignedSender,
    held_parts,
    renew_grants,
)
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.wire.client import new_client
from lastgood.runner.wire.heartbeat import Heartbeat
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.progress import Progress, Report
from lastgood.runner.working.retry import Retry


def upload(
    ticket: Ticket,
    files: Source,
    *,
    rank: int | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: Report | None = None,
    retry: Retry | None = None,
) -> list[ObjectRecord]:
    """Send this rank's files with nothing but the ticket; the records that the commit needs.

    `files` is a folder, or a mapping from object path to file; the paths are among the ticket's.
    With `resume` the coordinator is asked which parts it holds, and those whose digest agrees are
    not sent again. `progress(bytes_done, bytes_total)` is called from the threads that send.
    `workers` connections are used; if it is not said, as many as pay.

    Raises FileChanged, UnusableFiles, FencedGeneration (a newer writer took over), AttemptState,
    Unreachable and what else the coordinator refuses.
    """
    found = measured(files)
    total = Progress(sum(file.size_bytes for file in found), progress)
    with new_client() as client:
        coordinator = Coordinator.at(
            ticket.url, ticket.fencing_token, retry=retry or Retry(), client=client
        )
        ranks = dict.fromkeys((file.path for file in found), rank)
        return upload_files(
            coordinator, ticket, found, ranks, total, resume=resume, pace=Pace.of(workers)
        )


def upload_files(
    coordinator: Coordinator,
    ticket: Ticket,
    files: list[SourceFile],
    ranks: Mapping[str, int | None],
    progress: Progress,
    *,
    resume: bool,
    pace: Pace,
) -> list[ObjectRecord]:
    """`upload` of files that are measured already; `ranks` by object path."""
    stop = coordinator.stop
    _check_slots(ticket, files)
    with _grants_kept(coordinator, ticket):
        if ticket.how == "direct":
            return in_parallel(
                lambda file: write_direct(ticket, file, ranks[file.path], progress, stop),
                files,
                workers=pace,
                stop=stop,
            )
        held = held_parts(coordinator, ticket.attempt) if resume else {}
        parts = _part_sender(coordinator, ticket, files)
        return FileSender(coordinator, ticket, parts, held, progress, pace).send(files, ranks)


@contextmanager
def _grants_kept(coordinator: Coordinator, ticket: Ticket) -> Iterator[None]:
    """Renew the upload grant meanwhile: a store's record of the attempt closes after its end."""
    beat = Heartbeat(
        lambda: renew_grants(coordinator, ticket.attempt),
        ticket.renew_every,
        coordinator.stop.request,
        name=f"grants-{ticket.attempt}",
    )
    try:
        yield
    finally:
        beat.close()


def _check_slots(ticket: Ticket, files: list[SourceFile]) -> None:
    for file in files:
        slot = ticket.slots.get(file.path)
        if slot is None:
            reason = f"{ticket.checkpoint} was prepared without {file.path!r}"
            raise UnusableFiles(where=file.file, reason=reason)
        if slot.size_bytes != file.size_bytes:
            what = f"it has {file.size_bytes} bytes, {slot.size_bytes} were prepared"
            raise FileChanged(path=file.path, file=file.file, what=what)


def _part_sender(coordinator: Coordinator, ticket: Ticket, files: list[SourceFile]) -> PartSender:
    if ticket.how == "endpoint":
        return EndpointSender(coordinator, ticket)
    return PresignedSender(coordinator, ticket, [ticket.slots[file.path] for file in files])
