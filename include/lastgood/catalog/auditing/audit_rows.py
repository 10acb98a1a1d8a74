"""What an audit reads: records that contradict each other, each query one contradiction.

All of them come back empty from a catalog whose history nobody touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

from lastgood.catalog.db import Transaction
from lastgood.catalog.rebuilding.rebuilds import ACTOR
from lastgood.catalog.retention import marks
from lastgood.catalog.retention.marks import Mark

_CONTRADICTIONS: tuple[tuple[str, str, LiteralString], ...] = (
    (
        "manifest",
        "its body has another SHA-256",
        """
        SELECT digest AS name FROM manifests
         WHERE project = %(project)s AND encode(sha256(body), 'hex') <> digest
         ORDER BY digest
        """,
    ),
    (
        "tombstone",
        "its copy was no candidate of the mark that it names",
        """
        SELECT t.tombstone_id::text AS name FROM tombstones t
         WHERE t.project = %(project)s AND t.copy_id IS NOT NULL AND t.mark_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM mark_candidates m
                            WHERE m.mark_id = t.mark_id AND m.copy_id = t.copy_id)
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "tombstone",
        "its mark is no live one, or not of its project",
        """
        SELECT t.tombstone_id::text AS name FROM tombstones t JOIN marks m USING (mark_id)
         WHERE t.project = %(project)s AND (m.kind <> 'live' OR m.project <> t.project)
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "tombstone",
        "its policy was never recorded",
        """
        SELECT t.tombstone_id::text AS name FROM tombstones t
         WHERE t.project = %(project)s
           AND NOT EXISTS (SELECT 1 FROM policy_versions v
                            WHERE v.project = t.project AND v.digest = t.policy_digest)
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "copy",
        "it is being deleted, or was, without a tombstone",
        """
        SELECT c.copy_id::text AS name FROM copies c
         WHERE c.project = %(project)s
           AND EXISTS (SELECT 1 FROM copy_transitions n
                        WHERE n.copy_id = c.copy_id AND n.to_state IN ('deleting', 'deleted'))
           AND NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.copy_id = c.copy_id)
         ORDER BY c.copy_id
        """,
    ),
    (
        "tombstone",
        "its copy was never decided to be deleted",
        """
        SELECT t.tombstone_id::text AS name FROM tombstones t
         WHERE t.project = %(project)s AND t.copy_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM copy_transitions n
                            WHERE n.copy_id = t.copy_id AND n.to_state = 'deleting')
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "tombstone",
        "its copy was deleted, and no proof says that the bytes are gone",
        """
        SELECT t.tombstone_id::text AS name FROM tombstones t
         WHERE t.project = %(project)s
           AND EXISTS (SELECT 1 FROM copy_transitions n
                        WHERE n.copy_id = t.copy_id AND n.to_state = 'deleted')
           AND NOT EXISTS (SELECT 1 FROM tombstone_proofs p
                            WHERE p.tombstone_id = t.tombstone_id)
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "tombstone",
        "it is proven, yet its copy is not deleted",
        """
        SELECT t.tombstone_id::text AS name
          FROM tombstones t JOIN tombstone_proofs p USING (tombstone_id)
         WHERE t.project = %(project)s AND t.copy_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM copy_transitions n
                            WHERE n.copy_id = t.copy_id AND n.to_state = 'deleted')
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "tombstone",
        "its proof says that something is left",
        """
        SELECT t.tombstone_id::text AS name
          FROM tombstones t JOIN tombstone_proofs p USING (tombstone_id)
         WHERE t.project = %(project)s
           AND (p.evidence->>'listing' IS DISTINCT FROM 'complete'
                OR p.evidence->>'keys_left' IS DISTINCT FROM '0')
         ORDER BY t.stage_id, t.number
        """,
    ),
    (
        "copy",
        "its state is not that of its last transition",
        """
        SELECT c.copy_id::text AS name FROM copies c
         WHERE c.project = %(project)s
           AND c.state IS DISTINCT FROM (SELECT n.to_state FROM copy_transitions n
                                          WHERE n.copy_id = c.copy_id
                                          ORDER BY n.number DESC LIMIT 1)
         ORDER BY c.copy_id
        """,
    ),
    (
        "copy",
        "its transitions do not follow from each other",
        """
        SELECT DISTINCT copy_id::text AS name FROM (
          SELECT copy_id, number, from_state,
                 lag(to_state) OVER each AS before, row_number() OVER each AS place
            FROM copy_transitions WHERE project = %(project)s
          WINDOW each AS (PARTITION BY copy_id ORDER BY number)
        ) AS t WHERE number <> place OR from_state IS DISTINCT FROM before
         ORDER BY name
        """,
    ),
    (
        "receipt",
        "an event tells of it, and it is not there",
        """
        SELECT e.facts->>'receipt' AS name FROM events e
         WHERE e.project = %(project)s AND e.kind = 'receipt'
           AND NOT EXISTS (SELECT 1 FROM receipts r WHERE r.receipt = e.facts->>'receipt')
         ORDER BY e.stage_id, e.number
        """,
    ),
    (
        "receipt",
        "no event tells of it",
        """
        SELECT r.receipt AS name FROM receipts r
         WHERE r.project = %(project)s
           AND NOT EXISTS (SELECT 1 FROM events e
                            WHERE e.stage_id = r.stage_id AND e.kind = 'receipt'
                              AND e.recorded_at = r.recorded_at
                              AND e.facts->>'receipt' = r.receipt)
         ORDER BY r.stage_id, r.number
        """,
    ),
    (
        "event",
        "the ones before it are missing",
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage || ' event ' || e.number AS name
          FROM (SELECT stage_id, number, actor,
                       lag(number, 1, 0::bigint) OVER (PARTITION BY stage_id ORDER BY number)
                         AS before
                  FROM events WHERE project = %(project)s) AS e
          JOIN stages s USING (stage_id)
         WHERE e.number <> e.before + 1 AND e.actor <> %(rebuild)s
         ORDER BY s.workload, s.stage, e.number
        """,
    ),
    (
        "stage",
        "its newest events are missing",
        """
        SELECT s.project || '/' || s.workload || '/' || s.stage AS name FROM stages s
         WHERE s.project = %(project)s
           AND s.last_event > (SELECT coalesce(max(e.number), 0) FROM events e
                                WHERE e.stage_id = s.stage_id)
         ORDER BY name
        """,
    ),
)
"""What a record is, what is wrong with it, and the query that names each such record."""


