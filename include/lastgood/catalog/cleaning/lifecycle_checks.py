"""What buckets' own rules against incomplete uploads were found to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Transaction

WRITTEN_EVERY = timedelta(days=1)
"""A check that found what the one before it found is written down no more often."""


@dataclass(frozen=True, slots=True)
class LifecycleCheck:
    """One check. `days` are those of the rule that reaches our uploads first."""

    store: str
    state: str
    says: str
    days: int | None
    needed_days: int
    rules: Sequence[Mapping[str, Any]]
    actor: str
    recorded_at: datetime


def record(tx: Transaction, check: LifecycleCheck) -> None:
    """Write a check down, unless the last one said the same a short while ago."""
    tx.execute(
        """
        INSERT INTO lifecycle_checks (store, state, says, days, needed_days, rules, actor,
                                      recorded_at)
        SELECT %(store)s, %(state)s, %(says)s, %(days)s, %(needed_days)s, %(rules)s, %(actor)s,
               %(at)s
         WHERE NOT EXISTS (
           SELECT 1 FROM (SELECT * FROM lifecycle_checks WHERE store = %(store)s
                           ORDER BY check_id DESC LIMIT 1) AS last
            WHERE (last.state, last.says, last.needed_days, last.rules)
                = (%(state)s, %(says)s, %(needed_days)s, %(rules)s)
              AND last.recorded_at > %(at)s - %(every)s)
        """,
        {
            "store": check.store,
            "state": check.state,
            "says": check.says,
            "days": check.days,
            "needed_days": check.needed_days,
            "rules": Jsonb([dict(rule) for rule in check.rules]),
            "actor": check.actor,
            "at": check.recorded_at,
            "every": WRITTEN_EVERY,
        },
    )


def newest(tx: Transaction) -> dict[str, LifecycleCheck]:
    """The newest check of each registered store that has one."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (store) store, state, says, days, needed_days, rules, actor, recorded_at
          FROM lifecycle_checks JOIN stores USING (store)
         WHERE unregistered_at IS NULL ORDER BY store, check_id DESC
        """
    )
    return {row["store"]: LifecycleCheck(**row) for row in rows}
