"""A validator that is killed leaves nothing for good: no folder, no lease, no receipt."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from lastgood.flows.validation.local_files import scratch_folder
from lastgood.flows.validation.reading import reading
from tests.ladder.conftest import receipts_of
from tests.retention.world import PROJECT, World


@contextmanager
def another_process(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs this, and the first line that it prints."""
    program = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


HOLDS_A_FOLDER = """
    import time
    from lastgood.flows.validation.local_files import scratch_folder
    with scratch_folder() as folder:
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint" / "big").write_bytes(bytes(1000))
        print(folder, flush=True)
        time.sleep(1000)
"""


def test_the_next_validation_removes_the_folder_of_a_killed_one(tmp_path: Path) -> None:
    with (
        another_process(HOLDS_A_FOLDER) as (killed, name),
        another_process(HOLDS_A_FOLDER) as (
            _,
            other,
        ),
    ):
        left, living = Path(name), Path(other)
        killed.kill()
        killed.wait()
        assert left.exists()

        with scratch_folder() as ours:
            assert sorted(left.parent.iterdir()) == sorted([living, ours])
            assert (living / "checkpoint" / "big").exists()


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    scratch, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (scratch / "lastgood-validation-link").symlink_to(elsewhere)
    (scratch / "mine").mkdir()

    with scratch_folder():
        pass

    assert elsewhere.exists()
    assert sorted(one.name for one in scratch.iterdir()) == ["lastgood-validation-link", "mine"]


def test_the_lease_of_a_killed_validator_lapses_and_until_then_keeps_nobody_else_away(
    world: World, catalog_dsn: str
) -> None:
    world.promote({"leases": {"reader": "15m"}})
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    code = f"""
        import time
        from lastgood.catalog.db import Catalog
        from lastgood.flows.validation.reading import reading
        with Catalog({catalog_dsn!r}) as catalog:
            with reading(catalog, {PROJECT!r}, {old.copy_id}, reader="validator"):
                print("reads", flush=True)
                time.sleep(1000)
    """
    with another_process(code) as (killed, said):
        assert said == "reads"
        killed.kill()
        killed.wait()
    with reading(world.catalog, PROJECT, old.copy_id, reader="validator") as (read, _):
        assert read.copy_id == old.copy_id
    world.mark()
    world.sweep()
    assert world.state(old) == "present"

    world.advance(timedelta(minutes=16))
    world.mark()
    world.sweep()

    assert world.state(old) == "quarantined"
    assert len(receipts_of(world, old)) == 1  # the one that it was committed with
