"""A training job on PyTorch: torchrun, two ranks, a distributed checkpoint, and lastgood's runner.

    LASTGOOD_PROJECT_KEY=lg_… torchrun --nproc-per-node 2 examples/train_torch.py --url http://…

A small model is trained data parallel on the CPU. Its parameters and AdamW's moments are saved by
PyTorch Distributed Checkpoint, each rank its own file, and sent by the rank that wrote it. Killed
and started again, it resumes from the last good checkpoint with the same losses as if nothing had
been. With `--restore-step` it takes one step from a downloaded checkpoint and reports the loss.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from lastgood.runner import (
    Generation,
    RestoreContract,
    Ticket,
    Workload,
    records_from_text,
    records_to_text,
    upload,
)

INPUTS, HIDDEN, BATCH, SEED = 16, 32, 32, 20_240_229
SHARDS = "dcp"  # the checkpoint's folder of distributed files


class Trainer:
    """Model, optimizer and position of one rank. The data of a step depend on the step alone."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.step = 0

    def loss(self) -> torch.Tensor:
        """The loss of the step to come, on this rank's batch."""
        random = torch.Generator().manual_seed(SEED + self.step * self.world_size + self.rank)
        inputs = torch.randn(BATCH, INPUTS, generator=random)
        targets = torch.sin(inputs[:, :1] * 2) + inputs[:, 1:2] * inputs[:, 2:3]
        return nn.functional.mse_loss(self.model(inputs), targets)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean over the ranks."""
        dist.all_reduce(values)
        return values / self.world_size

    def next_loss(self) -> float:
        """What the next step will find; nothing is consumed by asking."""
        with torch.no_grad():
            return float(self.mean(self.loss().double()))

    def train_step(self) -> float:
        """One step; the mean loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad = self.mean(parameter.grad)
        self.optimizer.step()
        self.step += 1
        return float(self.mean(loss.detach().double()))

    def state(self) -> dict[str, Any]:
        """What is saved. Each rank writes what DCP gives it to write."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def save(self, folder: Path) -> None:
        dcp.save(self.state(), checkpoint_id=folder / SHARDS)

    def load(self, folder: Path) -> None:
        """Continue from a checkpoint; of which step it is, it says itself."""
        if not self.optimizer.state:
            self.train_step()  # so that the optimizer has moments to be filled
        state = self.state()
        dcp.load(state, checkpoint_id=folder / SHARDS)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = int(state["step"])


def broadcast(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def gather(value: Any) -> list[Any]:
    """Every rank's value, in the order of ranks."""
    held: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(held, value)
    return held


def save_checkpoint(
    trainer: Trainer, run: Generation | None, folder: Path, *, final: bool, dies: bool
) -> None:
    """Every rank writes its file and sends it; rank 0, which has the generation, commits.

    The metadata is written by rank 0, so it is rank 0 that sends it.
    """
    trainer.save(folder)
    mine = {
        path.relative_to(folder).as_posix(): path
        for path in sorted((folder / SHARDS).iterdir())
        if path.name.startswith(f"__{trainer.rank}_")
        or (trainer.rank == 0 and path.name == ".metadata")
    }
    next_loss = trainer.next_loss()
    sizes: dict[str, int] = {}
    for one in gather({path: file.stat().st_size for path, file in mine.items()}):
        sizes |= one
    begun = None if run is None else run.begin_save(sizes, step=trainer.step).to_text()
    ticket = Ticket.from_text(broadcast(begun))
    if dies:
        os.killpg(os.getpgid(0), signal.SIGKILL)  # as a machine that goes away
    records = gather(records_to_text(upload(ticket, mine, rank=trainer.rank)))
    if run is not None:
        saved = run.commit(
            ticket,
            [record for text in records for record in records_from_text(text)],
            metrics={"restore/next_loss": next_loss},
            restore=RestoreContract("torch-demo", {"ranks": trainer.world_size}),
            world_size=trainer.world_size,
            sharding={"ranks": "every"},
            final=final,
        )
        print(f"saved {saved}, next loss {next_loss!r}", flush=True)
    dist.barrier()


def train(trainer: Trainer, run: Generation | None, options: argparse.Namespace) -> None:
    """The loop of every rank."""
    saves = 0
    while trainer.step < options.steps:
        loss = trainer.train_step()
        if trainer.rank == 0:
            print(f"step {trainer.step} loss {loss!r}", flush=True)
        is_last = trainer.step == options.steps
        if is_last or trainer.step % options.checkpoint_every == 0:
            saves += 1
            folder = options.folder / f"step-{trainer.step}"
            dies = saves == options.die_in_save
            save_checkpoint(trainer, run, folder, final=is_last, dies=dies)


def run_job(trainer: Trainer, options: argparse.Namespace) -> None:
    """Acquire (rank 0), resume (all), train (all)."""
    if trainer.rank != 0:
        _resume(trainer, broadcast(None))
        train(trainer, None, options)
        return
    key = os.environ["LASTGOOD_PROJECT_KEY"]
    workload = Workload(options.url, key, workload="torch", stage=options.stage)
    after = workload.writer().number if options.replace else None
    with workload.acquire(after=after) as run:
        folder = None
        if run.resume:
            folder = str(run.download(options.folder / f"restored-{run.number}").folder)
            print(f"resumed from {run.resume}", flush=True)
        _resume(trainer, broadcast(folder))
        train(trainer, run, options)


def _resume(trainer: Trainer, folder: str | None) -> None:
    if folder is not None:
        trainer.load(Path(folder))


def restore_step(trainer: Trainer, options: argparse.Namespace) -> None:
    """Go on from a checkpoint by one step; rank 0 reports what came of it."""
    started = time.monotonic()
    trainer.load(options.restore_step)
    loss = trainer.train_step()
    if trainer.rank == 0:
        seconds = time.monotonic() - started
        report = {"step": trainer.step, "loss": loss, "seconds": seconds}
        options.report.write_text(json.dumps(report))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model with PyTorch on two ranks.")
    parser.add_argument("--url", help="where the coordinator answers")
    parser.add_argument("--stage", default="pretrain")
    parser.add_argument("--folder", type=Path, help="a folder that all ranks see")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--replace", action="store_true", help="the writer before is dead")
    parser.add_argument("--die-in-save", type=int, metavar="N", help="SIGKILL all in save N")
    parser.add_argument("--restore-step", type=Path, metavar="FOLDER", help="of the checkpoint")
    parser.add_argument("--report", type=Path, help="where step, loss and seconds are written")
    options = parser.parse_args()
    if options.restore_step is None and (not options.url or not options.folder):
        parser.error("give --url and --folder, or --restore-step and --report")
    return options


def main() -> None:
    options = read_options()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        trainer = Trainer()
        if options.restore_step:
            restore_step(trainer, options)
        else:
            run_job(trainer, options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
