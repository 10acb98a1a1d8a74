"""A small training job that survives SIGKILL: two ranks, NumPy, and lastgood's runner.

    LASTGOOD_PROJECT_KEY=lg_… python examples/train.py --url http://127.0.0.1:8080

It learns a function of 16 numbers with a two-layer network, data parallel on two processes. Every
few steps both ranks save what they own: weights, Adam's moments, the random generator and the
position in the data. Started again, it resumes from the last good checkpoint and ends with the
very weights of a run that was never interrupted (`--offline` is such a run). With `--restore-step`
it proves that a checkpoint restores: it takes one step from it and reports the loss, which
`save_checkpoint` has recorded. What a job has to do for all this is in `save_checkpoint`, `restore`
and `restore_step`; the rest is an ordinary training loop.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

# Sums must come out in the same order on every machine; to be said before NumPy is loaded.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from lastgood.runner import (
    Generation,
    RestoreContract,
    RuntimeFact,
    RuntimeIdentity,
    Ticket,
    Workload,
    records_from_text,
    records_to_text,
    upload,
)

Floats = NDArray[np.float64]
Tensors = dict[str, NDArray[Any]]
RANKS = 2
SEED = 20_240_229
NEXT_LOSS = "restore/next_loss"  # what a restored run's first step must find
CHECKPOINT_IS_BAD = 65  # the exit code that says so to who restores
INPUTS, HIDDEN, SAMPLES, BATCH = 16, 64, 4096, 64  # samples and batch: of each rank
LEARNING_RATE, BETA1, BETA2, EPSILON = 0.03, 0.9, 0.999, 1e-8
NOISE = 0.02  # added to the inputs of each batch, so that the random generator matters


class Network:
    """Two layers and their Adam state. The same on every rank; each rank saves a part of it."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights: dict[str, Floats] = {
            "layer1.bias": np.zeros(HIDDEN),
            "layer1.weight": rng.normal(0, INPUTS**-0.5, (INPUTS, HIDDEN)),
            "layer2.bias": np.zeros(1),
            "layer2.weight": rng.normal(0, HIDDEN**-0.5, (HIDDEN, 1)),
        }
        self.moments = {
            f"{moment}.{name}": np.zeros_like(weight)
            for moment in ("first", "second")
            for name, weight in self.weights.items()
        }

    def eval_loss(self) -> float:
        """The mean squared error on data that no rank trains on."""
        inputs = np.random.default_rng([SEED, 3]).normal(size=(SAMPLES, INPUTS))
        loss, _ = self.loss_and_gradients(inputs, _target(inputs))
        return loss

    def loss_and_gradients(self, inputs: Floats, targets: Floats) -> tuple[float, Floats]:
        """The mean squared error and the gradients of all weights, one after another."""
        weights = self.weights
        hidden = np.tanh(inputs @ weights["layer1.weight"] + weights["layer1.bias"])
        error = hidden @ weights["layer2.weight"] + weights["layer2.bias"] - targets
        slope = 2 * error / len(inputs)
        hidden_slope = (slope @ weights["layer2.weight"].T) * (1 - hidden**2)
        gradients = {
            "layer1.bias": hidden_slope.sum(axis=0),
            "layer1.weight": inputs.T @ hidden_slope,
            "layer2.bias": slope.sum(axis=0),
            "layer2.weight": hidden.T @ slope,
        }
        return float(np.mean(error**2)), np.concatenate([g.ravel() for g in gradients.values()])

    def update(self, step: int, gradients: Floats) -> None:
        """One step of Adam."""
        start = 0
        for name, weight in self.weights.items():
            gradient = gradients[start : start + weight.size].reshape(weight.shape)
            start += weight.size
            first, second = self.moments[f"first.{name}"], self.moments[f"second.{name}"]
            first += (1 - BETA1) * (gradient - first)
            second += (1 - BETA2) * (gradient**2 - second)
            scale = LEARNING_RATE / (1 - BETA1**step)
            weight -= scale * first / (np.sqrt(second / (1 - BETA2**step)) + EPSILON)


