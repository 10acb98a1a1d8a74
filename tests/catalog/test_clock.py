"""A jump of the catalog's clock pauses what is destructive until an operator accepts it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from lastgood.catalog import clock
from lastgood.catalog.db import Catalog
from lastgood.errors import ClockJump, Conflict, NotFound
from lastgood.flows import sane_clock


@pytest.fixture
def catalog(catalog_dsn: str) -> Iterator[Catalog]:
    with Catalog(catalog_dsn) as catalog:
        yield catalog


@pytest.mark.parametrize("jump", [timedelta(minutes=6), timedelta(minutes=-6), timedelta(days=400)])
def test_a_jump_stops_everything_destructive_until_it_is_accepted(
    catalog: Catalog, move_clock: Any, jump: timedelta
) -> None:
    sane_clock.require(catalog)
    move_clock(jump, explained=False)
    for _ in range(2):
        with pytest.raises(ClockJump, match="lastgood clock accept") as refused:
            sane_clock.require(catalog)
    assert refused.value.facts["jump_seconds"] == pytest.approx(jump.total_seconds(), abs=60)
    with catalog.transaction() as tx:
        [waiting] = clock.unaccepted(tx)
        clock.accept(tx, waiting.jump_id, accepted_by="ann", because="the NTP server was wrong")
    sane_clock.require(catalog)
    with catalog.transaction() as tx, pytest.raises(Conflict, match="accepted before"):
        clock.accept(tx, waiting.jump_id, accepted_by="ben", because="again")


def test_a_drift_within_five_minutes_is_no_jump(catalog: Catalog, move_clock: Any) -> None:
    sane_clock.require(catalog)
    move_clock(timedelta(minutes=4), explained=False)
    sane_clock.require(catalog)


def test_a_clock_behind_what_another_machine_saw_is_a_jump(
    catalog: Catalog, owner_dsn: str
) -> None:
    with psycopg.connect(owner_dsn) as owner:
        owner.execute(
            "INSERT INTO lastgood.clock_readings (boot_id, catalog_at, monotonic_ns)"
            " VALUES ('another machine', lastgood.catalog_clock() + interval '1 hour', 1)"
        )
    for _ in range(2):
        with pytest.raises(ClockJump):
            sane_clock.require(catalog)
    with catalog.transaction() as tx:
        assert len(clock.unaccepted(tx)) == 1


def test_an_unknown_jump_cannot_be_accepted(catalog: Catalog) -> None:
    with catalog.transaction() as tx, pytest.raises(NotFound, match="clock jump '7'"):
        clock.accept(tx, 7, accepted_by="ann", because="why not")
