"""A flow that stands at one of its steps while another runs: the catalog that it is given counts
its transactions and what they lock, and lets it stand there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import psycopg

from lastgood.catalog.db import Catalog, Transaction
from lastgood.errors import LastgoodError
from tests.concurrency.sessions import TIMEOUT_SECONDS, Session, Stop

_LOCKS = ("pg_advisory_xact_lock", "FROM stages WHERE stage_id = ANY")
_OF_NO_MATTER = ("sane_clock.", "lapses.", "pressure.", "control_keys.")
_POLL_SECONDS = 0.002


class Kind(StrEnum):
    BEGIN = "before a transaction"
    LOCKED = "after a lock that excludes others"
    END = "before the end of a transaction that took one"


@dataclass(frozen=True)
class Step:
    """A place where a flow may stand, in the transaction of this number, which `where` began."""

    kind: Kind
    transaction: int
    where: str

    def is_like(self, other: Step) -> bool:
        return (self.kind, self.where) == (other.kind, other.where)


@dataclass
class Steps:
    """The steps of one flow, in order. It stands at number `stand_at`."""

    stand_at: int | None = None
    reached: list[Step] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)

    def reach(self, step: Step) -> None:
        self.reached.append(step)
        if len(self.reached) - 1 == self.stand_at:
            self.stop.stand()

    def matter(self) -> list[int]:
        """The numbers of the steps that are not like another one. Whoever comes after a lock is
        kept waiting until the end, so of these two the end is enough, with all that was read and
        written; of the same step several times in a row the first is; and nothing that others do
        changes what is read about the clock, old leases, room and the control keys of the stores.
        """
        return [
            number
            for number, each in enumerate(self.reached)
            if each.kind is not Kind.LOCKED
            and not each.where.startswith(_OF_NO_MATTER)
            and (number == 0 or not each.is_like(self.reached[number - 1]))
        ]


class SteppedCatalog:
    """A catalog as its flows use it."""

    def __init__(self, inner: Catalog, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps
        self._transactions = 0

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        caller = sys._getframe(2)  # of the `with`, past contextlib
        module = caller.f_globals["__name__"].rpartition(".")[2]
        where = f"{module}.{caller.f_code.co_name}"
        self._transactions += 1
        number = self._transactions
        self._steps.reach(Step(Kind.BEGIN, number, where))
        with self._inner.transaction() as cursor:
            stepped = _SteppedCursor(cursor, self._steps, number, where)
            yield cast(Transaction, stepped)
            if stepped.locked:
                self._steps.reach(Step(Kind.END, number, where))


class _SteppedCursor:
    def __init__(self, cursor: Transaction, steps: Steps, number: int, where: str) -> None:
        self._cursor = cursor
        self._steps = steps
        self._number = number
        self._where = where
        self.locked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        result = self._cursor.execute(query, *arguments, **options)
        if any(lock in str(query) for lock in _LOCKS):
            self.locked = True
            self._steps.reach(Step(Kind.LOCKED, self._number, self._where))
        return result


Call = Callable[[Catalog], Any]


def steps_of(catalog: Catalog, call: Call) -> Steps:
    """The steps of a flow when nobody disturbs it; one that is refused has those up to there."""
    steps = Steps()
    with suppress(LastgoodError):
        call(cast(Catalog, SteppedCatalog(catalog, steps)))
    return steps


def interleaved(
    catalog: Catalog, owner: psycopg.Connection[Any], first: Call, stand_at: int, second: Call
) -> tuple[Session, Session]:
    """Run `first` up to a step, then `second` until it ends or waits for a lock, and both to their
    ends. The same wherever it is run: no step depends on luck."""
    steps = Steps(stand_at)
    one = Session(lambda: first(cast(Catalog, SteppedCatalog(catalog, steps))))
    _until(lambda: steps.stop.reached.is_set() or not one.is_alive())
    other = Session(lambda: second(catalog))
    _until(lambda: not other.is_alive() or _somebody_waits(owner))
    steps.stop.opened.set()
    for session in (one, other):
        session.join(TIMEOUT_SECONDS)
        assert not session.is_alive(), "a session never ended"
    return one, other


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happens any more"
        time.sleep(_POLL_SECONDS)


def _somebody_waits(owner: psycopg.Connection[Any]) -> bool:
    row = owner.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE NOT l.granted AND a.datname = current_database())"
    ).fetchone()
    return row is not None and bool(row[0])
