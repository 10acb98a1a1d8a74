"""The life of a checkpoint, in its order: trained, killed, resumed, validated, marked, swept,
cleaned up, reconciled. Each wait is for a condition and has an end."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.cleaning import cleanup_plan
from lastgood.flows.sweeping import sweep
from lastgood.stack.airflow_api import DagRun
from lastgood.stack.demo import dag_runs
from lastgood.stack.demo.dag_runs import DAG_IDS, PATIENCE
from lastgood.stack.demo.job import EVERY, TrainingJob
from lastgood.stack.demo.place import PROJECT, Place, reading, wait_until
from lastgood.stack.demo.screen import Screen
from lastgood.stack.errors import StackError

STAGE = "pretrain"
_WORKLOAD = "mlp"
_ROUNDS = 4
"""Of marking and sweeping: a scheduled mark in between makes a sweep keep what it has left."""


@dataclass(frozen=True)
class Told:
    """What happened, for the evidence: names of checkpoints, and what was seen on the way."""

    workload: str
    held: str
    read: str
    partial: Mapping[str, Any]  # the killed writer's attempt, as operators see it
    partial_bytes: int
    uninterrupted: Path
    failed_before: int
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Demo:
    """One run of the demo."""

    place: Place
    screen: Screen
    key: str
    workload: str

    def checkpoints(self) -> list[dict[str, Any]]:
        """Every checkpoint of the demo's stage, deleted ones too, the newest first."""
        asked = {"project": PROJECT, "workload": self.workload, "stage": STAGE}
        found: dict[str, dict[str, Any]] = {}
        for state in ({}, {"state": "deleted"}):
            answer = self.place.operator("checkpoints", **asked, **state)
            found |= {one["checkpoint"]: one for one in answer["checkpoints"]}
        return sorted(
            found.values(), key=lambda one: (one["generation"], one["sequence"]), reverse=True
        )

    def present(self) -> list[dict[str, Any]]:
        """Those of which a copy is there: a scheduled sweep may take some at any time."""
        return [
            one
            for one in self.checkpoints()
            if any(copy["state"] == "present" for copy in one["copies"])
        ]


def begin(place: Place, screen: Screen, key: str) -> Demo:
    """A demo under a name that nobody used before."""
    used = {stage["workload"] for stage in place.operator("stages", project=PROJECT)["stages"]}
    names = (f"{_WORKLOAD}-{n}" if n > 1 else _WORKLOAD for n in range(1, len(used) + 2))
    return Demo(place, screen, key, next(name for name in names if name not in used))


@contextmanager
def told(demo: Demo) -> Iterator[Told]:
    """Run the story; the reader of an old checkpoint reads until the block ends."""
    place, screen = demo.place, demo.screen
    failed_before = sum(1 for one in _uploads(demo) if one["state"] == "failed")
    with screen.step("wait until Airflow has read the DAGs"):
        place.airflow.wait_until_parsed(DAG_IDS, PATIENCE)
    job = TrainingJob(
        place.layout.checkout / "examples" / "train.py",
        place.url,
        demo.workload,
        place.job_environment(demo.key),
        place.layout.log_of(f"demo-{demo.workload}"),
    )
    uninterrupted = place.folder / "uninterrupted.safetensors"
    with screen.step("train without interruption, for reference"):
        job.uninterrupted(uninterrupted)
    partial, partial_bytes = _die(demo, job)
    with _kept_meanwhile(demo) as (held, read):
        _resume(demo, job, uninterrupted)
        _validate(demo)
        _sweep(demo)
        _clean_up(demo, str(partial["attempt"]))
        report = _reconcile(demo)
        yield Told(
            demo.workload,
            held,
            read,
            partial,
            partial_bytes,
            uninterrupted,
            failed_before,
            report,
        )


def _die(demo: Demo, job: TrainingJob) -> tuple[Mapping[str, Any], int]:
    with demo.screen.step("train, and kill both ranks in the middle of a save"):
        status = job.killed_in_a_save()
    committed = demo.checkpoints()
    left = [one for one in _uploads(demo) if one["checkpoint"].startswith(_stage(demo))]
    if len(committed) < 4 or len(left) != 1:
        raise StackError(
            f"the job committed {len(committed)} checkpoints and left {len(left)} attempts before"
            f" it ended with status {status}; see {job.log}"
        )
    partial_bytes = demo.place.outside.bytes_of_attempt(left[0]["prefix"], left[0]["attempt"])
    demo.screen.expect(
        "killed by SIGKILL in the middle of a save",
        status == -signal.SIGKILL and left[0]["state"] == "open" and partial_bytes > 0,
        f"{left[0]['checkpoint']} is an open attempt with {partial_bytes} bytes in the store;"
        f" {len(committed)} checkpoints were committed before",
    )
    return left[0], partial_bytes


@contextmanager
def _kept_meanwhile(demo: Demo) -> Iterator[tuple[str, str]]:
    """The oldest checkpoint has a hold, the one after it a reader who takes his time."""
    with ExitStack() as reader:
        with demo.screen.step("hold the oldest checkpoint, and begin to read the next one"):
            held, read = _held_and_read(demo, reader)
        yield held, read


