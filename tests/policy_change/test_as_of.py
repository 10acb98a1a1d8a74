"""A mark of the past sees what was known then, however often it is made and by whatever way."""

from __future__ import annotations

import calendar
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from lastgood import errors
from lastgood.catalog.connect import open_catalog
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.keeping.holds import NewHold
from lastgood.catalog.retention import stage_history
from lastgood.flows import quarantine, scheduled
from lastgood.flows.jobs import read
from lastgood.flows.keeping import hold, release
from lastgood.flows.retention import mark
from lastgood.flows.sweeping import sweep
from lastgood.flows.sweeping.sweep import Plan
from tests.retention.world import PROJECT, World, candidates_of_mark

HOUR = timedelta(hours=1)
ROLES = {
    "hot": {"keep": "newest", "count": 2},
    "warm": {"keep": "every", "interval": "6h", "within": "2d"},
    "anchor": {"keep": "every", "interval": "1d", "within": "7d", "validated": "checksum"},
}


def put_clock(world: World, at: datetime) -> None:
    """Let the catalog's clock go on from an instant, as if the time until then had passed."""
    world.set_clock(at - datetime.now(UTC))
    world.owner.execute("DELETE FROM lastgood.clock_readings")


def first_hour(world: World) -> datetime:
    return world.now().replace(minute=0, second=0, microsecond=0) + HOUR


def replay(world: World, at: datetime, policy: str | None = None) -> dict[str, Any]:
    return mark.run(world.catalog, PROJECT, at=at, kind="replay", policy=policy)


def candidates(world: World, told: dict[str, Any]) -> set[int]:
    with world.catalog.transaction() as tx:
        return {one.copy_id for one in candidates_of_mark(tx, PROJECT, told["mark_id"])}


def _happens(world: World, hour: int, made: list[Copy]) -> None:
    """Something of a month: commits of two stages, with holds, readers, receipts, also such that
    prove nothing, and sweeps between them."""
    if hour % 8 == 0:
        made.append(world.commit(hour + 1, receipt="fail" if hour % 48 == 16 else "pass"))
    if hour % 12 == 7:
        world.receipt(
            made[hour % 2 - 2], "inconclusive", "format" if hour % 24 == 19 else "checksum"
        )
    if hour % 48 == 7:
        made.append(world.commit(hour + 1, stage="sft", depends_on=made[-1:]))
    if hour % 60 == 11:
        new = NewHold(
            "research",
            "lab",
            "look",
            "operator:ann",
            expires_at=world.now() + timedelta(days=2) if hour % 120 == 11 else None,
        )
        placed = hold.place(world.catalog, world.stores, PROJECT, new, made[-1].checkpoint)
        if hour % 120 != 11:
            release.release(
                world.catalog,
                world.stores,
                PROJECT,
                placed.hold_id,
                because="seen",
                actor="operator:ann",
            )
    if hour % 72 == 13:
        read.acquire_reader(world.catalog, world.stage_name(), made[-1].checkpoint, reader="eval")
    if hour % 336 == 150:
        world.sweep()


def _replay_all(dsn: str, instants: Sequence[datetime]) -> None:
    with open_catalog(dsn, max_size=1) as catalog:
        for at in instants:
            mark.run(catalog, PROJECT, at=at, kind="replay")
    os._exit(0)


def test_a_backfill_of_a_month_decides_as_every_hour_of_it_did(
    world: World, catalog_dsn: str
) -> None:
    """In any order of runs, and with the process killed again and again."""
    chance = random.Random(7)
    world.promote({"roles": ROLES, "quarantine": {"grace": "1h", "share_guard": "100%"}})
    began, made, live = first_hour(world), list[Copy](), dict[datetime, dict[str, Any]]()
    for hour in range(28 * 24):
        end = began + (hour + 1) * HOUR
        if hour % 8 == 0 or hour % 12 in (1, 6, 7, 11):
            put_clock(world, end - timedelta(minutes=10))
            _happens(world, hour, made)
        put_clock(world, end + timedelta(seconds=5))
        live[end] = mark.run(world.catalog, PROJECT)

    instants = [datetime.fromisoformat(one["at"]) for one in live.values()]
    for _ in range(3):
        chance.shuffle(instants)
        started = multiprocessing.get_context("fork").Process(
            target=_replay_all, args=(catalog_dsn, instants)
        )
        started.start()
        started.join(chance.uniform(0.3, 1.2))
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)
        started.join()
    chance.shuffle(instants)
    told = {at: replay(world, at) for at in instants}

    def decided(one: dict[str, Any]) -> Any:
        return one["at"], one["digest"], one["counts"]

    assert [decided(told[at]) for at in sorted(told)] == [decided(one) for one in live.values()]
    # A mark is taken some seconds after its interval's end. Where nothing was recorded meanwhile,
    # such as a lease that was seen to have lapsed, the end of the interval decides alike.
    events = world.owner.execute("SELECT recorded_at FROM lastgood.events").fetchall()
    seen = {at.replace(minute=0, second=0, microsecond=0) for (at,) in events if at.minute == 0}
    quiet = [end for end in live if end not in seen][::12]
    assert len(quiet) > 40
    for end in quiet:
        assert replay(world, end)["digest"] == live[end]["digest"], end
    assert len({one["digest"] for one in live.values()}) > 100  # the month was no idle one
    kinds = dict(
        world.owner.execute("SELECT kind, count(*) FROM lastgood.marks GROUP BY kind").fetchall()
    )
    assert kinds == {"live": len(live), "replay": len(live) + len(quiet)}


