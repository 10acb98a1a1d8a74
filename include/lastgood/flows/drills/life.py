"""The whole life of a checkpoint, in a scratch project on the real store, with a verdict over each
thing that it has to show.

Everything goes the ways that jobs, operators and schedules go; nothing here can do what they could
not. Each verdict is told at once, so that a drill that breaks off leaves what it saw.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from lastgood.catalog import history
from lastgood.catalog.auditing import certificates
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempts, copies, readers
from lastgood.catalog.jobs.copies import Copy, State
from lastgood.catalog.keeping import holds
from lastgood.catalog.keeping.holds import Hold, NewHold
from lastgood.catalog.sweeping import tombstones
from lastgood.errors import CopyState, FencedGeneration, LastgoodError
from lastgood.flows import quarantine
from lastgood.flows.auditing import audit, audit_file
from lastgood.flows.capacity import pressure
from lastgood.flows.cleaning import cleanup
from lastgood.flows.drills.job import OBJECT_BYTES, ScratchJob
from lastgood.flows.drills.scratch import OWNER, open_scratch, set_soft, stage_of
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, release
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import sweep
from lastgood.flows.sweeping.deletion import listed
from lastgood.flows.validation import validate
from lastgood.rules.auditor import Break
from lastgood.rules.capacity import CapacityState, Standing
from lastgood.stores.open import Stores

_LOOK_AGAIN = timedelta(seconds=0.25)
_LOOKS = 240
_HELD = "an old anchor that a drill holds"
_READER_LEASE = timedelta(minutes=10)

Tell = Callable[[str, bool, str], None]
Wait = Callable[[timedelta], None]


@dataclass(frozen=True, slots=True)
class _Saved:
    """The checkpoints of one life: one held, one read, two given up, and the newest."""

    held: Copy
    read: Copy
    given_up: tuple[Copy, Copy]
    newest: Copy


class Life:
    """One life in the scratch project of a store. `wait` lets time pass by the catalog's clock."""

    def __init__(
        self, catalog: Catalog, stores: Stores, store: str, *, actor: str, wait: Wait, tell: Tell
    ) -> None:
        self._catalog, self._stores, self._actor = catalog, stores, actor
        self._wait, self._tell = wait, tell
        self._store = stores[store]
        self._stage = stage_of(store)
        self._project = self._stage.project
        self._left_bytes = 0  # of attempts that a cut-off life left to the workers, or as evidence

    def run(self) -> None:
        """Live it through. What fails is told, and ends it; what it holds is given back then."""
        try:
            open_scratch(self._catalog, self._store.name)
            self._give_back()
            self._left_bytes = self._standing().own.use.in_flight_bytes
            self._live()
        except LastgoodError as error:
            self._tell("the life is lived to its end", False, str(error))
            try:
                self._give_back()
            except LastgoodError as left:
                self._tell("what it held is given back", False, f"the next drill does it: {left}")

    def _live(self) -> None:
        job = ScratchJob(self._catalog, self._stores, self._stage)
        first = self._complete(job)
        attempt = job.interrupted(2)
        recovery = self._recovered(job, first)
        saved = self._grown(recovery, first)
        self._quarantined(saved)
        self._undone(saved)
        self._deleted(saved)
        self._reclaimed(attempt)
        self._survived(saved)
        self._audited()
        self._give_back()
        self._left(saved)

    def _complete(self, job: ScratchJob) -> Copy:
        first = job.save(1)
        latest = read.latest(self._catalog, self._stage).checkpoint
        said = "nothing" if latest is None else str(latest.id)
        same = said == str(first.checkpoint)
        self._tell("a complete checkpoint becomes the latest", same, f"the latest is {said}")
        told = [f"{level} {self._validated(first, level)}" for level in ("checksum", "format")]
        proven = told == ["checksum pass", "format pass"]
        self._tell("every byte and every tensor of it is proven", proven, ", ".join(told))
        until = self._now() + timedelta(days=1)
        new = NewHold("research", OWNER, _HELD, self._actor, until)
        hold.place(self._catalog, self._stores, self._project, new, first.checkpoint)
        return first

    def _recovered(self, job: ScratchJob, first: Copy) -> ScratchJob:
        """The writer was interrupted; whoever replaces it fences it."""
        recovery = ScratchJob(self._catalog, self._stores, self._stage)
        self._tell(
            "a recovery resumes from the complete checkpoint, not from the interrupted one",
            recovery.resumed_from == first.checkpoint,
            f"it resumed from {recovery.resumed_from or 'nothing'}",
        )
        try:
            job.save(3)
            fenced, said = False, f"generation {job.generation} could still write"
        except FencedGeneration as error:
            fenced, said = True, str(error)
        self._tell("the interrupted writer is fenced", fenced, said)
        return recovery

    def _grown(self, job: ScratchJob, first: Copy) -> _Saved:
        """More checkpoints, until there are more than the soft watermark allows."""
        saved = [job.save(sequence) for sequence in (1, 2, 3)]
        read.acquire_reader(
            self._catalog,
            self._stage,
            saved[0].checkpoint,
            reader=OWNER,
            ttl=_READER_LEASE,
        )
        # Room for the three that are kept: collection stops at soft, so all else must go for it.
        theirs = self._held_bytes() + self._left_bytes
        soft = theirs + 3 * first.stored_bytes + OBJECT_BYTES // 2
        set_soft(self._catalog, self._project, soft)
        newest = job.save(4)
        for copy in (*saved, newest):
            self._validated(copy, "checksum")
        standing = self._standing()
        self._tell(
            "the soft watermark is crossed, and the project stands soft",
            standing.state is CapacityState.SOFT,
            f"of {soft} bytes {self._own_bytes()} are used; the state is {standing.state}",
        )
        job.end()
        return _Saved(first, saved[0], (saved[1], saved[2]), newest)

    def _quarantined(self, saved: _Saved) -> None:
        said = self._sweep()
        refusals = []
        for copy in saved.given_up:
            try:
                lease = read.acquire_reader(
                    self._catalog, self._stage, copy.checkpoint, reader=OWNER
                ).lease
                read.end_reader(self._catalog, lease)
            except CopyState as error:
                refusals.append(str(error))
        self._tell(
            "what nothing keeps is quarantined, and nobody can read it",
            len(refusals) == len(saved.given_up),
            "; ".join([said, *refusals]),
        )

    def _undone(self, saved: _Saved) -> None:
        back = saved.given_up[0]
        quarantine.undo(
            self._catalog,
            self._stores,
            back.checkpoint,
            because="a drill shows that it can be undone",
            actor=self._actor,
        )
        state, verdict = self._state(back), self._validated(back, "checksum")
        self._tell(
            "undone within its grace, every byte of it is there again",
            (state, verdict) == (State.PRESENT, "pass"),
            f"{back.checkpoint} is {state.value}, checksum {verdict}",
        )

    def _deleted(self, saved: _Saved) -> None:
        gone = self._until(lambda: self._sweep_away(saved.given_up))
        told = ", ".join(f"{one.checkpoint} {self._state(one).value}" for one in saved.given_up)
        self._tell("after its grace it is deleted", gone, told)
        for copy in saved.given_up:
            left = [one.key for one in listed(self._store, copy.prefix)]
            with self._catalog.transaction() as tx:
                tombstone = tombstones.of_copy(tx, self._project, copy.copy_id)
                certificate = (
                    None
                    if tombstone is None
                    else certificates.of_tombstone(tx, self._project, tombstone.tombstone_id)
                )
            self._tell(
                f"{copy.checkpoint} has a certificate, and the store has nothing of it",
                certificate is not None and not left,
                f"keys left: {len(left)}; certificate"
                f" {'none' if certificate is None else certificate.certificate}",
            )

    def _reclaimed(self, attempt_id: UUID) -> None:
        def closed() -> bool:
            cleanup.run(self._catalog, self._stores, self._project, self._actor)
            with self._catalog.transaction() as tx:
                found = attempts.get(tx, self._project, attempt_id)
            return found.state is attempts.State.CLOSED

        reclaimed = self._until(closed)
        with self._catalog.transaction() as tx:
            found = attempts.get(tx, self._project, attempt_id)
        left = len(listed(self._store, found.prefix))
        self._tell(
            "the interrupted checkpoint is reclaimed",
            reclaimed and left == 0,
            f"attempt {attempt_id} is {found.state.value}, {left} keys of it are left",
        )

    def _survived(self, saved: _Saved) -> None:
        for copy, why in ((saved.held, "is held"), (saved.read, "is read")):
            state = self._state(copy)
            kept = state is State.PRESENT and self._validated(copy, "checksum") == "pass"
            self._tell(f"what {why} survives", kept, f"{copy.checkpoint} is {state.value}")
        latest = read.latest(self._catalog, self._stage).checkpoint
        verdict = self._validated(saved.newest, "format")
        self._tell(
            "the newest valid checkpoint survives and is the latest",
            latest is not None and latest.id == saved.newest.checkpoint and verdict == "pass",
            f"the latest is {'nothing' if latest is None else latest.id}, format {verdict}",
        )
        standing = self._standing()
        self._tell(
            "usage is below the target",
            standing.over_soft_bytes == 0,
            f"in bytes, {self._own_bytes()} are used; the state is {standing.state}",
        )

    def _audited(self) -> None:
        breaks = [f"{one.name}: {one.problem}" for one in self._audit()]
        self._tell(
            "the audit of the catalog, and of an export without it, find nothing",
            not breaks,
            "; ".join(breaks[:5]) or "no break",
        )

    def _audit(self) -> Iterator[audit.Break | Break]:
        yield from audit.run(self._catalog, self._project).breaks
        with tempfile.TemporaryDirectory(prefix="lastgood-drill-") as folder:
            path = Path(folder) / "audit.jsonl"
            audit_file.export(self._catalog, self._project, path)
            yield from audit_file.check(path).breaks

    def _give_back(self) -> None:
        """End what keeps anything in the scratch project: a cut-off drill left it, or this one."""
        with self._catalog.transaction() as tx:
            reading = readers.live_of(tx, self._project)
            standing = holds.standing(tx, self._project)
        for lease in reading:
            read.end_reader(self._catalog, lease)
        for one in standing:
            if not _by_others(one):
                release.release(
                    self._catalog,
                    self._stores,
                    self._project,
                    one.hold_id,
                    because="the drill is over",
                    actor=self._actor,
                )

    def _left(self, saved: _Saved) -> None:
        """The floor keeps one: nothing but a retirement, which takes two operators, lifts it."""

        def alone() -> bool:
            with self._catalog.transaction() as tx:
                found = [
                    one
                    for state in (State.PRESENT, State.QUARANTINED, State.DELETING)
                    for one in copies.in_state(tx, self._project, state)
                    if not holds.on_checkpoint(tx, self._project, one.checkpoint_id)
                ]
            if [one.copy_id for one in found] == [saved.newest.copy_id]:
                return True
            self._sweep()
            return False

        tidy = self._until(alone)
        self._tell(
            "everything but the newest is cleaned up",
            tidy,
            f"{saved.newest.checkpoint} stays until the next drill"
            if tidy
            else "more than the newest is left",
        )

    def _sweep_away(self, given_up: tuple[Copy, ...]) -> bool:
        if all(self._state(copy) is State.DELETED for copy in given_up):
            return True
        self._sweep()
        return False

    def _sweep(self) -> str:
        """Mark and sweep; answers what the sweep says that it did."""
        mark.run(self._catalog, self._project)
        told = sweep.run(self._catalog, self._stores, self._project, self._actor)
        failed = "; ".join(f"{what}: {why}" for what, why in told["failed"].items())
        kept = "; ".join(f"{what}: {why}" for what, why in told["reasons"].items())
        done = f"{told['quarantined']} quarantined, {told['deleted']} deleted"
        return "; ".join(one for one in (done, told["stop"], failed, kept) if one)

    def _until(self, reached: Callable[[], bool]) -> bool:
        for _ in range(_LOOKS):
            if reached():
                return True
            self._wait(_LOOK_AGAIN)
        return reached()

    def _validated(self, copy: Copy, level: str) -> str:
        told = validate.run(self._catalog, self._stores, copy.copy_id, level, self._actor)
        verdict: str = told["verdict"]
        return verdict if verdict == "pass" else f"{verdict} ({told['reason']})"

    def _standing(self) -> Standing:
        found = pressure.observe(self._catalog, self._project, cause="a drill", actor=self._actor)
        return next(one.standing for one in found if one.store == self._store.name)

    def _held_bytes(self) -> int:
        """What others hold in the scratch project: a rebuild, until an operator releases it."""
        with self._catalog.transaction() as tx:
            return sum(
                one.stored_bytes
                for one in copies.in_state(tx, self._project, State.PRESENT)
                if any(map(_by_others, holds.on_checkpoint(tx, self._project, one.checkpoint_id)))
            )

    def _own_bytes(self) -> int:
        return self._standing().own.use.claimed_bytes

    def _state(self, copy: Copy) -> State:
        with self._catalog.transaction() as tx:
            return copies.get(tx, self._project, copy.copy_id).state

    def _now(self) -> datetime:
        with self._catalog.transaction() as tx:
            return history.now(tx)


def _by_others(hold: Hold) -> bool:
    return hold.reason != _HELD
