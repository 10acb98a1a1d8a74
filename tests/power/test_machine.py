"""Power cuts of a machine that keeps the catalog and a file store, while a job saves: after the
next start every checkpoint that was committed is there, whole; and what was downloaded stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.migrate import migrate
from lastgood.catalog.settings.tokens import create_project_key
from lastgood.flows.settings.apply import apply
from lastgood.runner import Workload
from lastgood.stack.postgres import EmbeddedPostgres
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.coordinator.serving import ServerProcess
from tests.power.disk import Disk, mounted, new_disk, why_not
from tests.runner.conftest import QUICK, contents, write_configuration
from tests.waiting import wait_for

CUTS = 3
WRITES_BETWEEN = 25  # less than a save takes, so that cuts come at all of its steps
JOB = """
import sys
from pathlib import Path
from lastgood.runner import Workload

url, key, folder = sys.argv[1:]
with Workload(url, key, workload="mlp", stage="pretrain").acquire() as run:
    for step in range(1, 1000):
        shards = Path(folder, str(step))
        shards.mkdir()
        for rank in range(3):
            (shards / f"rank{rank}").write_bytes(bytes([step % 256, rank]) * 300_000)
        run.save(shards, step=step)
        print(step, flush=True)
"""
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Cut:
    """What a power cut left, and what had been committed before it."""

    image: Path
    steps: int


@pytest.mark.parametrize("direct", ["true", "false"], ids=["direct", "endpoint"])
def test_what_was_committed_outlives_a_power_cut(home: Path, direct: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    place = home / "disk"
    with new_disk(place) as disk:
        key = set_up(disk, home / "config", direct)
        cuts = list(cut_while_a_job_saves(disk, home, key))

    for cut in cuts:
        with mounted(cut.image, place) as disk:
            with started(disk) as url:
                restored = assert_all_is_whole(url, key, disk.folder / "restored", cut)
                disk.cut(home / "second.image")
            with mounted(home / "second.image", home / "second") as left:
                for step in range(1, restored + 1):
                    assert contents(left.folder / "restored" / str(step)) == shards_of(step)
        cut.image.unlink()


def set_up(disk: Disk, configuration: Path, direct: str) -> str:
    """A catalog and a store on the disk; the project's key."""
    with EmbeddedPostgres.start(disk.folder / "postgres") as server:
        server.create_role(APP_ROLE)
        server.create_role(OWNER_ROLE)
        server.create_database("catalog", owner=OWNER_ROLE)
        migrate(server.dsn("catalog", OWNER_ROLE), app_role=APP_ROLE)
        write_configuration(
            configuration, f"kind: file\nroot: {disk.folder}/store\ndirect: {direct}"
        )
        with Catalog(server.dsn("catalog", APP_ROLE)) as catalog:
            apply(catalog, configuration, actor="operator:test")
            with catalog.transaction() as tx:
                return create_project_key(tx, "demo", "test")


@contextmanager
def started(disk: Disk) -> Iterator[str]:
    """PostgreSQL and a coordinator on the disk as it is; the coordinator's URL."""
    with (
        EmbeddedPostgres.start(disk.folder / "postgres") as server,
        ServerProcess(server.dsn("catalog", APP_ROLE)) as coordinator,
    ):
        yield coordinator.url


def cut_while_a_job_saves(disk: Disk, home: Path, key: str) -> Iterator[Cut]:
    saved = home / "saved"
    (home / "job").mkdir()
    with started(disk) as url, saved.open("wb") as told:
        job = subprocess.Popen([sys.executable, "-c", JOB, url, key, home / "job"], stdout=told)
        try:
            wait_for(lambda: steps_of(saved))
            for number in range(CUTS):
                before = disk.writes()
                wait_for(lambda before=before: disk.writes() >= before + WRITES_BETWEEN)  # type: ignore[misc]
                steps, image = steps_of(saved), home / f"cut{number}.image"
                disk.cut(image)
                yield Cut(image, steps)
            assert job.poll() is None
        finally:
            job.kill()
            job.wait()


def steps_of(saved: Path) -> int:
    """How many saves the job knows to be committed."""
    return saved.read_bytes().count(b"\n")


def assert_all_is_whole(url: str, key: str, folder: Path, cut: Cut) -> int:
    """Download every checkpoint into the folder; how many they are."""
    workload = Workload(url, key, workload="mlp", stage="pretrain", retry=QUICK)
    latest = workload.latest()
    assert latest
    assert latest.step >= cut.steps >= 1
    for step in range(1, latest.step + 1):
        workload.download(f"mlp/pretrain/1.{step}", folder / str(step))
        assert contents(folder / str(step)) == shards_of(step)
    return latest.step


def shards_of(step: int) -> dict[str, bytes]:
    """As the job writes them."""
    return {f"rank{rank}": bytes([step % 256, rank]) * 300_000 for rank in range(3)}
