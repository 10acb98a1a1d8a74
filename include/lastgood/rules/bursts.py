"""Bursts: a stage commits much faster, or much more, than it ever did.

Nobody can push good checkpoints out by a burst: roles by time keep one of each bucket, and the
floor stays. But it is how a broken or a stolen writer looks, so it is told to somebody. A stage is
only compared with its own past: what is usual for one is a burst of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from lastgood.rules.quantities import duration_text, instant_text, rough_size

WINDOW = timedelta(hours=1)
TIMES = 3  # so many times what any earlier window had
LEAST_NUMBER = 10  # fewer commits in a window are never too many
LEAST_PAST = 10  # commits before the window, over a whole one: before that nothing is usual yet


@dataclass(frozen=True, slots=True)
class Commit:
    """When a checkpoint was committed (aware), and how large it is."""

    at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Burst:
    """The commits of one window, beside the most that any earlier one had."""

    first: datetime
    last: datetime
    number: int
    size_bytes: int
    usual_number: int
    usual_bytes: int
    median_bytes: int
    usual_median_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.number} commits of {rough_size(self.size_bytes)} within"
            f" {duration_text(WINDOW)} up to {instant_text(self.last)}, where there were never"
            f" more than {self.usual_number} of {rough_size(self.usual_bytes)} before; half of them"
            f" are larger than {rough_size(self.median_bytes)},"
            f" {rough_size(self.usual_median_bytes)} before"
        )


def find(commits: Sequence[Commit], since: datetime) -> Burst | None:
    """The largest burst of one stage that ended at or after `since`, or None.

    `commits` are in ascending order of time. A window is a burst if it has more than TIMES as many
    commits as any window that ended before it began, and LEAST_NUMBER or more; or if its last
    commit is more than TIMES as large as any before it began.
    """
    sums = _Sums(commits)
    best: Burst | None = None
    for end, commit in enumerate(commits):
        burst = sums.burst(end)
        if commit.at >= since and burst is not None:
            larger = best is None or (burst.number, burst.size_bytes) > (
                best.number,
                best.size_bytes,
            )
            best = burst if larger else best
    return best


class _Sums:
    """For the window that ends with each commit: where it begins, its bytes, and the most that any
    window up to it had, with the largest commit."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self._starts: list[int] = []
        self._bytes: list[int] = []
        self._most: list[tuple[int, int, int]] = []
        start = size = number = most_bytes = largest = 0
        for end, commit in enumerate(commits):
            size += commit.size_bytes
            while commits[start].at <= commit.at - WINDOW:
                size -= commits[start].size_bytes
                start += 1
            number, most_bytes = max(number, end - start + 1), max(most_bytes, size)
            self._starts.append(start)
            self._bytes.append(size)
            largest = max(largest, commit.size_bytes)
            self._most.append((number, most_bytes, largest))

    def burst(self, end: int) -> Burst | None:
        start = self._starts[end]
        past = self._commits[start].at - self._commits[0].at
        if start < LEAST_PAST or past < WINDOW:
            return None
        number, size = end - start + 1, self._bytes[end]
        usual_number, usual_bytes, largest = self._most[start - 1]
        many = number >= LEAST_NUMBER and number > TIMES * usual_number
        if not many and self._commits[end].size_bytes <= TIMES * largest:
            return None
        sizes = [commit.size_bytes for commit in self._commits]
        return Burst(
            first=self._commits[start].at,
            last=self._commits[end].at,
            number=number,
            size_bytes=size,
            usual_number=usual_number,
            usual_bytes=usual_bytes,
            median_bytes=int(median(sizes[start : end + 1])),
            usual_median_bytes=int(median(sizes[:start])),
        )
