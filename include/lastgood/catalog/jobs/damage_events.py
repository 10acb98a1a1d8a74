"""When what a checkpoint depends on, however far, was damaged or lost, and when it was sound again:
`dependencies.on_damage` for every instant at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from psycopg.rows import tuple_row

from lastgood.catalog.db import Transaction
from lastgood.rules.names import ManifestDigest
from lastgood.rules.timeline_events import Based

_NEEDS = "SELECT manifest, depends_on FROM dependencies WHERE project = %(project)s"
_COPIES = """
    SELECT k.manifest, c.copy_id
      FROM (SELECT DISTINCT depends_on FROM dependencies WHERE project = %(project)s) n
      JOIN checkpoints k ON k.project = %(project)s AND k.manifest = n.depends_on
      JOIN copies c USING (checkpoint_id)
"""
_HAPPENED = """
    SELECT t.recorded_at, t.number, t.copy_id, NULL AS level, 'gone' AS what
      FROM copy_transitions t
     WHERE t.project = %(project)s AND t.to_state IN ('deleting', 'lost')
       AND t.recorded_at <= %(until)s
    UNION ALL
    SELECT r.recorded_at, r.number, r.copy_id, r.level, r.verdict
      FROM receipts r
     WHERE r.project = %(project)s AND r.verdict IN ('fail', 'pass') AND r.recorded_at <= %(until)s
     ORDER BY 1, 3, 2
"""


def of_project(
    tx: Transaction, project: str, until: datetime
) -> Mapping[ManifestDigest, Sequence[Based]]:
    """Of each manifest whose bases changed up to an instant: how, in the order of time."""
    values = {"project": project, "until": until}
    with tx.connection.cursor(row_factory=tuple_row) as cursor:
        needs = cursor.execute(_NEEDS, values).fetchall()
        if not needs:
            return {}
        bases = _Bases(needs, cursor.execute(_COPIES, values).fetchall())
        found: dict[ManifestDigest, list[Based]] = defaultdict(list)
        for at, _, copy_id, level, what in cursor.execute(_HAPPENED, values):
            for manifest, whole in bases.apply(copy_id, level, what):
                found[manifest].append(Based(at, manifest, whole))
    return found


class _Bases:
    """What others depend on, with the failures that stand against each copy of it."""

    def __init__(
        self,
        needs: Sequence[tuple[ManifestDigest, ManifestDigest]],
        copies: Sequence[tuple[ManifestDigest, int]],
    ) -> None:
        self._dependents: dict[ManifestDigest, list[ManifestDigest]] = defaultdict(list)
        for manifest, base in needs:
            self._dependents[base].append(manifest)
        self._base_of = {copy_id: manifest for manifest, copy_id in copies}
        self._copies: dict[ManifestDigest, set[int]] = defaultdict(set)
        for manifest, copy_id in copies:
            self._copies[manifest].add(copy_id)
        self._against: dict[int, set[str]] = defaultdict(set)
        self._unsound: set[ManifestDigest] = set()
        self._damage: dict[ManifestDigest, int] = defaultdict(int)  # how many unsound bases

    def apply(
        self, copy_id: int, level: str | None, what: str
    ) -> Iterator[tuple[ManifestDigest, bool]]:
        """The manifests that are whole from now on, or are no more."""
        base = self._base_of.get(copy_id)
        if base is None:
            return
        against = self._against[copy_id]
        if what == "pass":
            against.discard(level or "")
        else:
            against.add(level or what)
        unsound = all(self._against[each] for each in self._copies[base])
        if unsound == (base in self._unsound):
            return
        (self._unsound.add if unsound else self._unsound.discard)(base)
        for manifest in self._resting_on(base):
            before = self._damage[manifest]
            self._damage[manifest] += 1 if unsound else -1
            if 0 in (before, self._damage[manifest]):
                yield manifest, not unsound

    def _resting_on(self, base: ManifestDigest) -> set[ManifestDigest]:
        found: set[ManifestDigest] = set()
        walk = [base]
        while walk:
            for manifest in self._dependents.get(walk.pop(), ()):
                if manifest not in found:
                    found.add(manifest)
                    walk.append(manifest)
        return found