def _held_and_read(demo: Demo, reader: ExitStack) -> tuple[str, str]:
    """A scheduled sweep may take one of them just before: then others are the oldest."""
    for left in reversed(range(_ROUNDS)):
        read, held = [one["checkpoint"] for one in demo.present()][-2:]
        try:
            reader.enter_context(reading(demo.place, demo.key, demo.workload, STAGE, read))
            reason = "shown by make run"
            demo.place.lastgood("hold", held, "--kind", "research", "--reason", reason)
            return held, read
        except (StackError, httpx.HTTPStatusError):
            reader.close()
            if not left:
                raise
    raise AssertionError


def _resume(demo: Demo, job: TrainingJob, uninterrupted: Path) -> None:
    before = demo.checkpoints()[0]
    weights = demo.place.folder / "resumed.safetensors"
    with demo.screen.step("replace the dead writer, resume, and train to the end"):
        job.replaced(weights)
    first = min(
        (one for one in demo.checkpoints() if one["generation"] == before["generation"] + 1),
        key=lambda one: int(one["sequence"]),
    )
    position = f"{before['generation']}.{before['sequence']}"
    demo.screen.expect(
        "the new generation resumed from the last good checkpoint",
        first["resumed_from"] == position and first["step"] == before["step"] + EVERY,
        f"{first['checkpoint']} (step {first['step']}) resumed from {first['resumed_from']}",
    )
    demo.screen.expect(
        "the resumed run ends with the weights of the uninterrupted one",
        weights.read_bytes() == uninterrupted.read_bytes(),
        f"compared all {uninterrupted.stat().st_size} bytes",
    )


def _validate(demo: Demo) -> None:
    _run(demo, "verify_commits", "finish what is sealed")
    _run(demo, "validate_restores", "read every new checkpoint again")
    wait_until(
        "every checkpoint that is there has a receipt",
        lambda: all(one["verdicts"].get("checksum") for one in demo.present()),
        PATIENCE,
    )


def _sweep(demo: Demo) -> None:
    """To quarantine, through the grace, and to deletion."""
    for _ in range(_ROUNDS):
        _run(demo, "mark_retention", "decide what each rule keeps")
        _run(demo, "sweep_quarantine", "candidates through the gate, to quarantine")
        plan = _plan(demo)
        if plan.stop:
            raise StackError(f"the sweep asks for approval: {plan.stop}")
        if not _of_stage(demo, plan.quarantine):
            break
    hidden, gone = _in_state(demo, "quarantined"), _in_state(demo, "deleted")
    found = f"{len(hidden)} of {len(demo.checkpoints())} checkpoints"
    demo.screen.expect(
        "candidates lie in quarantine, where nobody may read them",
        bool(hidden or gone),
        f"{found}, and {len(gone)} are deleted already" if gone else found,
    )
    for _ in range(_ROUNDS):
        with demo.screen.step("wait until the grace of the quarantine is over"):
            wait_until(
                "the grace of the quarantine",
                lambda: len(_of_stage(demo, _plan(demo).delete)) == len(_leaving(demo)),
                PATIENCE,
            )
        _run(demo, "mark_retention", "decide again, as of now")
        _run(demo, "sweep_quarantine", "through the gate again, to deletion")
        if not _leaving(demo):
            break


def _clean_up(demo: Demo, attempt: str) -> None:
    with demo.screen.step("wait until the killed writer's lease and grants have ended") as say:

        def is_given_up() -> bool:
            plan = cleanup_plan.plan(demo.place.services.catalog, PROJECT)
            waiting = {str(one): why for one, why in plan.waiting.items()}
            if attempt in waiting:
                say(waiting[attempt])
            mine = {one["attempt"] for one in _uploads(demo) if one["incomplete"]}
            return not (waiting.keys() & {attempt, *mine})

        wait_until("the killed writer's lease and grants", is_given_up, PATIENCE)
    _run(demo, "clean_incomplete_uploads", "reclaim what the killed save left")


def _reconcile(demo: Demo) -> Mapping[str, Any]:
    run = _run(demo, "reconcile_inventory", "account for every byte")
    result = dag_runs.returned_for_project(demo.place, run, "reconcile")
    (report,) = [one for one in result["reports"] if one["store"] == demo.place.store]
    document: Mapping[str, Any] = json.loads(Path(report["json"]).read_text())
    return {**report, "document": document}


def _run(demo: Demo, dag_id: str, why: str) -> DagRun:
    return dag_runs.run(demo.place, demo.screen, dag_id, why)


def _plan(demo: Demo) -> sweep.Plan:
    """What a sweep would do now, by the newest mark."""
    return sweep.plan(demo.place.services.catalog, PROJECT)


def _of_stage(demo: Demo, copies: Sequence[Copy]) -> list[str]:
    names = [str(copy.checkpoint) for copy in copies]
    return [name for name in names if name.startswith(_stage(demo))]


def _leaving(demo: Demo) -> list[str]:
    return _in_state(demo, "quarantined") + _in_state(demo, "deleting")


def _in_state(demo: Demo, state: str) -> list[str]:
    return [
        one["checkpoint"]
        for one in demo.checkpoints()
        if state in {copy["state"] for copy in one["copies"]}
    ]


def _uploads(demo: Demo) -> list[dict[str, Any]]:
    """Attempts of this and of earlier demos that are not committed and not closed."""
    found: list[dict[str, Any]] = demo.place.operator("uploads", project=PROJECT)["attempts"]
    of_a_demo = re.compile(rf"{PROJECT}/{_WORKLOAD}(-\d+)?/{STAGE}/")
    return [one for one in found if of_a_demo.match(one["checkpoint"])]


def _stage(demo: Demo) -> str:
    return f"{PROJECT}/{demo.workload}/{STAGE}/"
