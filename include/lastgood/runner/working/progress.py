"""How far a save or a download has come."""

from __future__ import annotations

import threading
from collections.abc import Callable

Report = Callable[[int, int], None]  # (bytes_done, bytes_total)


class Progress:
    """Counts bytes of many threads. `report` is called with each change, one call at a time, on the
    thread that made the change; what it raises ends the work."""

    def __init__(self, total_bytes: int, report: Report | None = None) -> None:
        self._lock = threading.RLock()
        self._report = report
        self._done_bytes = 0
        self.total_bytes = total_bytes

    @property
    def done_bytes(self) -> int:
        return self._done_bytes

    def add(self, size_bytes: int) -> None:
        """Count bytes that are safely at the other end."""
        with self._lock:
            self._done_bytes += size_bytes
            if self._report is not None:
                self._report(self._done_bytes, self.total_bytes)
