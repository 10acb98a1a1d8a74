"""Waiting in tests: for a condition, never for a while. The bound is for what never comes: a busy
machine may take many times as long as a free one."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Return once `condition()` holds; fail the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
