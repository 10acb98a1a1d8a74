"""Whether whoever asks a store waits for its answer.

Long work is patient: a server that restarts is not the end of it. The first questions of a store,
those of its opening and of the guard, are asked in a hurry: one that does not answer them does not
answer the work either, and a person, or everybody's requests, wait for that to be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

HURRY: ContextVar[bool] = ContextVar("hurry", default=False)
CONNECT_WITHIN = timedelta(seconds=5)  # what was lost is sent again after 1 s and after 3 s
ANSWER_WITHIN = timedelta(seconds=8)  # in a hurry; a small question takes milliseconds


@contextmanager
def hurried() -> Iterator[None]:
    """What this thread asks of stores in the block is told as unanswered within seconds."""
    before = HURRY.set(True)
    try:
        yield
    finally:
        HURRY.reset(before)