class Loader:
    """A rank's half of the data in shuffled order: its position and its random generator."""

    def __init__(self, rank: int) -> None:
        made = np.random.default_rng([SEED, 1, rank])
        self._inputs = made.normal(size=(SAMPLES, INPUTS))
        self._targets = _target(self._inputs)
        self.rng = np.random.default_rng([SEED, 2, rank])
        self.order = self.rng.permutation(SAMPLES)
        self.position = 0

    def next_batch(self) -> tuple[Floats, Floats]:
        if self.position == SAMPLES:
            self.order, self.position = self.rng.permutation(SAMPLES), 0
        chosen = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        noise = self.rng.normal(0, NOISE, (BATCH, INPUTS))
        return self._inputs[chosen] + noise, self._targets[chosen]

    def peek_batch(self) -> tuple[Floats, Floats]:
        """What `next_batch` will answer."""
        before = self.state()
        batch = self.next_batch()
        self.restore(before)
        return batch

    def state(self) -> Tensors:
        generator = self.rng.bit_generator.state
        words = [
            generator["state"][name] >> shift for name in ("state", "inc") for shift in (0, 64)
        ]
        return {
            "rng": np.array([word & (2**64 - 1) for word in words], dtype=np.uint64),
            "rng_rest": np.array([generator["has_uint32"], generator["uinteger"]], dtype=np.uint64),
            "order": self.order,
            "position": np.array([self.position]),
        }

    def restore(self, state: Tensors) -> None:
        low, high, inc_low, inc_high = (int(word) for word in state["rng"])
        has_uint32, uinteger = (int(word) for word in state["rng_rest"])
        self.rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": low | high << 64, "inc": inc_low | inc_high << 64},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        self.order, self.position = state["order"], int(state["position"][0])


def _target(inputs: Floats) -> Floats:
    return np.asarray(np.sin(inputs[:, :1] * 2) + inputs[:, 1:2] * inputs[:, 2:3])


@dataclass
class Rank:
    """One of the two processes, its end of the pipe, and a folder that both can see."""

    number: int
    pipe: Connection
    shared: Path
    network: Network
    loader: Loader
    step: int = 0

    def mean(self, values: Floats) -> Floats:
        """The mean over the ranks, added up in the order of ranks: the same bits in every run."""
        if self.number == 0:
            other = np.frombuffer(self.pipe.recv_bytes())
            mean = (values + other) / RANKS
            self.pipe.send_bytes(mean.tobytes())
            return mean
        self.pipe.send_bytes(values.tobytes())
        return np.frombuffer(self.pipe.recv_bytes())

    def train_step(self) -> float:
        """Take one step; the loss of this rank before it."""
        loss, gradients = self.network.loss_and_gradients(*self.loader.next_batch())
        mean = self.mean(gradients)
        self.step += 1
        self.network.update(self.step, mean)
        return loss

    def mean_loss(self, loss: float) -> float:
        return float(self.mean(np.array([loss]))[0])

    def next_loss(self) -> float:
        """The loss of the step to come: a restored run must have exactly it."""
        loss, _ = self.network.loss_and_gradients(*self.loader.peek_batch())
        return self.mean_loss(loss)

    def say(self, name: str, text: str) -> None:
        """Leave a message for the other rank in the shared folder."""
        temporary = self.shared / f"{name}.{self.number}.tmp"
        temporary.write_text(text)
        temporary.rename(self.shared / name)

    def hear(self, name: str) -> str:
        """Wait for a message. EOFError if the other rank is gone."""
        while not (self.shared / name).exists():
            if self.pipe.poll(0.005) and not (self.shared / name).exists():
                self.pipe.recv_bytes()
        return (self.shared / name).read_text()


def write_shards(rank: Rank) -> dict[str, Path]:
    """The files of what this rank owns: every other tensor, and its own loader."""
    owned = list(rank.network.weights)[rank.number :: RANKS]
    folder = rank.shared / f"step-{rank.step}"
    shards: dict[str, Tensors] = {
        f"model/rank{rank.number}.safetensors": {n: rank.network.weights[n] for n in owned},
        f"optimizer/rank{rank.number}.safetensors": {
            name: moment
            for name, moment in rank.network.moments.items()
            if name.partition(".")[2] in owned
        },
        f"loader/rank{rank.number}.safetensors": rank.loader.state(),
    }
    for path, tensors in shards.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / path, metadata={"step": str(rank.step)})
    return {path: folder / path for path in shards}


