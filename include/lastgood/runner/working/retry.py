"""How long and how often a request is tried again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from lastgood.errors import LastgoodError
from lastgood.runner.working.stopping import Stop

log = logging.getLogger("lastgood.runner")

Result = TypeVar("Result")


class Transient(Exception):
    """A failure that may pass. `error` is what the caller gets if it does not; `asks_for_less`: too
    many requests are its cause."""

    def __init__(
        self,
        error: LastgoodError,
        retry_after: timedelta | None = None,
        *,
        asks_for_less: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after
        self.asks_for_less = asks_for_less


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with full jitter.

    A restart of the coordinator takes a minute, so the default patience is several.
    """

    patience: timedelta = timedelta(minutes=5)  # from the first failure to giving up
    first_pause: timedelta = timedelta(milliseconds=200)
    longest_pause: timedelta = timedelta(seconds=15)

    def call(
        self,
        action: Callable[[], Result],
        stop: Stop,
        reached: Callable[[], object] = lambda: None,
    ) -> Result:
        """What `action` answers, tried again while it raises Transient.

        A `retry_after` is honoured. `reached` is how far the action has come: a failure further on
        is a first one again. Raises the last Transient's error when the patience ends, and the
        reason of `stop` as soon as there is one.
        """
        pause = self.first_pause
        said = ""
        deadline: float | None = None
        before = reached()
        while True:
            stop.check()
            try:
                with stop.obeyed():
                    return action()
            except Transient as failure:
                stop.check()  # which may be what broke it off
                now = time.monotonic()
                if (there := reached()) != before:
                    before, deadline, pause = there, None, self.first_pause
                deadline = deadline or now + self.patience.total_seconds()
                rest = failure.retry_after or pause * random.random()
                if now + rest.total_seconds() > deadline:
                    raise failure.error from failure
                if str(failure.error) != said:
                    said = str(failure.error)
                    log.warning("waiting up to %.0f s longer: %s", deadline - now, said)
            stop.wait(rest)
            pause = min(pause * 2, self.longest_pause)