def test_one_checkpoint_is_judged_right_at_every_hour_of_its_life(world: World) -> None:
    began = first_hour(world)
    copy: Copy | None = None
    placed: Any = None

    def commit() -> None:
        nonlocal copy
        copy = world.commit(1)

    def outlive() -> None:
        world.commit(2)
        world.commit(3)

    def hold_it() -> None:
        nonlocal placed
        assert copy is not None
        new = NewHold("incident", "oncall", "spike", "operator:ann")
        placed = hold.place(world.catalog, world.stores, PROJECT, new, copy.checkpoint)

    def release_it() -> None:
        release.release(
            world.catalog,
            world.stores,
            PROJECT,
            placed.hold_id,
            because="over",
            actor="operator:ann",
        )

    def sweep_it() -> None:
        world.mark()
        world.sweep()

    def restore() -> None:
        assert copy is not None
        quarantine.undo(
            world.catalog,
            world.stores,
            copy.checkpoint,
            because="needed",
            actor="operator:ann",
        )

    # What happens within each hour, and how the mark at its end has to find the checkpoint.
    life: list[tuple[Callable[[], Any], str]] = [
        (lambda: None, "unknown"),
        (commit, "kept"),
        (lambda: None, "kept"),
        (outlive, "may leave"),
        (hold_it, "kept"),
        (lambda: None, "kept"),
        (release_it, "may leave"),
        (sweep_it, "may leave, quarantined"),
        (restore, "may leave"),
        (hold_it, "kept"),
        (release_it, "may leave"),
        (sweep_it, "may leave, quarantined"),
        (lambda: None, "may leave, quarantined"),
        (sweep_it, "unknown"),
        (lambda: None, "unknown"),
    ]
    for hour, (happens, _) in enumerate(life):
        put_clock(world, began + hour * HOUR + timedelta(minutes=30))
        happens()
    put_clock(world, began + (len(life) + 1) * HOUR)
    assert copy is not None
    assert world.state(copy) == "deleted"

    def found(at: datetime) -> str:
        leaves = copy is not None and copy.copy_id in candidates(world, replay(world, at))
        with world.catalog.transaction() as tx:
            stage = stage_history.of_stage(tx, PROJECT, copy.stage_id, at) if copy else None
        known = {one.position: one for one in stage.history} if stage else {}
        if (1, 1) not in known:
            assert not leaves
            return "unknown"
        hidden = ", quarantined" if known[1, 1].quarantined else ""
        return ("may leave" if leaves else "kept") + hidden

    told = [found(began + (hour + 1) * HOUR) for hour in range(len(life))]
    assert told == [expected for _, expected in life]


def test_both_daylight_saving_days_have_a_mark_for_each_interval(world: World) -> None:
    import pendulum
    from airflow.timetables.base import DataInterval, TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable

    year = world.now().year + 1
    put_clock(world, datetime(year, 3, 1, tzinfo=UTC))
    world.promote({"timezone": "Europe/Berlin", "roles": ROLES})
    world.commit(1)
    put_clock(world, datetime(year, 11, 2, tzinfo=UTC))
    timetable = CronDataIntervalTimetable("0 * * * *", timezone="UTC")
    ends: list[datetime] = []
    for month in (3, 10):
        last_sunday = max(week[calendar.SUNDAY] for week in calendar.monthcalendar(year, month))
        start = pendulum.datetime(year, month, last_sunday, tz="Europe/Berlin")
        last: DataInterval | None = None
        while True:
            info = timetable.next_dagrun_info(
                last_automated_data_interval=last,
                restriction=TimeRestriction(start.in_tz("UTC"), start.add(days=1), catchup=True),
            )
            if info is None or info.data_interval.start >= start.add(days=1):
                break
            last = info.data_interval
            ends.append(last.end)
    assert len(ends) == 23 + 25  # the hours that the two days of Berlin have
    once = [replay(world, at)["mark_id"] for at in ends]
    again = [replay(world, at)["mark_id"] for at in reversed(ends)]
    assert again == list(reversed(once))
    assert len(set(once)) == len(ends)
    stored = world.owner.execute("SELECT at FROM lastgood.marks ORDER BY at").fetchall()
    assert [at for (at,) in stored] == sorted(ends)
    assert all(after - at == HOUR for at, after in pairwise(ends[:23]))