def save_checkpoint(rank: Rank, run: Generation | None, *, final: bool, victims: list[int]) -> None:
    """Both ranks send their shards; rank 0, which has the generation, begins and commits.

    `victims` are killed in the middle of the upload: how the demo dies.
    """
    files = write_shards(rank)
    metrics = {"eval/loss": rank.network.eval_loss(), NEXT_LOSS: rank.next_loss()}
    name = f"step-{rank.step}"
    if run is None:
        sizes = {path: file.stat().st_size for path, file in files.items()}
        rank.say(f"{name}.sizes", json.dumps(sizes))
        ticket = Ticket.from_text(rank.hear(f"{name}.ticket"))
        rank.say(f"{name}.records", records_to_text(upload(ticket, files, rank=rank.number)))
        return

    def die_half_way(bytes_done: int, bytes_total: int) -> None:
        if 0 < bytes_done < bytes_total:
            for process in victims:
                os.kill(process, signal.SIGKILL)

    sizes = json.loads(rank.hear(f"{name}.sizes"))
    sizes |= {path: file.stat().st_size for path, file in files.items()}
    ticket = run.begin_save(sizes, step=rank.step)
    rank.say(f"{name}.ticket", ticket.to_text())
    records = upload(ticket, files, rank=rank.number, workers=1, progress=die_half_way)
    records += records_from_text(rank.hear(f"{name}.records"))
    saved = run.commit(
        ticket,
        records,
        metrics=metrics,
        runtime=runtime_identity(),
        runtime_contract_version="1",
        restore=RestoreContract("numpy-demo", {"ranks": RANKS}),
        world_size=RANKS,
        sharding={"ranks": "every"},
        final=final,
    )
    print(f"saved {saved}, eval/loss {metrics['eval/loss']:.4f}", flush=True)


def runtime_identity() -> RuntimeIdentity:
    """What, beside the weights, one needs in order to go on."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    loaders = {"files": [f"loader/rank{number}.safetensors" for number in range(RANKS)]}
    return RuntimeIdentity(
        model_config=RuntimeFact("value", {"inputs": INPUTS, "hidden": HIDDEN, "outputs": 1}),
        optimizer=RuntimeFact("value", {"name": "adam", "learning_rate": LEARNING_RATE}),
        rng_state=RuntimeFact("value", loaders),
        data_cursor=RuntimeFact("value", loaders),
        code_version=RuntimeFact("digest", f"sha256:{source}"),
    )


def restore(rank: Rank, folder: Path, step: int) -> None:
    """Continue from a checkpoint that was downloaded, and with that verified."""
    for number in range(RANKS):
        rank.network.weights |= load_file(folder / f"model/rank{number}.safetensors")
        rank.network.moments |= load_file(folder / f"optimizer/rank{number}.safetensors")
    rank.loader.restore(load_file(folder / f"loader/rank{rank.number}.safetensors"))
    rank.step = step


def train(rank: Rank, run: Generation | None, options: argparse.Namespace, other: int) -> None:
    """The loop of every rank."""
    saves = 0
    while rank.step < options.steps:
        rank.train_step()
        is_last = rank.step == options.steps
        if options.offline or not (is_last or rank.step % options.checkpoint_every == 0):
            continue
        saves += 1
        dies_now = saves == options.die_in_save
        save_checkpoint(rank, run, final=is_last, victims=[other, os.getpid()] if dies_now else [])


def run_rank_1(pipe: Connection, shared: Path, options: argparse.Namespace) -> None:
    """The second process."""
    rank = Rank(1, pipe, shared, Network(np.random.default_rng(SEED)), Loader(1))
    try:
        begin = json.loads(rank.hear("begin"))
        if begin["folder"]:
            restore(rank, Path(begin["folder"]), begin["step"])
        if options.restore_step:
            rank.mean_loss(rank.train_step())
        else:
            train(rank, None, options, other=0)
    except EOFError:
        sys.exit("rank 1: rank 0 is gone")


@contextmanager
def second_rank(
    shared: Path, options: argparse.Namespace
) -> Iterator[tuple[Connection, BaseProcess]]:
    """Rank 1 in its own process, ended with the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run_rank_1, args=(theirs, shared, options), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours, process
        process.join()
    finally:
        process.kill()


