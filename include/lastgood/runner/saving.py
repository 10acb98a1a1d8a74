"""A save from prepare to commit, in the foreground or on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from lastgood.runner.checkpoint import Checkpoint
from lastgood.runner.problems import Cancelled
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.stopping import Stop

Phase = Literal["prepare", "upload", "commit", "over"]


@dataclass(frozen=True, slots=True)
class SaveProgress:
    """How far a save is. While the coordinator verifies, the phase is `commit`."""

    phase: Phase
    bytes_done: int
    bytes_total: int


class SaveHandle:
    """A save under way in the background, or over.

    A failure that nobody asked for (by `result` or `error`) is raised by the next save, or at the
    end of the generation's `with` block: it is never lost.
    """

    def __init__(self, step: int, progress: Progress, stop: Stop) -> None:
        self.step = step
        self.phase: Phase = "prepare"
        self._progress = progress
        self._stop = stop
        self._outcome: Future[Checkpoint] = Future()
        self._asked = False

    def result(self, timeout: timedelta | None = None) -> Checkpoint:
        """The committed checkpoint. Waits for it; raises why the save failed, or TimeoutError."""
        try:
            return self._outcome.result(None if timeout is None else timeout.total_seconds())
        finally:
            self._asked = self._asked or self.done

    @property
    def error(self) -> BaseException | None:
        """Why the save failed; None if it did not, or is under way."""
        if not self.done:
            return None
        self._asked = True
        return self._outcome.exception()

    @property
    def done(self) -> bool:
        """Whether the save is over, well or not."""
        return self._outcome.done()

    @property
    def progress(self) -> SaveProgress:
        return SaveProgress(self.phase, self._progress.done_bytes, self._progress.total_bytes)

    def cancel(self) -> None:
        """Stop uploading. A commit that the coordinator has begun is not undone."""
        self._stop.request(Cancelled(what=f"save of step {self.step}"))

    def run(self, save: Callable[[], Checkpoint]) -> None:
        """Do the work on this thread and keep its outcome."""
        try:
            self._outcome.set_result(save())
        except BaseException as error:
            self._outcome.set_exception(error)
        finally:
            self.phase = "over"

    def start(self, save: Callable[[], Checkpoint]) -> None:
        """Do the work on a thread, which keeps the process alive until the save is over."""
        threading.Thread(
            target=self.run, args=(save,), name=f"lastgood-save-{self.step}", daemon=False
        ).start()

    def raise_unasked(self) -> None:
        """Wait; raise a failure that nobody has asked for."""
        failure = self._outcome.exception()
        if failure is not None and not self._asked:
            self._asked = True
            raise failure
