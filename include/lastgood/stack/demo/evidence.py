"""What stands at the end of the demo, each fact read where it can be checked: the operator's API,
the catalog's tombstones, the disk, the report's files, and what a client downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from lastgood.catalog.db import Transaction
from lastgood.catalog.sweeping import tombstones
from lastgood.catalog.sweeping.tombstones import Tombstone
from lastgood.errors import LastgoodError
from lastgood.rules.layout import attempt_prefix, inventory_prefix
from lastgood.rules.names import AttemptId, CheckpointId
from lastgood.runner import Workload
from lastgood.stack.demo import report_page
from lastgood.stack.demo.disk import Outside
from lastgood.stack.demo.place import PROJECT
from lastgood.stack.demo.story import STAGE, Demo, Told


@dataclass(frozen=True, slots=True)
class Deletion:
    """A tombstone, what became of its keys, and what the disk still has below its prefix."""

    tombstone: Tombstone
    keys_gone: int
    keys_refused: int
    freed_bytes: int
    bytes_on_disk: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the expectations judge."""

    told: Told
    checkpoints: Sequence[Mapping[str, Any]]  # the newest first
    deletions: Mapping[str, Deletion]  # by checkpoint
    kept_because: Mapping[str, Sequence[str]]  # by checkpoint with a present copy
    policy_digest: str
    partial: Deletion | None
    partial_bytes_on_disk: int
    present_in_project: int
    latest: str
    downloads: Mapping[str, str]  # by checkpoint: empty, or why it cannot be downloaded
    restored_weights_equal: bool
    newest_receipts: Sequence[Mapping[str, Any]]  # the newest first
    disk_bytes: int
    html_fields: Mapping[str, str]
    html_differs: Sequence[str]

    @property
    def report(self) -> Mapping[str, Any]:
        """The report's document."""
        document: Mapping[str, Any] = self.told.report["document"]
        return document


def gather(demo: Demo, told: Told) -> Evidence:
    """Read everything. Raises StackError or LastgoodError where it cannot be read at all."""
    place, found = demo.place, demo.checkpoints()
    present = [one["checkpoint"] for one in found if _has(one, "present")]
    reasons = {name: place.operator(f"why/{name}") for name in present}
    html = Path(told.report["html"]).read_text(encoding="utf-8")
    fields = report_page.fields_of(html)
    with Workload(place.url, demo.key, workload=demo.workload, stage=STAGE) as workload:
        latest = workload.latest()
        downloads = {
            name: _download(workload, name, place.folder)
            for name in (told.held, told.read, found[0]["checkpoint"])
        }
    stages = place.operator("stages", project=PROJECT)["stages"]
    outside = place.outside
    return Evidence(
        told=told,
        checkpoints=found,
        deletions=_deletions(demo, found, outside),
        kept_because={
            name: [reason["text"] for reason in why["kept"]] for name, why in reasons.items()
        },
        policy_digest=reasons[found[0]["checkpoint"]]["policy_digest"] if present else "",
        partial=_partial(demo, told, outside),
        partial_bytes_on_disk=outside.bytes_of_attempt(
            told.partial["prefix"], told.partial["attempt"]
        ),
        present_in_project=sum(stage["present"] for stage in stages),
        latest=latest.id if latest else str(latest),
        downloads=downloads,
        restored_weights_equal=_restores(
            place.folder / _folder_of(found[0]["checkpoint"]), told.uninterrupted
        ),
        newest_receipts=place.operator(
            "receipts", project=PROJECT, checkpoint=found[0]["checkpoint"]
        )["receipts"],
        disk_bytes=_held(told, outside),
        html_fields=fields,
        html_differs=report_page.differing(fields, told.report["document"]),
    )


def _has(checkpoint: Mapping[str, Any], state: str) -> bool:
    return any(copy["state"] == state for copy in checkpoint["copies"])


def _held(told: Told, outside: Outside) -> int:
    """What the store held when the report's inventory had accounted it."""
    document = told.report["document"]
    listing = document["listing"]
    return outside.bytes_held(
        until=datetime.fromisoformat(listing["finished_at"]),
        inventory=inventory_prefix(document["store"]["name"], listing["inventory"]),
    )


def _deletions(
    demo: Demo, found: Sequence[Mapping[str, Any]], outside: Outside
) -> Mapping[str, Deletion]:
    made: dict[str, Deletion] = {}
    with demo.place.services.catalog.transaction() as tx:
        for one in found:
            name = CheckpointId.parse(one["checkpoint"])
            prefix = attempt_prefix(name, AttemptId(one["attempt"]))
            for copy in one["copies"]:
                tombstone = tombstones.of_copy(tx, PROJECT, copy["copy_id"])
                if tombstone is not None:
                    left = outside.bytes_of_attempt(prefix, one["attempt"])
                    made[str(name)] = _deletion(tx, tombstone, left)
    return made


def _partial(demo: Demo, told: Told, outside: Outside) -> Deletion | None:
    attempt = told.partial["attempt"]
    left = outside.bytes_of_attempt(told.partial["prefix"], attempt)
    with demo.place.services.catalog.transaction() as tx:
        tombstone = tombstones.of_attempt(tx, PROJECT, UUID(attempt))
        return None if tombstone is None else _deletion(tx, tombstone, left)


def _deletion(tx: Transaction, tombstone: Tombstone, left: int) -> Deletion:
    outcomes = tombstones.outcomes(tx, tombstone)
    return Deletion(tombstone, outcomes.gone, outcomes.refused, outcomes.freed_bytes, left)


def _download(workload: Workload, checkpoint: str, folder: Path) -> str:
    try:
        workload.download(checkpoint.partition("/")[2], folder / _folder_of(checkpoint))
    except (LastgoodError, OSError) as error:
        return str(error)
    return ""


def _folder_of(checkpoint: str) -> str:
    return checkpoint.rpartition("/")[2]


def _restores(restored: Path, weights: Path) -> bool:
    """Whether the shards of all ranks together are the weights of the uninterrupted run."""
    from safetensors.numpy import load_file

    shards = sorted((restored / "model").glob("*.safetensors"))
    merged = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    wanted = load_file(weights)
    return merged.keys() == wanted.keys() and all(
        merged[name].tobytes() == wanted[name].tobytes() for name in wanted
    )
