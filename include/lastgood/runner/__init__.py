"""What a training script imports: save checkpoints to lastgood, and resume from the last good one.

    import os
    from lastgood.runner import Workload

    workload = Workload(
        "https://lastgood.example", os.environ["LASTGOOD_PROJECT_KEY"],
        workload="mlp", stage="pretrain",
    )
    with workload.acquire() as run:                  # the one writer of the stage
        step = 0
        if run.resume:                               # a verified checkpoint, or none with reasons
            state = load(run.download(f"restored/{run.number}").folder)
            step = run.resume.step
        else:
            print(run.resume)                        # "no checkpoint: nothing was committed yet"
            state = initial()

        while step < 10_000 and not run.fenced.is_set():
            state, loss = train(state)
            step += 1
            if step % 1_000 == 0:
                write_shards(state, f"out/{step}")   # new files for every checkpoint
                run.save_in_background(f"out/{step}", step=step, metrics={"eval/loss": loss})

`run.save(...)` does the same and returns when the checkpoint is committed. Leaving the `with`
block waits for a save under way and raises its failure. `run.fenced` is set when another writer
took over; every later call raises FencedGeneration. While another writer's lease lasts, `acquire`
raises StageBusy; it can wait, or replace a writer that is known to be dead (`after=`).

Many ranks, one of which coordinates; the ticket and the records travel by whatever the job has:

    ticket = run.begin_save(sizes_of_all_ranks, step=step)               # on rank 0
    broadcast(ticket.to_text())
    records = upload(Ticket.from_text(text), my_files, rank=my_rank)     # on each rank
    run.commit(ticket, gathered_records, metrics={"eval/loss": loss})    # on rank 0

Files are sent in parallel and hashed on their way, a large one in several parts at once, and
continued where a failure broke them off. Requests are retried for as long as `Retry` says, and each
is the same request again. Errors are those of `lastgood.errors`, as the coordinator names them, and
of `lastgood.runner.problems`.

Needs httpx, and nothing else that is not in the standard library.
"""

from lastgood.rules.manifest import (
    CheckpointKind,
    Manifest,
    RestoreContract,
    RuntimeFact,
    RuntimeIdentity,
)
from lastgood.runner.checkpoint import Checkpoint, NoCheckpoint
from lastgood.runner.disk.files import Source
from lastgood.runner.generation import Generation
from lastgood.runner.problems import (
    Cancelled,
    CorruptObject,
    DestinationTaken,
    FileChanged,
    FolderNotOurs,
    FolderUnreachable,
    RemoteProblem,
    StageBusy,
    Unreachable,
    UnusableFiles,
)
from lastgood.runner.receiving.download import Downloaded
from lastgood.runner.saving import SaveHandle, SaveProgress
from lastgood.runner.sending.ticket import ObjectRecord, Ticket, records_from_text, records_to_text
from lastgood.runner.sending.upload import upload
from lastgood.runner.working.retry import Retry
from lastgood.runner.workload import Workload, Writer

__all__ = [
    "Cancelled",
    "Checkpoint",
    "CheckpointKind",
    "CorruptObject",
    "DestinationTaken",
    "Downloaded",
    "FileChanged",
    "FolderNotOurs",
    "FolderUnreachable",
    "Generation",
    "Manifest",
    "NoCheckpoint",
    "ObjectRecord",
    "RemoteProblem",
    "RestoreContract",
    "Retry",
    "RuntimeFact",
    "RuntimeIdentity",
    "SaveHandle",
    "SaveProgress",
    "Source",
    "StageBusy",
    "Ticket",
    "Unreachable",
    "UnusableFiles",
    "Workload",
    "Writer",
    "records_from_text",
    "records_to_text",
    "upload",
]
