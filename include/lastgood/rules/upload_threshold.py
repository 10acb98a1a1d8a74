"""How old an upload must be before it is given up, and what a bucket's own rule must allow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from lastgood.rules.policy_sections import UploadPolicy

LEAST_SAMPLES = 100
"""Fewer uploads have no p99 of their own: the longest of them stands for it."""

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Measured:
    """How long the uploads of a class took: 99 of 100 of them, and the longest."""

    uploads: int
    p99: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class Threshold:
    """The age above which an upload without a live lease is given up, and where it comes from."""

    age: timedelta
    because: str


def threshold(policy: UploadPolicy, workload_class: str, measured: Measured | None) -> Threshold:
    """The larger of the policy's `abort_after`, and of `margin_over_p99` times what was measured of
    the class."""
    if measured is None:
        because = f"abort_after; no upload of class {workload_class} was measured"
        return Threshold(policy.abort_after, because)
    if measured.uploads < LEAST_SAMPLES:
        number = "1 upload was" if measured.uploads == 1 else f"{measured.uploads} uploads were"
        said = f"the longest upload of class {workload_class} ({number} measured, too few for a"
        said, taken = f"{said} p99) took {measured.longest}", measured.longest
    else:
        said, taken = f"the p99 of class {workload_class} is {measured.p99}", measured.p99
    age = policy.threshold(taken)
    if age == policy.abort_after:
        return Threshold(age, f"abort_after; {said}")
    return Threshold(age, f"{policy.margin_over_p99:g} times what was measured; {said}")


def lifecycle_days(policy_days: int, longest: timedelta) -> int:
    """The whole days after which a bucket may abort by itself: as the policy says, but always
    longer than the largest threshold."""
    return max(policy_days, longest // _DAY + 1)