def _a_replay_with_candidates(world: World) -> tuple[Copy, int]:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    at = world.now()
    world.advance(HOUR)
    told = replay(world, at)
    assert candidates(world, told) == {old.copy_id}
    return old, told["mark_id"]


def test_a_replay_handed_to_the_sweep_deletes_nothing_and_is_refused_by_name(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, replayed = _a_replay_with_candidates(world)
    live = world.mark()
    said = f"Mark {replayed} cannot be swept: it is a replay one"
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)

    with pytest.raises(errors.MarkNotSweepable, match=said):  # by hand
        world.sweep(mark_id=replayed)
    for handed in ([replayed], [live, str(replayed)]):  # as the DAG is handed it, or several
        assert scheduled.swept_projects(handed) == [PROJECT]
        with pytest.raises(errors.MarkNotSweepable, match=said):
            scheduled.sweep_project(PROJECT, handed)
    for wrong in (None, "newest", -1, 1.5, True, 10**30):
        with pytest.raises(errors.InvalidInput, match="is no number of a mark"):
            scheduled.swept_projects([wrong])
    command = [sys.executable, "-m", "lastgood.cli", "sweep", PROJECT, "--mark", str(replayed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert said in " ".join(done.stderr.split())
    assert world.state(old) == "present"


def test_a_replay_that_decides_otherwise_names_both_versions_and_a_way_out(world: World) -> None:
    _, mark_id = _a_replay_with_candidates(world)
    at, ours, zones = world.row(
        "SELECT at, code_version, time_zone_version FROM lastgood.marks WHERE mark_id = %s", mark_id
    )
    world.owner.execute("ALTER TABLE lastgood.marks DISABLE TRIGGER USER")
    for made_by, way_out in (
        (
            "0.0.1",
            rf"{ours} with time-zone data {zones}; .*policy diff short@v1 short@v1 -p vision`",
        ),
        (ours, "neither changed since; .* run `lastgood audit`"),
    ):
        world.owner.execute(
            "UPDATE lastgood.marks SET digest = 'other', code_version = %s WHERE mark_id = %s",
            (made_by, mark_id),
        )
        said = rf"mark {mark_id} of vision at .* under short@v1 .* by code {made_by} .*{way_out}"
        with pytest.raises(errors.Conflict, match=said):
            replay(world, at)


def test_a_replay_of_an_instant_before_the_first_policy_says_so(world: World) -> None:
    with pytest.raises(errors.InvalidInput, match="no policy of vision was in force at 1999-"):
        replay(world, datetime(1999, 1, 1, tzinfo=UTC))


def test_a_plan_forged_over_a_replay_is_refused_by_the_gate(world: World) -> None:
    old, replayed = _a_replay_with_candidates(world)
    forged = Plan(PROJECT, replayed, (), (), (old,), ())
    told = sweep.execute(world.catalog, world.stores, forged, "dag:test")
    assert (told["quarantined"], told["kept"]) == (0, 1)
    assert f"mark {replayed} is a replay one" in told["reasons"][str(old.checkpoint)]
    assert world.state(old) == "present"


def test_a_later_replay_makes_the_live_mark_no_older_and_no_newer(world: World) -> None:
    old, _ = _a_replay_with_candidates(world)
    live = world.mark()
    world.advance(timedelta(minutes=30))
    replay(world, world.now())
    told = world.sweep()
    assert (told["mark"], told["quarantined"]) == (live, 1)
    assert world.state(old) == "quarantined"


def test_a_run_by_hand_marks_now_or_the_past_that_it_names(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    world.commit(1)
    past = world.now()
    world.advance(timedelta(hours=3))
    assert scheduled.mark_asked(PROJECT, None, None)["kind"] == "live"
    assert scheduled.mark_asked(PROJECT, world.now(), None)["kind"] == "live"
    told = scheduled.mark_asked(PROJECT, past, "short@v1")
    assert (told["kind"], told["at"]) == ("replay", past.isoformat())
    with pytest.raises(errors.InvalidInput, match="made under the policy in force"):
        scheduled.mark_asked(PROJECT, None, "short@v1")


def test_a_backfill_skips_what_it_cannot_decide(
    world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_CATALOG", catalog_dsn)
    world.commit(1)
    before = world.now() - timedelta(days=30)
    assert "no policy was in force" in scheduled.mark_again(PROJECT, before)["skipped"]
    other = scheduled.mark_again(PROJECT, world.now(), "candidate@v7")
    assert other == {"project": PROJECT, "skipped": "it has no policy candidate@v7"}
    assert scheduled.mark_again(PROJECT, world.now(), "short@v1")["policy"] == "short version 1"
    assert scheduled.marked_projects("short@v1") == [PROJECT]
    with pytest.raises(errors.NotFound, match="candidate@v7"):  # no project has it: a slip
        scheduled.marked_projects("candidate@v7")
