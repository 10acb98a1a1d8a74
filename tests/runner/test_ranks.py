"""Many ranks: one coordinates, each sends its own shards with nothing but the ticket."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.errors import FencedGeneration
from lastgood.runner import (
    FileChanged,
    Ticket,
    UnusableFiles,
    records_from_text,
    records_to_text,
    upload,
)
from tests.runner.conftest import QUICK, RunningCoordinator, contents

EVERY_WAY = pytest.mark.parametrize("how", ["endpoint", "direct", "presigned"], indirect=True)
RANK = """
import sys
from pathlib import Path
from lastgood.runner import Ticket, records_to_text, upload

ticket = Ticket.from_text(sys.stdin.read())
rank, path, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
print(records_to_text(upload(ticket, {path: file}, rank=rank)))
"""


def sizes_of(folder: Path) -> dict[str, int]:
    return {path: len(content) for path, content in contents(folder).items()}


@EVERY_WAY
def test_ranks_in_other_processes_need_only_the_ticket(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        sizes = sizes_of(checkpoint)
        ticket = run.begin_save(sizes, step=1)
        records = []
        for rank, path in enumerate(sizes):
            done = subprocess.run(
                [sys.executable, "-c", RANK, str(rank), path, checkpoint / path],
                input=ticket.to_text(),
                capture_output=True,
                text=True,
                check=False,
                env={"PYTHONPATH": str(Path("include").absolute())},
            )
            assert done.returncode == 0, done.stderr
            records += records_from_text(done.stdout)
        saved = run.commit(ticket, records, metrics={"eval/loss": 1})

    downloaded = coordinator.workload().download("latest", tmp_path / "restored")
    assert downloaded.checkpoint == saved
    assert downloaded.manifest.world_size == len(sizes)
    assert contents(tmp_path / "restored") == contents(checkpoint)


def test_a_rank_that_was_started_again_sends_only_what_is_missing(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        ticket = run.begin_save(sizes_of(checkpoint), step=1)
        path = "model/rank0.safetensors"
        upload(ticket, {path: checkpoint / path}, rank=0, retry=QUICK)
        before = coordinator.faults.count("PUT", "/objects/")

        again = Ticket.from_text(ticket.to_text())
        records = upload(again, checkpoint, rank=0, resume=True, retry=QUICK)
        run.commit(again, records)

    assert coordinator.faults.count("PUT", "/objects/") == before + len(records) - 1


def test_a_rank_whose_shard_changed_sends_it_again(
    coordinator: RunningCoordinator, checkpoint: Path, tmp_path: Path
) -> None:
    with coordinator.workload().acquire() as run:
        ticket = run.begin_save(sizes_of(checkpoint), step=1)
        upload(ticket, checkpoint, rank=0, retry=QUICK)
        (checkpoint / "rng (copy) 100%.bin").write_bytes(b"new")
        records = upload(ticket, checkpoint, rank=0, resume=True, retry=QUICK)
        run.commit(ticket, records)

    coordinator.workload().download("latest", tmp_path / "restored")
    assert contents(tmp_path / "restored") == contents(checkpoint)


def test_a_shard_of_another_size_than_prepared_is_named(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        ticket = run.begin_save(sizes_of(checkpoint), step=1)
        (checkpoint / "empty").write_bytes(b"not any more")

        with pytest.raises(FileChanged, match=r"empty .*12 bytes, 0 were prepared"):
            upload(ticket, checkpoint, retry=QUICK)


def test_a_shard_that_was_not_prepared_is_named(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        ticket = run.begin_save({"other": 0}, step=1)

        with pytest.raises(UnusableFiles, match="prepared without 'empty'"):
            upload(ticket, {"empty": checkpoint / "empty"}, retry=QUICK)


def test_a_rank_of_a_fenced_generation_is_refused(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    old = coordinator.workload().acquire()
    ticket = old.begin_save(sizes_of(checkpoint), step=1)
    with coordinator.workload().acquire(after=old.number), pytest.raises(FencedGeneration):
        upload(ticket, checkpoint, retry=QUICK)
    with pytest.raises(FencedGeneration):
        old.close()


def test_ticket_and_records_survive_the_way_and_hide_the_token(
    coordinator: RunningCoordinator, checkpoint: Path
) -> None:
    with coordinator.workload().acquire() as run:
        ticket = run.begin_save(sizes_of(checkpoint), step=1)
        records = upload(ticket, checkpoint, rank=0, retry=QUICK)

        assert Ticket.from_text(ticket.to_text()) == ticket
        assert records_from_text(records_to_text(records)) == records
        assert ticket.fencing_token not in repr(ticket)
