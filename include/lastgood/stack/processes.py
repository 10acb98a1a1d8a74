"""Processes named by pid *and* start time, so that a re-used pid is never mistaken for ours."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for its whole life. `started` is seconds since the epoch, as the kernel says."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Identify the living process with this pid; None when there is none."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.NoSuchProcess:
            return None

    def is_alive(self) -> bool:
        """Tell whether this very process still runs (a zombie does not)."""
        return ProcessIdentity.of(self.pid) == self

    def send(self, signal_number: int) -> bool:
        """Send a signal to this very process; False when it is gone."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.started:
                return False
            process.send_signal(signal_number)
        except psutil.NoSuchProcess:
            return False
        return True

    def family(self) -> frozenset[ProcessIdentity]:
        """Return this process and all its living descendants; empty when it is gone."""
        if not self.is_alive():
            return frozenset()
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return frozenset()
        found = (ProcessIdentity.of(child.pid) for child in children)
        return frozenset({self, *(identity for identity in found if identity)})


def wait_until_gone(
    identities: Iterable[ProcessIdentity], timeout_seconds: float
) -> frozenset[ProcessIdentity]:
    """Wait until all have ended or the time is over; return those that still live."""
    deadline = time.monotonic() + timeout_seconds
    living = frozenset(identity for identity in identities if identity.is_alive())
    while living and time.monotonic() < deadline:
        time.sleep(0.05)
        living = frozenset(identity for identity in living if identity.is_alive())
    return living
