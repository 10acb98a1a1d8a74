"""Under which mark a copy of a plan is judged.

A plan is made of one live mark, and others are made while a sweep carries it out: one each hour,
and by each sweep under pressure. What all of them give up, under one policy without a break, is
judged as a candidate of the newest; anything else as of the plan's, which is not the newest any
more, so that it stays.
"""

from __future__ import annotations

from lastgood.catalog.db import Transaction
from lastgood.catalog.settings import policy_versions


def of_plan(tx: Transaction, project: str, mark_id: int, copy_id: int) -> int:
    """The mark under which to judge a copy that was planned under `mark_id`: the newest live one
    where that mark and each live one since give the copy up, under one policy that is in force all
    that time; also where the newest keeps it, so that this is what is told. Else `mark_id`
    itself."""
    since = tx.execute(
        """
        SELECT later.mark_id, later.at, later.policy_digest,
               EXISTS (SELECT FROM mark_candidates c
                        WHERE c.mark_id = later.mark_id AND c.copy_id = %(copy_id)s) AS gives_up
          FROM marks planned
               JOIN marks later ON later.project = planned.project AND later.kind = planned.kind
                               AND later.at >= planned.at
         WHERE planned.project = %(project)s AND planned.mark_id = %(mark_id)s
           AND planned.kind = 'live'
         ORDER BY later.at
        """,
        {"project": project, "mark_id": mark_id, "copy_id": copy_id},
    ).fetchall()
    if len(since) < 2:
        return mark_id
    newest: int = since[-1]["mark_id"]
    if not since[-1]["gives_up"]:
        return newest
    agree = all(one["gives_up"] for one in since)
    one_policy = len({one["policy_digest"] for one in since}) == 1
    if not (agree and one_policy):
        return mark_id
    in_force = policy_versions.in_force_since(tx, policy_versions.current(tx, project))
    return newest if since[0]["at"] >= in_force else mark_id