def run_rank_0(run: Generation | None, shared: Path, options: argparse.Namespace) -> Network:
    """The process that coordinates, and owns the generation if there is a coordinator."""
    with second_rank(shared, options) as (pipe, other):
        rank = Rank(0, pipe, shared, Network(np.random.default_rng(SEED)), Loader(0))
        begin: dict[str, Any] = {"folder": None, "step": 0}
        if run is not None and run.resume:
            downloaded = run.download(shared / f"restored-{run.number}")
            begin = {"folder": str(downloaded.folder), "step": run.resume.step}
            restore(rank, downloaded.folder, run.resume.step)
            print(f"resumed from {run.resume}", flush=True)
        elif run is not None:
            print(run.resume, flush=True)
        rank.say("begin", json.dumps(begin))
        train(rank, run, options, other=other.pid or 0)
        print(f"step {rank.step}, eval/loss {rank.network.eval_loss():.4f}", flush=True)
        return rank.network


def restore_step(shared: Path, options: argparse.Namespace) -> None:
    """Both ranks go on from a checkpoint by one step, and rank 0 reports what came of it."""
    started = time.monotonic()
    with second_rank(shared, options) as (pipe, _):
        rank = Rank(0, pipe, shared, Network(np.random.default_rng(SEED)), Loader(0))
        try:
            restore(rank, options.restore_step, options.step)
        except (KeyError, OSError, SafetensorError) as error:
            print(f"the checkpoint does not load: {error!r}", flush=True)
            sys.exit(CHECKPOINT_IS_BAD)
        rank.say("begin", json.dumps({"folder": str(options.restore_step), "step": options.step}))
        loss = rank.mean_loss(rank.train_step())
    seconds = time.monotonic() - started
    report = {"step": rank.step, "loss": loss, "seconds": seconds, "ranks": RANKS}
    options.report.write_text(json.dumps(report))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network; survive SIGKILL.")
    parser.add_argument("--url", help="where the coordinator answers")
    parser.add_argument("--workload", default="mlp")
    parser.add_argument("--stage", default="pretrain")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--replace", action="store_true", help="take over: the process that wrote before is dead"
    )
    parser.add_argument(
        "--die-in-save", type=int, metavar="N", help="SIGKILL all ranks in the middle of save N"
    )
    parser.add_argument("--weights-out", type=Path, help="write the final weights to this file")
    parser.add_argument(
        "--offline", action="store_true", help="no coordinator, no checkpoints: the reference"
    )
    drill = parser.add_argument_group("restore drill, as the contract numpy-demo runs it")
    drill.add_argument("--restore-step", type=Path, metavar="FOLDER", help="of the checkpoint")
    drill.add_argument("--step", type=int, help="of the checkpoint")
    drill.add_argument("--ranks", type=int, choices=[RANKS], help="which saved the checkpoint")
    drill.add_argument("--report", type=Path, help="where step, loss and seconds are written")
    options = parser.parse_args()
    if options.restore_step and (options.step is None or options.report is None):
        parser.error("--restore-step goes with --step and --report")
    if not options.offline and not options.url and not options.restore_step:
        parser.error("give --url, --offline or --restore-step")
    return options


def main() -> None:
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="lastgood-train-") as folder:
        shared = Path(folder)
        if options.restore_step:
            restore_step(shared, options)
            return
        if options.offline:
            network = run_rank_0(None, shared, options)
        else:
            key = os.environ["LASTGOOD_PROJECT_KEY"]
            workload = Workload(options.url, key, workload=options.workload, stage=options.stage)
            after = workload.writer().number if options.replace else None
            with workload.acquire(after=after) as run:
                network = run_rank_0(run, shared, options)
    if options.weights_out:
        save_file(network.weights, options.weights_out)


if __name__ == "__main__":
    main()