def contradictions(tx: Transaction, project: str) -> list[tuple[str, str, str]]:
    """Every record of a project that another one contradicts: its kind, its name, the problem."""
    found = []
    for kind, problem, query in _CONTRADICTIONS:
        rows = tx.execute(query, {"project": project, "rebuild": ACTOR})
        found += [(kind, row["name"], problem) for row in rows]
    return found


def stages_with_records(tx: Transaction, project: str) -> list[tuple[int, str]]:
    """The stages of a project, by name: id and name."""
    rows = tx.execute(
        """
        SELECT stage_id, project || '/' || workload || '/' || stage AS name FROM stages
         WHERE project = %s ORDER BY workload COLLATE "C", stage COLLATE "C"
        """,
        (project,),
    )
    return [(row["stage_id"], row["name"]) for row in rows]


def named_policies(tx: Transaction, project: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The policies that tombstones name: digest and document."""
    rows = tx.execute(
        """
        SELECT DISTINCT ON (digest) digest, document FROM policy_versions
         WHERE project = %(project)s
           AND digest IN (SELECT policy_digest FROM tombstones WHERE project = %(project)s)
         ORDER BY digest
        """,
        {"project": project},
    )
    return [(row["digest"], row["document"]) for row in rows]


def named_marks(tx: Transaction, project: str) -> list[Mark]:
    """The marks that tombstones name."""
    rows = tx.execute(
        """
        SELECT DISTINCT mark_id FROM tombstones
         WHERE project = %s AND mark_id IS NOT NULL ORDER BY mark_id
        """,
        (project,),
    ).fetchall()
    return [marks.get(tx, project, row["mark_id"]) for row in rows]


def named_manifests(tx: Transaction, project: str) -> list[str]:
    """The digests of the manifests that tombstones name, and of the receipts that they name."""
    rows = tx.execute(
        """
        SELECT DISTINCT v.digest FROM tombstones,
               LATERAL (VALUES (facts #>> '{evidence,manifest}'),
                               (facts #>> '{facts,newer_passed,digests,manifest}'),
                               (facts #>> '{facts,newer_present,digests,manifest}')) AS v (digest)
         WHERE project = %s AND v.digest IS NOT NULL ORDER BY v.digest
        """,
        (project,),
    )
    return [row["digest"] for row in rows]


def manifest_body(tx: Transaction, project: str, digest: str) -> bytes | None:
    """A manifest as it is stored, whatever its digest says; None if there is none."""
    row = tx.execute(
        "SELECT body FROM manifests WHERE project = %s AND digest = %s", (project, digest)
    ).fetchone()
    return bytes(row["body"]) if row else None
