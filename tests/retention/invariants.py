"""What must hold of a catalog whatever was done to it, in whatever order: read from its history
alone, and not through the code that decides.

Each rule is a query for rows that break it. The instants of one stage are ordered by its lock, so
"before" is a comparison of `recorded_at` wherever both rows belong to one stage.
"""

from __future__ import annotations

from psycopg.rows import dict_row

from lastgood.flows.auditing import audit
from lastgood.flows.retention import mark
from tests.retention.world import PROJECT, World

_DECIDED = """
    decided AS (   -- what the gate let go, with the instant of the decision
      SELECT t.copy_id, t.stage_id, t.to_state, t.recorded_at AS at, t.mark_id, t.facts,
             k.checkpoint_id, k.generation, k.sequence, k.manifest
        FROM copy_transitions t
        JOIN copies c USING (copy_id)
        JOIN checkpoints k USING (checkpoint_id)
       WHERE t.to_state IN ('quarantined', 'deleting')
    ), ended AS (  -- of these, in stages whose end of life was in effect
      SELECT d.copy_id, d.at
        FROM decided d
        JOIN stages s USING (stage_id)
        JOIN retirements r ON r.project = s.project
             AND (r.workload IS NULL OR r.workload = s.workload)
             AND (r.stage IS NULL OR r.stage = s.stage)
        LEFT JOIN retirement_approvals a USING (retirement_id)
        LEFT JOIN retirement_undos u USING (retirement_id)
       WHERE coalesce(a.recorded_at, CASE WHEN NOT r.approve THEN r.recorded_at END)
             + make_interval(secs => r.grace_seconds) <= d.at
         AND (u.recorded_at IS NULL OR u.recorded_at > d.at)
    )"""

