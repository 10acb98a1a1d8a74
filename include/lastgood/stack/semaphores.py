"""What Airflow's executor needs of the machine, asked before anything is started."""

from __future__ import annotations

import multiprocessing

from lastgood.stack.errors import StackError


def require_semaphores() -> None:
    """Raise StackError where processes can share no semaphore: Airflow's scheduler would start, and
    end with an error that does not name the cause."""
    try:
        multiprocessing.get_context().Lock()
    except OSError as error:
        raise StackError(
            "Airflow's executor needs semaphores in /dev/shm, and none can be made there"
            f" ({error.strerror}); mount a tmpfs at /dev/shm that this account may write to"
        ) from error
