"""A store that died with what lay in it: its copies are recorded as lost, and are proof of nothing.

A loss is no deletion. No tombstone says that the bytes are gone, nothing counts a lost copy as
kept, and should the store come back, what lies in it is nobody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.catalog import control, history, locks
from lastgood.catalog.capacity import capacity
from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import attempts, checkpoints, copies, copy_transitions, stages
from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.settings import projects, store_registrations
from lastgood.catalog.validation import validations
from lastgood.errors import Unavailable
from lastgood.flows import control_keys
from lastgood.rules import layout
from lastgood.rules.layout import AttemptKey, parse_key
from lastgood.rules.retention_rules import Level
from lastgood.stores.base import Key, Prefix, Store, StoreError
from lastgood.stores.folder_questions import answered
from lastgood.stores.hurry import hurried
from lastgood.stores.open import Stores


@dataclass(frozen=True, slots=True)
class Look:
    """What a store showed just now. `store` is None where it does not answer; `kept` says why its
    copies cannot be given up, None where they can."""

    store: Store | None
    words: str
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class StageLoss:
    """What a stage loses: copies with their bytes, and where its latest pointer stood and stands,
    None for nowhere. `blocked`: its restores were blocked, so that the pointer stays."""

    stage: str
    copies: int
    size_bytes: int
    latest: str | None
    becomes: str | None
    blocked: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost with a store, by stage; `attempts` and `uploads` are those that had not
    ended."""

    stages: tuple[StageLoss, ...] = ()
    attempts: int = 0
    uploads: int = 0

    @property
    def copies(self) -> int:
        return sum(one.copies for one in self.stages)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.stages)

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            self.stages + other.stages,
            self.attempts + other.attempts,
            self.uploads + other.uploads,
        )


def look(catalog: Catalog, stores: Stores, name: str) -> Look:
    """Ask a store whether it is there, and whether it holds a copy that the catalog knows in it.
    A listing that does not finish proves nothing: then its copies are kept."""
    with catalog.transaction() as tx:
        prefixes = {copy.prefix for copy in copies.in_store(tx, name)}
    try:
        with hurried():
            store = stores[name]
            claim = answered(store, lambda: store.stat(Key(layout.CATALOG_KEY)))
    except (StoreError, Unavailable) as error:
        if isinstance(error, StoreError) and error.is_there:
            return Look(None, str(error), f"it is there: {error}")
        return Look(None, f"it does not answer: {error}")
    listing = store.list(Prefix(layout.CHECKPOINTS_PREFIX), versions=store.profile.versioned)
    try:
        for one in listing:
            parsed = parse_key(one.key)
            if one.is_delete_marker or not isinstance(parsed, AttemptKey):
                continue
            if parsed.prefix in prefixes:
                said = f"it answers, and {one.key!r} of a copy is there"
                return Look(store, said, f"{said}: let the policy or `lastgood retire` end them")
        whole = "" if listing.complete else "it did not finish"
    except StoreError as error:
        whole = str(error)
    if whole:
        way_out = (
            "if it is lost, take its folder or its connection away, so that it does not answer"
        )
        return Look(
            store, whole, f"it answers, and does not list what it holds: {whole}; {way_out}"
        )
    said = "it answers, and holds none of its copies"
    if claim is None:
        said += f"; {layout.CATALOG_KEY} is not there either: is this the store, is it mounted?"
    return Look(store, said)


class _Undone(Exception):
    """A dry run ends without a change."""


def lose(catalog: Catalog, name: str, *, actor: str, reason: str, dry_run: bool = False) -> Loss:
    """Record as lost all that the catalog knows in a store, a project at a time, and put each
    pointer that stood on it to the newest checkpoint that is left. Repeating it goes on."""
    with catalog.transaction() as tx:
        held = {one.project for one in copies.in_store(tx, name)}
        held |= {one.project for one in attempts.in_store(tx, name)}
        held |= {one.project for one in incomplete_uploads.left_in_store(tx, name)}
    loss = Loss()
    for project in sorted(held):
        try:
            with catalog.transaction() as tx:
                loss += _Losing(tx, project, name, actor, reason).all()
                if dry_run:
                    raise _Undone
        except _Undone:
            continue
    return loss


def publish(catalog: Catalog, stores: Stores, name: str) -> None:
    """Write the newest event of every stage of a project that ever wrote to a store into its other
    stores, before the loss is answered: a stage may rest on what was lost in another, and whoever
    goes on after a crash does not know which did. Raises CatalogBehind, StoreError."""
    with catalog.transaction() as tx:
        writers = {project for project, _, _ in store_registrations.writers_of(tx, name)}
        others = {
            project: [one for one in projects.stores_of(tx, project) if one != name]
            for project in writers
        }
        told = {project: _with_events(tx, project) for project in writers}
    for project in sorted(writers):
        into = [stores[one] for one in others[project]]
        for stage_id in told[project]:
            control_keys.publish(catalog, into, project, stage_id)