_RULES = {
    "every fact of the gate was true": """
        SELECT d.copy_id, d.to_state FROM decided d
         WHERE d.facts -> 'facts' IS NULL OR EXISTS (
               SELECT 1 FROM jsonb_each(d.facts -> 'facts') f WHERE f.value ->> 'truth' <> 'true')
    """,
    "a newer copy was present and had passed": """
        SELECT d.copy_id, d.to_state FROM decided d
         WHERE NOT EXISTS (SELECT 1 FROM ended e WHERE (e.copy_id, e.at) = (d.copy_id, d.at))
           AND NOT EXISTS (
               SELECT 1 FROM checkpoints n JOIN copies c USING (checkpoint_id)
                WHERE n.stage_id = d.stage_id
                  AND (n.generation, n.sequence) > (d.generation, d.sequence)
                  AND 'present' = (SELECT t.to_state FROM copy_transitions t
                                    WHERE t.copy_id = c.copy_id AND t.recorded_at < d.at
                                    ORDER BY t.number DESC LIMIT 1)
                  AND 'pass' = (SELECT r.verdict FROM receipts r
                                 WHERE r.copy_id = c.copy_id AND r.recorded_at < d.at
                                   AND r.verdict <> 'inconclusive'
                                 ORDER BY r.number DESC LIMIT 1))
    """,
    "no hold stood": """
        SELECT d.copy_id, d.to_state FROM decided d
          JOIN hold_checkpoints c ON c.checkpoint_id = d.checkpoint_id AND c.recorded_at < d.at
          JOIN holds h USING (hold_id)
          LEFT JOIN hold_releases r USING (hold_id)
         WHERE (r.recorded_at IS NULL OR r.recorded_at > d.at)
           AND (h.expires_at IS NULL OR h.expires_at > d.at)
    """,
    "no reader had a lease": """
        SELECT d.copy_id, d.to_state FROM decided d
          JOIN reader_leases l ON l.checkpoint_id = d.checkpoint_id AND l.recorded_at < d.at
          LEFT JOIN reader_ends e USING (lease_id)
         WHERE e.recorded_at IS NULL OR e.recorded_at > d.at
    """,
    "no active generation had resumed from it": """
        SELECT d.copy_id, d.to_state FROM decided d
          JOIN generations g ON g.stage_id = d.stage_id AND g.recorded_at < d.at
               AND (g.resumed_from_generation, g.resumed_from_sequence) = (d.generation, d.sequence)
         WHERE NOT EXISTS (SELECT 1 FROM generation_ends e WHERE e.stage_id = g.stage_id
                              AND e.generation = g.generation AND e.recorded_at < d.at)
    """,
    "a live mark under the policy then in force had named it": """
        SELECT d.copy_id, d.to_state FROM decided d
          LEFT JOIN marks m USING (mark_id)
         WHERE m.kind IS DISTINCT FROM 'live' OR m.at >= d.at
            OR NOT EXISTS (SELECT 1 FROM mark_candidates c
                            WHERE c.mark_id = d.mark_id AND c.copy_id = d.copy_id)
            OR m.policy_digest <> (SELECT p.digest FROM policy_versions p
                                    WHERE p.project = m.project AND p.effective_from < d.at
                                    ORDER BY p.effective_from DESC LIMIT 1)
    """,
    "what a checkpoint depends on is as present as the checkpoint": """
        SELECT k.checkpoint_id, c.state FROM checkpoints k
          JOIN copies c USING (checkpoint_id)
          JOIN dependencies d ON d.project = k.project AND d.manifest = k.manifest
          JOIN checkpoints n ON n.project = d.project AND n.manifest = d.depends_on
         WHERE (c.state = 'present' AND NOT EXISTS (
                   SELECT 1 FROM copies b
                    WHERE b.checkpoint_id = n.checkpoint_id AND b.state = 'present'))
            OR (c.state = 'quarantined' AND NOT EXISTS (
                   SELECT 1 FROM copies b WHERE b.checkpoint_id = n.checkpoint_id
                      AND b.state IN ('present', 'quarantined')))
    """,
    "whoever has a lease can read": """
        SELECT l.lease_id FROM reader_leases l
          JOIN copies c USING (copy_id)
         WHERE l.expires_at > catalog_clock() AND c.state <> 'present'
           AND NOT EXISTS (SELECT 1 FROM reader_ends e WHERE e.lease_id = l.lease_id)
    """,
    "what is held is there": """
        SELECT h.hold_id FROM hold_checkpoints hc
          JOIN holds h USING (hold_id)
          LEFT JOIN hold_releases r USING (hold_id)
          JOIN copies c USING (checkpoint_id)
         WHERE r.hold_id IS NULL AND (h.expires_at IS NULL OR h.expires_at > catalog_clock())
           AND c.state <> 'present'
    """,
    "the pointer is the newest and present": """
        SELECT s.stage_id FROM stages s
          JOIN checkpoints k USING (stage_id)
          LEFT JOIN latest_pointers p USING (stage_id)
         GROUP BY s.stage_id, p.generation, p.sequence, p.checkpoint_id
        HAVING (p.generation, p.sequence) IS DISTINCT FROM
               (SELECT (x.generation, x.sequence) FROM checkpoints x WHERE x.stage_id = s.stage_id
                 ORDER BY x.generation DESC, x.sequence DESC LIMIT 1)
            OR NOT EXISTS (SELECT 1 FROM copies c WHERE c.checkpoint_id = p.checkpoint_id
                              AND c.state = 'present')
           AND NOT EXISTS (SELECT 1 FROM ended e JOIN copies c USING (copy_id)
                            WHERE c.stage_id = s.stage_id)
    """,
    "a copy's state is that of its last transition": """
        SELECT c.copy_id FROM copies c
         WHERE c.state <> (SELECT t.to_state FROM copy_transitions t WHERE t.copy_id = c.copy_id
                            ORDER BY t.number DESC LIMIT 1)
            OR (SELECT count(*) FROM copy_transitions t WHERE t.copy_id = c.copy_id)
               <> (SELECT max(t.number) FROM copy_transitions t WHERE t.copy_id = c.copy_id)
    """,
    "each transition follows from the one before": """
        SELECT copy_id FROM (
          SELECT copy_id, from_state, to_state, recorded_at,
                 lag(to_state) OVER w AS previous, lag(recorded_at) OVER w AS earlier
            FROM copy_transitions WINDOW w AS (PARTITION BY copy_id ORDER BY number)) t
         WHERE from_state IS DISTINCT FROM previous OR recorded_at <= earlier
    """,
    "a deletion has one tombstone, and a proof once it is done": """
        SELECT c.copy_id FROM copies c
          LEFT JOIN tombstones t USING (copy_id)
          LEFT JOIN tombstone_proofs p USING (tombstone_id)
         WHERE (c.state IN ('deleting', 'deleted')) <> (t.tombstone_id IS NOT NULL)
            OR (c.state = 'deleted') <> (p.tombstone_id IS NOT NULL)
    """,
    "the counters are the sums": """
        SELECT u.store FROM capacity_counters u
         WHERE u.committed_bytes <> coalesce((
                   SELECT sum(k.total_bytes + c.control_bytes)
                     FROM copies c JOIN checkpoints k USING (checkpoint_id)
                    WHERE c.project = u.project AND c.store = u.store AND c.state <> 'deleted'), 0)
            OR u.in_flight_bytes <> coalesce((
                   SELECT sum(a.claimed_bytes) FROM attempts a
                    WHERE a.project = u.project AND a.store = u.store
                      AND a.finished_at IS NULL AND a.state <> 'committed'), 0)
    """,
    "each stage numbers its events, and their instants grow": """
        SELECT stage_id FROM (
          SELECT stage_id, number, recorded_at, lag(number) OVER w AS previous,
                 lag(recorded_at) OVER w AS earlier
            FROM events WINDOW w AS (PARTITION BY stage_id ORDER BY number)) e
         WHERE number <> coalesce(previous, 0) + 1 OR recorded_at <= earlier
    """,
    "only the newest generation was acquired last": """
        SELECT s.stage_id FROM stages s
         WHERE s.generation <> coalesce((SELECT max(g.generation) FROM generations g
                                          WHERE g.stage_id = s.stage_id), 0)
            OR EXISTS (SELECT 1 FROM generations g
                        WHERE g.stage_id = s.stage_id AND g.generation < s.generation
                          AND NOT EXISTS (SELECT 1 FROM generation_ends e
                                           WHERE e.stage_id = g.stage_id
                                             AND e.generation = g.generation))
    """,
}
_QUERY = f"WITH {_DECIDED}\n" + "\nUNION ALL\n".join(
    f"SELECT '{name.replace(chr(39), chr(39) * 2)}' AS rule, to_jsonb(v)::text AS what"
    f" FROM ({query}) v"
    for name, query in _RULES.items()
)


