"""One reason to stop, seen by every thread of a piece of work."""

from __future__ import annotations

import threading
from datetime import timedelta


class Stop:
    """Set once with the error that tells why; threads look at it between their steps."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._reason: BaseException | None = None

    def request(self, reason: BaseException) -> None:
        """Ask all to stop. The first reason stays."""
        with self._lock:
            self._reason = self._reason or reason
        self._requested.set()

    @property
    def reason(self) -> BaseException | None:
        return self._reason

    def check(self) -> None:
        """Raise the reason if there is one."""
        if self._reason is not None:
            raise self._reason

    def wait(self, pause: timedelta) -> None:
        """Sleep, but raise the reason as soon as there is one."""
        self._requested.wait(pause.total_seconds())
        self.check()