def _with_events(tx: Transaction, project: str) -> list[int]:
    positions = control.positions(tx, project)
    named = stages.names(tx, project).items()
    return sorted(stage_id for stage_id, stage in named if positions[stage].event)


@dataclass(frozen=True, slots=True)
class _Losing:
    """The loss of one project, in one transaction: other stages may rest on what is lost."""

    tx: Transaction
    project: str
    store: str
    actor: str
    reason: str

    def all(self) -> Loss:
        tx = self.tx
        locks.project_exclusive(tx, self.project)
        locks.stages(tx, stages.names(tx, self.project))
        ended = [one for one in attempts.in_store(tx, self.store) if one.project == self.project]
        for attempt in ended:
            locks.attempt(tx, attempt.attempt_id)
        lost = [one for one in copies.in_store(tx, self.store) if one.project == self.project]
        locks.copies(tx, [copy.copy_id for copy in lost])
        stood = self._readable_pointers()
        for copy in lost:
            copy_transitions.lose(tx, copy, actor=self.actor, reason=self.reason)
        for attempt in ended:
            attempts.lose(tx, attempt, actor=self.actor)
        uploads = self._uploads()
        moved = self._move_pointers(stood)
        self._release(lost, ended)
        return Loss(self._by_stage(lost, stood, moved), len(ended), uploads)

    def _readable_pointers(self) -> dict[int, Checkpoint]:
        found = {}
        for stage_id in stages.names(self.tx, self.project):
            latest = checkpoints.latest(self.tx, stages.get(self.tx, self.project, stage_id))
            if latest is not None and checkpoints.readable_copy(self.tx, latest) is not None:
                found[stage_id] = latest
        return found

    def _move_pointers(self, stood: dict[int, Checkpoint]) -> dict[int, Checkpoint | None]:
        """By stage, where each pointer went whose checkpoint can be read no more."""
        moved: dict[int, Checkpoint | None] = {}
        for stage_id, before in stood.items():
            stage = stages.get(self.tx, self.project, stage_id)
            if checkpoints.readable_copy(self.tx, before) is None and stage.blocked_by is None:
                moved[stage_id] = self._move(stage, before)
        return moved

    def _move(self, stage: Stage, before: Checkpoint) -> Checkpoint | None:
        found, left = None, None
        for copy_id in validations.restorable(self.tx, self.project, stage.stage_id):
            left = copies.get(self.tx, self.project, copy_id)
            found = checkpoints.find(self.tx, left.checkpoint)
            if found is not None and checkpoints.readable_copy(self.tx, found) is not None:
                break
            found = None
        facts = {
            "from": str(before.id),
            "to": None if found is None else str(found.id),
            "because": self.reason,
        }
        event = history.record(
            self.tx, stage.stage_id, "pointer-reset", actor=self.actor, facts=facts
        )
        checkpoints.reset_pointer(self.tx, stage, found, event.recorded_at)
        if found is not None and left is not None:
            validations.request(self.tx, left, Level.CHECKSUM, actor=self.actor)
        return found

    def _uploads(self) -> int:
        left = incomplete_uploads.left(self.tx, self.project, self.store)
        return incomplete_uploads.move(
            self.tx,
            [one.entry_id for one in left],
            "lost",
            reason=self.reason,
            actor=self.actor,
            at=history.now(self.tx),
        )

    def _release(self, lost: Sequence[Copy], ended: Sequence[attempts.Attempt]) -> None:
        locks.store_capacity(self.tx, self.store)
        stored = sum(copy.stored_bytes for copy in lost)
        capacity.release_copy(self.tx, self.project, self.store, stored)
        claimed = sum(attempt.claimed_bytes for attempt in ended)
        capacity.release_attempt(self.tx, self.project, self.store, claimed)

    def _by_stage(
        self,
        lost: Sequence[Copy],
        stood: dict[int, Checkpoint],
        moved: dict[int, Checkpoint | None],
    ) -> tuple[StageLoss, ...]:
        numbers = Counter(copy.stage_id for copy in lost)
        sizes: Counter[int] = Counter()
        for copy in lost:
            sizes[copy.stage_id] += copy.stored_bytes
        found = []
        for stage_id, name in stages.names(self.tx, self.project).items():
            if stage_id not in numbers and stage_id not in moved:
                continue
            stage = stages.get(self.tx, self.project, stage_id)
            before = stood.get(stage_id)
            after = moved.get(stage_id, before)
            found.append(
                StageLoss(
                    stage=str(name),
                    copies=numbers[stage_id],
                    size_bytes=sizes[stage_id],
                    latest=None if before is None else str(before.id),
                    becomes=None if after is None else str(after.id),
                    blocked=stage.blocked_by is not None,
                )
            )
        return tuple(sorted(found, key=lambda one: one.stage))
