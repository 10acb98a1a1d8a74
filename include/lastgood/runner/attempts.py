"""The attempts of one generation: numbered, prepared, committed."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lastgood.errors import AttemptState, LastgoodError, StaleSequence
from lastgood.rules.manifest import CheckpointKind, Manifest, ResumedFrom
from lastgood.rules.names import CheckpointId, StageId
from lastgood.runner.checkpoint import Checkpoint
from lastgood.runner.commit import Facts, manifest_of
from lastgood.runner.sending.ticket import ObjectRecord, Ticket
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.retry import Retry
from lastgood.runner.working.stopping import Stop

log = logging.getLogger("lastgood.runner")
_SAY_EVERY = timedelta(minutes=1)  # that a commit is still being verified
_TRIES = 100  # attempts that an earlier process of the same generation may have left open
_CANCEL = Retry(patience=timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of prepare. The same request with the same key is the same attempt."""

    step: int
    kind: CheckpointKind
    sizes: Mapping[str, int]  # bytes by object path


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An attempt that was prepared, or may have been, and is not committed."""

    request: Request
    sequence: int
    idempotency_key: str


class Attempts:
    """Asks the coordinator for attempts, one at a time. Not for several threads at once."""

    def __init__(
        self,
        coordinator: Coordinator,
        stage: StageId,
        generation: int,
        resumed_from: ResumedFrom | None,
    ) -> None:
        self._coordinator = coordinator
        self._stage = stage
        self._generation = generation
        self._next_sequence = 1
        self._resumed_from = resumed_from
        self._unfinished: Unfinished | None = None
        self._prepared: str | None = None

    def is_unfinished(self, request: Request) -> bool:
        """Whether this very request was begun and its attempt is still of use."""
        return self._unfinished is not None and self._unfinished.request == request

    def prepare(self, request: Request, stop: Stop) -> Ticket:
        """Have a place made for the objects. An unfinished attempt of the same request goes on.

        Raises FencedGeneration, LeaseExpired, NoRoom, …
        """
        coordinator = self._coordinator.until(stop)
        for tries in itertools.count(1):
            attempt = self._attempt_for(request)
            try:
                answer = coordinator.ask("POST", "checkpoints/prepare", _body(attempt))
                break
            except StaleSequence as stale:  # an earlier process of this generation went further
                self._go_behind(stale)
            except AttemptState:  # ... or is at this sequence; or our own attempt was cleaned up
                self.forget()
                if tries == _TRIES:
                    raise
        self._prepared = str(answer["attempt"])
        return Ticket.from_prepared(
            answer, request.sizes, url=self._coordinator.url, step=request.step
        )

    def _attempt_for(self, request: Request) -> Unfinished:
        if self._unfinished is None or self._unfinished.request != request:
            self._unfinished = Unfinished(request, self._next_sequence, str(uuid.uuid4()))
            self._next_sequence += 1
        return self._unfinished

    def _go_behind(self, stale: StaleSequence) -> None:
        generation, _, sequence = str(stale.facts["current"]).partition(".")
        if int(generation) != self._generation or int(sequence) < self._next_sequence - 1:
            raise stale
        self._next_sequence = int(sequence) + 1
        self.forget()

    def cancel(self) -> None:
        """Give the unfinished attempt up: its room is free as soon as its grants have ended. Best
        effort, since a clean-up of the coordinator gets to it, too."""
        if self._prepared is not None:
            coordinator = self._coordinator.until(Stop(), _CANCEL)
            with suppress(LastgoodError):
                coordinator.ask("DELETE", f"checkpoints/{self._prepared}")
        self.forget()

    def forget(self) -> None:
        """The unfinished attempt is of no use any more; its bytes are cleaned up by the
        coordinator."""
        self._unfinished = None
        self._prepared = None

    def check(self, request: Request, objects: Sequence[ObjectRecord], facts: Facts) -> None:
        """Refuse before any byte is sent what the manifest could not say. `objects` as far as
        known."""
        self._manifest(self._next_sequence, request.step, objects, facts)

    def commit(
        self, ticket: Ticket, records: Sequence[ObjectRecord], facts: Facts, stop: Stop
    ) -> Checkpoint:
        """Commit, and wait while the coordinator verifies. Asking again is the same request."""
        manifest = self._manifest(ticket.sequence, ticket.step, records, facts)
        body = {"attempt": ticket.attempt, "manifest": manifest.to_json()}
        coordinator = self._coordinator.until(stop)
        while True:
            answer = coordinator.ask("POST", "checkpoints/commit", body)
            if answer["state"] == "committed":
                self.forget()
                return Checkpoint.from_json(answer["committed"])
            _wait_while_sealed(coordinator, ticket.attempt, answer)

    def _manifest(
        self, sequence: int, step: int, objects: Sequence[ObjectRecord], facts: Facts
    ) -> Manifest:
        checkpoint = CheckpointId.of(self._stage, self._generation, sequence)
        return manifest_of(checkpoint, step, objects, self._resumed_from, facts)


def _body(attempt: Unfinished) -> dict[str, Any]:
    return {
        "sequence": attempt.sequence,
        "step": attempt.request.step,
        "kind": attempt.request.kind.value,
        "idempotency_key": attempt.idempotency_key,
        "objects": [{"path": path, "bytes": size} for path, size in attempt.request.sizes.items()],
    }


def _wait_while_sealed(coordinator: Coordinator, attempt: str, accepted: Mapping[str, Any]) -> None:
    answer = dict(accepted)
    began = said = time.monotonic()
    while answer["state"] == "sealed":
        coordinator.stop.wait(timedelta(seconds=answer["retry_after_seconds"]))
        now = time.monotonic()
        if now - said >= _SAY_EVERY.total_seconds():
            said = now
            log.warning(
                "attempt %s is being verified for %.0f s: DAG verify_commits reads its bytes, or"
                " waits for a worker to do so",
                attempt,
                now - began,
            )
        answer |= coordinator.ask("GET", f"checkpoints/{attempt}")
