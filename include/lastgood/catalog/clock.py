"""Readings of the catalog's clock against each machine's monotonic one, and the jumps they show."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from lastgood.catalog.db import Transaction
from lastgood.errors import ClockJump, Conflict, NotFound
from lastgood.rules import clock
from lastgood.rules.clock import Reading

_SPACE = 0x1A57C10C  # the advisory lock under which readings are compared and replaced
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it counts while suspended
_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class RecordedJump:
    """A jump that an operator has not accepted."""

    jump_id: int
    observed_at: datetime
    jump_seconds: float
    boot_id: str


def read(tx: Transaction) -> None:
    """Compare the clock with its last readings, record a jump if they show one, and remember this
    reading. Cheap: call it wherever the time matters."""
    tx.execute("SELECT pg_advisory_xact_lock(%s)", (_SPACE,))
    row = tx.execute("SELECT catalog_clock() AS now").fetchone()
    assert row is not None
    now = Reading(row["now"], time.clock_gettime_ns(_ELAPSED), _boot_id())
    jumps = [jump for earlier in _readings(tx) if (jump := clock.jump(earlier, now)) is not None]
    if jumps:
        worst = max(jumps, key=lambda jump: abs(jump.by))
        tx.execute(
            "INSERT INTO clock_jumps (observed_at, jump_seconds, boot_id) VALUES (%s, %s, %s)",
            (worst.at, worst.by.total_seconds(), now.boot_id),
        )
        # Each other reading would show the same jump again.
        tx.execute("DELETE FROM clock_readings WHERE catalog_at > %s", (now.catalog_at,))
    tx.execute(
        """
        INSERT INTO clock_readings (boot_id, catalog_at, monotonic_ns) VALUES (%s, %s, %s)
        ON CONFLICT (boot_id) DO UPDATE
           SET catalog_at = excluded.catalog_at, monotonic_ns = excluded.monotonic_ns
        """,
        (now.boot_id, now.catalog_at, now.monotonic_ns),
    )


def require_sane_clock(tx: Transaction) -> None:
    """Raises ClockJump while a jump of the clock waits for an operator. Call it after `read`, whose
    transaction has committed: an error would take back what it recorded."""
    waiting = unaccepted(tx)
    if waiting:
        first = waiting[0]
        raise ClockJump(jump=first.jump_id, jump_seconds=first.jump_seconds, at=first.observed_at)


def unaccepted(tx: Transaction) -> list[RecordedJump]:
    """The jumps that no operator has accepted, oldest first."""
    rows = tx.execute(
        """
        SELECT jump_id, observed_at, jump_seconds, boot_id FROM clock_jumps
         WHERE jump_id NOT IN (SELECT jump_id FROM clock_acceptances) ORDER BY jump_id
        """
    )
    return [RecordedJump(**row) for row in rows]


def accept(tx: Transaction, jump_id: int, *, accepted_by: str, because: str) -> None:
    """An operator's word that the clock is right again. Raises NotFound, or Conflict if it was
    accepted before."""
    if tx.execute("SELECT 1 FROM clock_jumps WHERE jump_id = %s", (jump_id,)).fetchone() is None:
        raise NotFound(what="clock jump", name=str(jump_id))
    tx.execute(
        "INSERT INTO clock_acceptances (jump_id, accepted_by, because, recorded_at)"
        " VALUES (%s, %s, %s, catalog_clock()) ON CONFLICT DO NOTHING",
        (jump_id, accepted_by, because),
    )
    if tx.rowcount == 0:
        raise Conflict(reason=f"clock jump {jump_id} was accepted before")


def _readings(tx: Transaction) -> list[Reading]:
    rows = tx.execute("SELECT boot_id, catalog_at, monotonic_ns FROM clock_readings")
    return [Reading(row["catalog_at"], row["monotonic_ns"], row["boot_id"]) for row in rows]


@cache
def _boot_id() -> str:
    """This boot of this machine; a container shares it with its host, as it does the clock."""
    if _LINUX_BOOT_ID.exists():
        return _LINUX_BOOT_ID.read_text().strip()
    asked = ("sysctl", "-n", "kern.bootsessionuuid")
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