def require(world: World, *, replay: bool = False) -> None:
    """Assert every rule, and that every chain is whole. `replay`: the newest live mark, decided
    again, is the same."""
    assert violations(world) == []
    assert audit.run(world.catalog, PROJECT).breaks == []
    if replay:
        _require_same_decision(world)


def violations(world: World) -> list[str]:
    """Each row that breaks a rule, in words."""
    with world.owner.transaction(), world.owner.cursor(row_factory=dict_row) as rows:
        rows.execute("SET LOCAL search_path = lastgood")
        return [
            f"not so that {row['rule']}: {row['what']}"
            for row in rows.execute(_QUERY, prepare=True)
        ]


def require_stores_follow(world: World) -> None:
    """What is present lies open, what is in quarantine is hidden, what is deleted is gone."""
    with world.owner.transaction(), world.owner.cursor(row_factory=dict_row) as rows:
        rows.execute("SET LOCAL search_path = lastgood")
        found = rows.execute(
            "SELECT c.prefix, c.state, k.object_count"
            "  FROM copies c JOIN checkpoints k USING (checkpoint_id)"
        ).fetchall()
    for row in found:
        hidden = [one.hidden for one in world.store.list(row["prefix"])]
        match row["state"]:
            case "present" | "quarantined":
                expected = [row["state"] == "quarantined"] * (row["object_count"] + 2)
                assert hidden == expected, row
            case "deleted":
                assert hidden == [], row


def _require_same_decision(world: World) -> None:
    row = world.owner.execute(
        "SELECT at, digest FROM lastgood.marks WHERE kind = 'live' ORDER BY mark_id DESC LIMIT 1"
    ).fetchone()
    if row is not None:
        again = mark.run(world.catalog, PROJECT, at=row[0], kind="replay")
        assert again["digest"] == row[1], "something appeared at or before the instant of a mark"
