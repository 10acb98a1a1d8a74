"""A writer's lease: renewed on a thread of its own, and the first to know that it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lastgood.errors import AttemptState, FencedGeneration, LastgoodError
from lastgood.rules.names import StageId
from lastgood.runner.wire.heartbeat import Heartbeat
from lastgood.runner.wire.http import BEAT_TIMEOUT, Coordinator
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.retry import Retry
from lastgood.runner.working.stopping import Stop

log = logging.getLogger("lastgood.runner")
_RELEASE = Retry(patience=timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt that is renewed with the generation.

    `progress` where this process sends all of its objects.
    """

    id: str
    progress: Progress | None

    def as_json(self) -> dict[str, Any]:
        if self.progress is None:
            return {"attempt": self.id}
        return {"attempt": self.id, "progress": {"bytes": self.progress.done_bytes}}


class WriterLease:
    """The right to write a stage, until it is lost or closed."""

    def __init__(
        self, coordinator: Coordinator, stage: StageId, number: int, interval: timedelta
    ) -> None:
        self.lost = threading.Event()
        self._coordinator = coordinator  # bears the generation's token
        self._name = f"generation {number} of {stage}"
        self._reason: Exception | None = None
        self._open: OpenAttempt | None = None
        self._stop = Stop()
        self._heartbeat = Heartbeat(self._beat, interval, self.lose, name=f"generation-{number}")

    def check(self) -> None:
        """Raise why the lease is lost, if it is."""
        if self._reason is not None:
            raise self._reason

    def new_stop(self) -> Stop:
        """The Stop of the next piece of work: requested when the lease is lost."""
        self._stop = Stop()
        self.check()  # after the assignment: a loss before it stopped only the Stop of before
        return self._stop

    def cover(self, attempt: str, progress: Progress | None = None) -> None:
        """Renew this attempt's lease too, from the next beat on."""
        self._open = OpenAttempt(attempt, progress)

    def uncover(self) -> None:
        """Renew the generation alone: the attempt is sealed, or over."""
        self._open = None

    def lose(self, reason: Exception) -> None:
        """Write no more, and end the work that is under way with this reason."""
        self._reason = reason
        self.lost.set()
        self._stop.request(reason)

    def close(self) -> None:
        """Stop renewing, and give the lease back. Raises FencedGeneration if it was lost."""
        self._heartbeat.close()
        self.check()
        try:
            self._coordinator.until(Stop(), _RELEASE).ask("DELETE", "generations/current")
        except FencedGeneration as error:
            self.lose(error)
            raise
        except LastgoodError as error:
            # It ends by itself; what was trained and saved stands.
            log.warning("%s was not released: %s", self._name, error)

    def _beat(self) -> timedelta:
        opened = self._open
        try:
            return self._renew({} if opened is None else opened.as_json())
        except AttemptState:  # it was sealed, or is over; the generation is still to be renewed
            if self._open is opened:
                self._open = None
            return self._renew({})

    def _renew(self, body: Mapping[str, Any]) -> timedelta:
        answer = self._coordinator.ask_once("POST", "heartbeats", body, timeout=BEAT_TIMEOUT)
        return answer.renewal_of("lease_expires_at")
