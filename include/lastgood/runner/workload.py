"""One stage of a training job, before anybody writes it: who does, what is there, and taking
over."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self

from lastgood.rules.names import StageId
from lastgood.runner.checkpoint import Checkpoint, NoCheckpoint, checkpoint_or_none, instant
from lastgood.runner.generation import Generation, Grant
from lastgood.runner.problems import StageBusy
from lastgood.runner.receiving.download import Downloaded, download
from lastgood.runner.wire.client import new_client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.progress import Report
from lastgood.runner.working.retry import Retry

Kind = Literal["checkpointed", "restartable", "ephemeral"]
_LOOK_AGAIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Writer:
    """The newest generation of a stage; number 0 if there was none yet."""

    number: int
    holder: str | None
    lease_expires_at: datetime | None
    active: bool  # neither ended nor lapsed


class Workload:
    """A stage of a training job, as its project's key shows it. Usable from many threads.

    `url`: where the coordinator answers. `holder`: how operators read who writes or reads; by
    default the host's name and the process id.
    """

    def __init__(
        self,
        url: str,
        project_key: str,
        *,
        workload: str,
        stage: str,
        holder: str | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.workload = workload
        self.stage = stage
        self.holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self._client = new_client()
        self._coordinator = Coordinator.at(
            url, project_key, retry=retry or Retry(), client=self._client
        )

    def writer(self) -> Writer:
        """Who writes the stage now."""
        answer = self._coordinator.ask("GET", "generations", query=self._query())
        expires = answer["lease_expires_at"]
        return Writer(
            answer["generation"],
            answer["holder"],
            None if expires is None else instant(expires),
            answer["active"],
        )

    def acquire(
        self,
        *,
        after: int | None = None,
        fresh: bool = False,
        wait: timedelta = timedelta(0),
        idempotency_key: str | None = None,
        preemption: str | None = None,
        kind: Kind | None = None,
        workload_class: str | None = None,
    ) -> Generation:
        """Become the writer: a new generation, which fences all earlier ones.

        Without `after` this succeeds only if nobody writes the stage; it waits up to `wait` for
        that. `after=N` replaces generation N whatever it is doing: for a supervisor that knows it
        is dead. `fresh` says that the stage may begin from nothing although it has checkpoints. A
        process that is started again with the same `idempotency_key` gets the same generation.
        `preemption` is what `preempted` answered.

        Raises StageBusy, StaleAcquire (somebody else was faster), FreshStartRefused,
        RestoreBlocked.
        """
        body = {
            **self._query(),
            "after": self._free(wait) if after is None else after,
            "idempotency_key": idempotency_key or str(uuid.uuid4()),
            "holder": self.holder,
            "kind": kind,
            "class": workload_class,
            "fresh": fresh,
            "preemption": preemption,
        }
        answer = self._coordinator.ask("POST", "generations", body)
        return Generation(self._coordinator.bearing(answer["token"]), _grant(answer), self.holder)

    def preempted(self, notice: Mapping[str, Any]) -> str:
        """Record the supplier's notice that the machine goes away; its id, for the next
        `acquire`."""
        body = {**self._query(), "idempotency_key": str(uuid.uuid4()), "notice": dict(notice)}
        recorded: str = self._coordinator.ask("POST", "preemptions", body)["preemption"]
        return recorded

    def latest(self) -> Checkpoint | NoCheckpoint:
        """The last good checkpoint, or an explicit none with the reasons. Raises RestoreBlocked."""
        answer = self._coordinator.ask("GET", "checkpoints/latest", query=self._query())
        return checkpoint_or_none(answer["checkpoint"], answer.get("reasons") or [])

    def download(
        self,
        which: str,
        dest: str | Path,
        *,
        workers: int | None = None,
        progress: Report | None = None,
        durable: bool = True,
    ) -> Downloaded:
        """Fetch a checkpoint into `dest`, which is empty or not there, and appears only when every
        byte was verified.

        `which`: "latest", or workload/stage/generation.sequence. The checkpoint cannot be collected
        meanwhile. An interrupted download of the same checkpoint to the same place goes on.
        `workers`: connections; if it is not said, as many as pay. `durable`: it is on the disk when
        this returns, and would outlive a power cut; without, the file system writes it when it
        likes.

        Raises DestinationTaken, NotFound, RestoreBlocked, CopyGone, CorruptObject, Unreachable.
        """
        return download(
            self._coordinator,
            self.workload,
            self.stage,
            which,
            Path(dest),
            reader=self.holder,
            pace=Pace.of(workers),
            progress=progress,
            durable=durable,
        )

    def close(self) -> None:
        """Close the connections, also those of the generations acquired here."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _free(self, wait: timedelta) -> int:
        """The newest generation, once nobody writes as it any more."""
        deadline = time.monotonic() + wait.total_seconds()
        while (writer := self.writer()).active:
            if time.monotonic() >= deadline:
                raise StageBusy(
                    stage=f"{self.workload}/{self.stage}",
                    holder=writer.holder,
                    generation=writer.number,
                    lease_expires_at=writer.lease_expires_at,
                )
            time.sleep(_LOOK_AGAIN.total_seconds())
        return writer.number

    def _query(self) -> dict[str, str]:
        return {"workload": self.workload, "stage": self.stage}


def _grant(answer: Mapping[str, Any]) -> Grant:
    return Grant(
        stage=StageId.of(answer["project"], answer["workload"], answer["stage"]),
        number=answer["generation"],
        heartbeat=timedelta(seconds=answer["heartbeat_seconds"]),
        resume=checkpoint_or_none(answer["resume"], answer.get("reasons") or []),
    )
