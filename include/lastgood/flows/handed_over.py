"""What a task is handed by an earlier one of its run, which older code may have written.

A run that is in flight across an upgrade has tasks of both. What older code did not say must not be
taken for anything: an absent word is no "nothing failed".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lastgood.errors import LastgoodError


class HandedOverByOtherCode(LastgoodError):
    """Task {task} handed over something else than this code reads ({missing}), as in a run that
    began before an upgrade. Clear {task} in that run with what follows it, or wait for the next."""

    status = 409
    type = "handed-over-by-other-code"


@contextmanager
def handed_over_by(task: str) -> Iterator[None]:
    """Around the reading of what a task handed over: raises HandedOverByOtherCode for what is
    absent, or is not of the kind that is expected."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        missing = f"{type(error).__name__}: {error}"
        raise HandedOverByOtherCode(task=task, missing=missing) from error
