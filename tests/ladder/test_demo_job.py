"""The example job's own checkpoints, restored by the contract that stands in the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import copies
from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.validation import receipts
from lastgood.catalog.validation.receipts import Receipt
from lastgood.flows.services import Services
from lastgood.flows.validation import validate
from lastgood.rules.contract import NEXT_LOSS
from lastgood.rules.names import CheckpointId
from lastgood.runner import upload
from tests.runner.conftest import (  # noqa: F401 - fixtures
    RunningCoordinator,
    coordinator,
    coordinators,
    how,
)
from tests.runner.test_train import train

LEVELS = ["checksum", "format", "restore"]


@dataclass
class Job:
    """A job that has ended, and what became of its checkpoints."""

    coordinator: RunningCoordinator
    services: Services

    def copy(self, sequence: int) -> Copy:
        name = CheckpointId.parse(f"demo/mlp/{self.coordinator.stage}/1.{sequence}")
        with self.services.catalog.transaction() as tx:
            (found,) = copies.of_checkpoint(tx, name)
        return found

    def climb(self, copy: Copy) -> list[tuple[str, str]]:
        told = validate.climb(self.services.catalog, self.services.stores, copy.copy_id, LEVELS)
        return [(one["level"], one["verdict"]) for one in told]

    def last_receipt(self, copy: Copy) -> Receipt:
        with self.services.catalog.transaction() as tx:
            return receipts.of_copy(tx, copy.project, copy.copy_id)[-1]


@pytest.fixture
def job(coordinator: RunningCoordinator, tmp_path: Path) -> Iterator[Job]:  # noqa: F811
    """The job after 24 steps and four saves."""
    online = ["--url", coordinator.url, "--stage", coordinator.stage]
    done = train(tmp_path, *online, key=coordinator.project_key)
    assert done.returncode == 0, done.stderr
    with Catalog(coordinator.dsn) as catalog:
        yield Job(coordinator, Services.of(catalog))


@pytest.mark.parametrize("how", ["endpoint", "presigned"], indirect=True)
def test_the_newest_checkpoint_restores_in_two_processes_with_the_recorded_loss(job: Job) -> None:
    newest = job.copy(4)
    latest = job.coordinator.workload().latest()
    assert latest

    assert job.climb(newest) == [(level, "pass") for level in LEVELS]
    receipt = job.last_receipt(newest)
    recorded = latest.metrics[NEXT_LOSS]
    assert receipt.reason == f"step 25 has loss {recorded!r}, recorded was {recorded!r}"
    assert receipt.body["topology"]["world_size"] == 2
    assert receipt.body["topology"]["outcome"]["tasks_peak"] >= 3


def test_a_shard_of_another_step_without_its_label_shows_in_the_loss(
    job: Job, tmp_path: Path
) -> None:
    """Such a shard passes its checksum and its format where a job itself committed it."""
    older, newest = (tmp_path / name for name in ("older", "newest"))
    workload = job.coordinator.workload()
    workload.download(f"mlp/{job.coordinator.stage}/1.1", older)
    manifest = workload.download("latest", newest).manifest
    path = "model/rank1.safetensors"
    save_file(load_file(older / path), newest / path)
    with workload.acquire() as run:
        files = {one.path: newest / one.path for one in manifest.objects}
        sizes = {name: file.stat().st_size for name, file in files.items()}
        ticket = run.begin_save(sizes, step=manifest.step)
        run.commit(
            ticket,
            upload(ticket, files),
            metrics=dict(manifest.metrics),
            restore=manifest.restore,
            world_size=2,
        )
    name = CheckpointId.parse(f"demo/mlp/{job.coordinator.stage}/2.1")
    with job.services.catalog.transaction() as tx:
        (mixed,) = copies.of_checkpoint(tx, name)

    assert job.climb(mixed) == [("checksum", "pass"), ("format", "pass"), ("restore", "fail")]
    assert "recorded was" in job.last_receipt(mixed).reason
