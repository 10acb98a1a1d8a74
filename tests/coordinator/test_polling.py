"""How long a client is told to wait while its checkpoint is read."""

from __future__ import annotations

from typing import cast

import pytest

from lastgood.catalog.jobs.attempts import Attempt
from lastgood.coordinator.runners.checkpoints import _poll_seconds
from lastgood.flows.jobs.attempt_status import AttemptStatus

MIB = 2**20


@pytest.mark.parametrize(
    ("total_bytes", "verified_bytes", "seconds"),
    [
        (0, 0, 1),
        (MIB, 0, 1),
        (2_000 * MIB, 0, 10),
        (2_000 * MIB, 1_000 * MIB, 5),
        (2_000 * MIB, 2_000 * MIB, 1),
        (600_000 * MIB, 0, 60),
    ],
)
def test_a_client_is_told_to_wait_for_as_long_as_the_rest_takes_to_read(
    total_bytes: int, verified_bytes: int, seconds: int
) -> None:
    nobody = cast(Attempt, None)
    status = AttemptStatus(nobody, 1, 0, total_bytes, verified_bytes, [], None, None)
    assert _poll_seconds(status) == seconds
