"""The room that projects have: where each stands in its stores, now or as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.capacity import capacity_states, reach_proofs
from lastgood.catalog.capacity.capacity_states import StateRow
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogSetup, InvalidInput
from lastgood.flows.capacity import pressure
from lastgood.rules.capacity import CapacityState
from lastgood.rules.reach import Proof


@dataclass(frozen=True, slots=True)
class Room:
    """A project in a store at `at` (UTC). `since` and `cause` are of the last recorded change: None
    if it always stood open. `proof` is the newest proof of reach that counts."""

    project: str
    store: str
    at: datetime
    state: str
    since: datetime | None
    cause: str | None
    numbers: Mapping[str, Any]
    proof: Proof | None

    def to_json(self) -> dict[str, Any]:
        return {
            "project": self.project,
            "store": self.store,
            "at": self.at,
            "state": self.state,
            "since": self.since,
            "cause": self.cause,
            "numbers": self.numbers,
            "proof": self.proof.to_json() if self.proof else None,
        }


def now(catalog: Catalog, project: str | None = None) -> Sequence[Room]:
    """Where a project stands, or all of them. Raises NotFound for an unknown one."""
    with catalog.transaction() as tx:
        names = projects.names(tx) if project is None else [projects.get(tx, project).name]
        at = history.now(tx)
        return [room for name in names for room in _of_project(tx, name, at)]


def _of_project(tx: Transaction, project: str, at: datetime) -> list[Room]:
    try:
        found = pressure.look(tx, project)
    except CatalogSetup:  # a project that was never given a policy
        return []
    rooms = []
    for one in found:
        last = capacity_states.newest(tx, project, one.store)
        rooms.append(
            Room(
                project,
                one.store,
                at,
                one.standing.state.value,
                last.recorded_at if last else None,
                last.cause if last else None,
                one.standing.to_json(),
                one.proof.proof if one.proof and one.pressed else None,
            )
        )
    return rooms


def as_of(catalog: Catalog, at: datetime, project: str | None = None) -> Sequence[Room]:
    """The same as it was recorded at an instant: the numbers are those of the last change before
    it. Raises NotFound, and InvalidInput for an instant without a zone or in the future."""
    with catalog.transaction() as tx:
        if project is not None:
            projects.get(tx, project)
        if at.tzinfo is None or at > history.now(tx):
            raise InvalidInput(where="at", reason="give an instant of the past, with its zone")
        return [_recorded(tx, row, at) for row in capacity_states.as_of(tx, project, at)]


def _recorded(tx: Transaction, row: StateRow, at: datetime) -> Room:
    proof = None
    if row.proof_id is not None and row.state != CapacityState.OPEN:
        proof = reach_proofs.get(tx, row.project, row.proof_id).proof
    return Room(
        row.project, row.store, at, row.state, row.recorded_at, row.cause, row.numbers, proof
    )


def changes(
    catalog: Catalog, project: str | None = None, *, limit: int = 100
) -> Sequence[StateRow]:
    """The recorded changes of state, the newest first. Raises NotFound for an unknown project."""
    with catalog.transaction() as tx:
        if project is not None:
            projects.get(tx, project)
        return capacity_states.changes(tx, project, limit=limit)
