"""In which order a sweep under pressure takes its candidates: what frees most per risk goes first.

The risk of taking a copy is what its stage then stands on: with one proof left (a newer copy that
stays and has passed) it is whole, with two it is half. So a copy ranks by its bytes times the
proofs that stand. The gate judges each copy all the same: pressure changes the order and the size
of a batch, never a fact, a grace or a verdict.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Going:
    """A copy that a sweep could take. `proofs` are the newer copies of its stage that stay and have
    a fresh enough pass at the gate's level, None where the stage's life has ended and it stands on
    nothing; `needs` are the copies among the others that it depends on."""

    copy_id: int
    size_bytes: int
    proofs: int | None
    committed_at: datetime
    needs: frozenset[int] = frozenset()

    @property
    def rank(self) -> tuple[bool, int, datetime, int]:
        """Smaller goes earlier: more bytes per risk, then older, then by id."""
        proofs = 1 if self.proofs is None else self.proofs
        return (
            self.proofs is not None,
            -self.size_bytes * proofs,
            self.committed_at,
            self.copy_id,
        )


def in_order(found: Iterable[Going]) -> list[Going]:
    """All of them by rank, but each after everything that depends on it: the gate keeps what is
    needed. The order depends on nothing else."""
    going = {one.copy_id: one for one in found}
    waits_for = dict.fromkeys(going, 0)
    for one in going.values():
        for needed in one.needs & going.keys():
            waits_for[needed] += 1
    ready = [(one.rank, one.copy_id) for one in going.values() if not waits_for[one.copy_id]]
    heapq.heapify(ready)
    ordered: list[Going] = []
    while ready:
        one = going[heapq.heappop(ready)[1]]
        ordered.append(one)
        for needed in one.needs & going.keys():
            waits_for[needed] -= 1
            if not waits_for[needed]:
                heapq.heappush(ready, (going[needed].rank, needed))
    return ordered
