"""From which age an upload is given up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastgood.rules.policy_sections import UploadPolicy
from lastgood.rules.upload_threshold import Measured, lifecycle_days, threshold

HOUR = timedelta(hours=1)
POLICY = UploadPolicy(abort_after=4 * HOUR, margin_over_p99=2)


@pytest.mark.parametrize(
    ("measured", "age", "because"),
    [
        (None, 4 * HOUR, "abort_after; no upload of class big was measured"),
        (Measured(500, HOUR, 9 * HOUR), 4 * HOUR, "abort_after; the p99 of class big is 1:00:00"),
        (Measured(500, 2 * HOUR, 9 * HOUR), 4 * HOUR, "abort_after"),
        (Measured(500, 3 * HOUR, 9 * HOUR), 6 * HOUR, "2 times what was measured; the p99"),
        (Measured(100, 3 * HOUR, 9 * HOUR), 6 * HOUR, "the p99 of class big is 3:00:00"),
        (
            Measured(99, 3 * HOUR, 9 * HOUR),
            18 * HOUR,
            "the longest upload of class big (99 uploads were measured, too few for a p99) took 9:",
        ),
        (Measured(1, HOUR, HOUR), 4 * HOUR, "(1 upload was measured, too few for a p99) took 1:"),
    ],
)
def test_the_threshold_is_the_larger_and_says_where_it_comes_from(
    measured: Measured | None, age: timedelta, because: str
) -> None:
    found = threshold(POLICY, "big", measured)
    assert found.age == age
    assert because in found.because


@pytest.mark.parametrize(
    ("days", "longest", "wanted"),
    [
        (1, 4 * HOUR, 1),
        (1, 23 * HOUR, 1),
        (1, 24 * HOUR, 2),
        (1, 47 * HOUR, 2),
        (2, 48 * HOUR, 3),
        (7, 48 * HOUR, 7),
    ],
)
def test_a_bucket_waits_whole_days_and_longer_than_the_threshold(
    days: int, longest: timedelta, wanted: int
) -> None:
    assert lifecycle_days(days, longest) == wanted
    assert timedelta(days=wanted) > longest
