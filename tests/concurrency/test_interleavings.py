"""The sweep against whoever else decides, at every interleaving of their transactions: one of them
stands at each of its steps in turn while the other runs, and no invariant falls."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import generations
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold, Selector
from lastgood.flows import quarantine
from lastgood.flows.jobs import commit, read
from lastgood.flows.keeping import hold, retire
from lastgood.flows.retention import mark
from lastgood.rules import layout
from lastgood.rules.scope import Scope
from lastgood.stack.postgres import EmbeddedPostgres
from tests.concurrency.rewinding import Rewinding, rewinding
from tests.concurrency.sessions import Session
from tests.concurrency.stepping import interleaved, steps_of
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.factories import upload_object
from tests.retention import invariants
from tests.retention.world import PROJECT, World, opened, simple_manifest

DATA = {"model.bin": b"weights" * 10}
GRACE = timedelta(hours=1)


@dataclass(frozen=True)
class Prepared:
    """A world that waits for a sweep. `target` is a candidate of the newest mark; in a `chain` it
    depends on `base`, another one. `third` and `newest` are kept, `sent` are attempts that were
    sent whole: a full one, and one that can depend on others."""

    rewinding: Rewinding
    base: Copy
    target: Copy
    third: Copy
    newest: Copy
    sent: tuple[Attempt, Attempt]


class Worlds:
    """The prepared worlds, each made once."""

    def __init__(self, server: EmbeddedPostgres, template: str, folder: Path) -> None:
        self._server = server
        self._template = template
        self._folder = folder
        self._made: dict[tuple[str, bool], Prepared] = {}
        self._cleaning = ExitStack()

    def get(self, step: str, *, chain: bool) -> Prepared:
        """By the step that a sweep would take next: `quarantine` or `deletion`."""
        if (step, chain) not in self._made:
            self._made[step, chain] = self._make(step, chain)
        return self._made[step, chain]

    def close(self) -> None:
        self._cleaning.close()

    def _make(self, step: str, chain: bool) -> Prepared:
        name = f"interleaved_{secrets.token_hex(6)}"
        self._server.create_database(name, template=self._template, owner=OWNER_ROLE)
        self._cleaning.callback(self._server.drop_database, name)
        root = self._folder / name
        app, owner = self._server.dsn(name, APP_ROLE), self._server.dsn(name, OWNER_ROLE)
        world = self._cleaning.enter_context(opened(app, owner, root))
        base, target, third, newest = _commits(world, chain)
        if step == "deletion":
            world.mark()
            world.sweep()
            assert world.state(target) == world.state(base) == "quarantined"
            world.advance(GRACE + timedelta(minutes=1))
        world.generation(2, resumed_from=newest.checkpoint.position)
        sent = _send(world, 1, "full"), _send(world, 2, "incremental")
        world.mark()
        back = self._cleaning.enter_context(rewinding(world, self._server.dsn(name), root))
        return Prepared(back, base, target, third, newest, sent)


def _commits(world: World, chain: bool) -> tuple[Copy, Copy, Copy, Copy]:
    world.promote({"retire": {"grace": "1h", "approve": False}})
    base = world.commit(1)
    target = world.commit(2, depends_on=[base]) if chain else base
    return base, target, world.commit(3), world.commit(4)


def _send(world: World, sequence: int, kind: str) -> Attempt:
    attempt = world.prepare(sequence, DATA, generation=2, kind=kind)
    for path, content in DATA.items():
        upload_object(world.store, layout.object_key(attempt.prefix, path), content)
    return attempt


@pytest.fixture(scope="module")
def worlds(
    postgres: EmbeddedPostgres, template_catalog: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worlds]:
    made = Worlds(postgres, template_catalog, tmp_path_factory.mktemp("interleaved"))
    yield made
    made.close()


Act = Callable[[World, Prepared], Any]


def _hold(world: World, target: Copy | None) -> Any:
    selector = None if target else Selector(workload="gpt", step_to=200)
    new = NewHold("legal", "counsel", "case 7", "operator:ann", selector=selector)
    name = target.checkpoint if target else None
    return hold.place(world.catalog, world.stores, PROJECT, new, name)


def _read(world: World, target: Copy | None) -> Any:
    name = target.checkpoint if target else None
    return read.acquire_reader(world.catalog, world.stage_name(), name, reader="eval")


def _commit(world: World, made: Prepared, depends_on: tuple[Copy, ...] = ()) -> Any:
    attempt = made.sent[bool(depends_on)]
    manifest = replace(
        simple_manifest(attempt, DATA),
        dependencies=tuple(copy.manifest for copy in depends_on),
    )
    writer = generations.Writer(PROJECT, attempt.stage_id, 2)
    return commit.commit(world.catalog, world.stores, writer, attempt.attempt_id, manifest)


def _fail(world: World, made: Prepared) -> None:
    for copy in (made.newest, made.third):
        world.receipt(copy, "fail")


def _retire_and_undo(world: World, made: Prepared) -> None:
    scope = Scope(PROJECT, "gpt")
    asked = retire.ask(world.catalog, world.stores, scope, reason="over", actor="operator:ann")
    retire.undo(
        world.catalog,
        world.stores,
        PROJECT,
        asked.retirement_id,
        because="not yet",
        actor="operator:ben",
    )


def _undo(world: World, target: Copy) -> Any:
    return quarantine.undo(
        world.catalog, world.stores, target.checkpoint, because="needed", actor="operator:ann"
    )


KEEP_ALL = {"roles": {"hot": {"keep": "newest", "count": 9}}, "retire": {"grace": "1h"}}
SWEEP: Act = lambda w, _: w.sweep()  # noqa: E731
OTHERS: dict[str, Act] = {
    "another sweep": SWEEP,
    "a mark": lambda w, p: mark.run(w.catalog, PROJECT),
    "a commit": lambda w, p: _commit(w, p),
    "a commit that depends on a candidate": lambda w, p: _commit(w, p, (p.target,)),
    "a reader of a candidate": lambda w, p: _read(w, p.target),
    "a reader of the latest": lambda w, p: _read(w, None),
    "a hold on a candidate": lambda w, p: _hold(w, p.target),
    "a hold by selector": lambda w, p: _hold(w, None),
    "a policy that keeps more": lambda w, p: w.promote(KEEP_ALL, name="more"),
    "a retirement and its undo": _retire_and_undo,
    "an undo": lambda w, p: _undo(w, p.target),
    "a failing receipt of what stays": _fail,
    "a writer that resumes from a candidate": lambda w, p: w.generation(3, resumed_from=(1, 1)),
}
IN_CHAINS = ("a commit that depends on a candidate", "an undo")
IN_CHAINS_TOO = ("another sweep", "a hold on a candidate", "a reader of a candidate")
SOAK = bool(os.environ.get("LASTGOOD_SOAK"))
"""Every step, also those that are like others, and every chain."""
PAIRS = [
    *((other, False) for other in OTHERS),
    *((other, True) for other in IN_CHAINS + IN_CHAINS_TOO * SOAK),
]


@pytest.mark.slow
@pytest.mark.parametrize("step", ["quarantine", "deletion"])
@pytest.mark.parametrize(
    ("other", "chain"), PAIRS, ids=[other + " in a chain" * chain for other, chain in PAIRS]
)
def test_no_invariant_falls_wherever_the_two_meet(
    worlds: Worlds, other: str, chain: bool, step: str
) -> None:
    made = worlds.get(step, chain=chain)
    for first, second in dict.fromkeys(((SWEEP, OTHERS[other]), (OTHERS[other], SWEEP))):
        world = made.rewinding.rewind()
        steps = steps_of(world.catalog, _call(world, made, first))
        for number in range(len(steps.reached)) if SOAK else steps.matter():
            made.rewinding.rewind()
            meet(world, made, first, number, second)


def meet(world: World, made: Prepared, first: Act, stand_at: int, second: Act) -> None:
    """Let the first stand at a step while the second runs, and look at what they leave."""
    sessions = interleaved(
        world.catalog, world.owner, _call(world, made, first), stand_at, _call(world, made, second)
    )
    for session in sessions:
        _require_ended_well(session)
    assert quarantine.follow(world.catalog, world.stores, PROJECT).failed == {}
    invariants.require(world, replay=first is not SWEEP)
    invariants.require_stores_follow(world)


def _call(world: World, made: Prepared, act: Act) -> Callable[[Catalog], Any]:
    return lambda catalog: act(replace(world, catalog=catalog), made)


def _require_ended_well(session: Session) -> None:
    """A refusal is an answer; anything else than one of ours, as a deadlock, is a fault."""
    with suppress(errors.LastgoodError):
        told = session.result()
        if isinstance(told, dict):
            assert told.get("failed", {}) == {}
