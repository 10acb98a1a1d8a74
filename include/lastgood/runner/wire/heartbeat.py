"""Calls repeated on a thread of their own, so that a lease outlives a long step of training."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from lastgood.runner.problems import NO_DOCUMENT, RemoteProblem
from lastgood.runner.working.retry import Transient

log = logging.getLogger("lastgood.runner")


class Heartbeat:
    """Calls `beat` again and again until `close`; it answers when to call it next.

    A Transient failure is logged and tried again sooner, and so is a page of what stands between:
    only the coordinator's own word ends a lease. Any other error is given once to `on_refusal`, and
    the beating ends.
    """

    def __init__(
        self,
        beat: Callable[[], timedelta],
        first_pause: timedelta,
        on_refusal: Callable[[Exception], None],
        *,
        name: str,
    ) -> None:
        self._beat = beat
        self._pause = first_pause
        self._on_refusal = on_refusal
        self._closed = threading.Event()
        # A daemon: a lease must not keep a process alive that has nothing else to do.
        self._thread = threading.Thread(target=self._run, name=f"lastgood-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for a beat that is under way."""
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while not self._closed.wait(pause.total_seconds()):
            try:
                pause = self._pause = self._beat()
            except Exception as error:  # also a fault of ours: a lease never ends unnoticed
                if not _may_pass(error):
                    self._on_refusal(error)
                    return
                log.warning("%s: %s", self._thread.name, error)
                pause = self._pause / 4


def _may_pass(error: Exception) -> bool:
    if isinstance(error, RemoteProblem):
        return bool(error.facts["problem"] == NO_DOCUMENT)
    return isinstance(error, Transient)
