"""Writers as the coordinator has them: they prepare, send parts and commit by the real flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from lastgood.catalog.cleaning import incomplete_uploads
from lastgood.catalog.cleaning.incomplete_uploads import Entry
from lastgood.catalog.jobs import attempts
from lastgood.catalog.jobs.attempt_objects import DeclaredObject
from lastgood.catalog.jobs.attempts import Attempt
from lastgood.catalog.jobs.generations import Writer
from lastgood.flows.cleaning import cleanup
from lastgood.flows.jobs import commit, prepare
from lastgood.flows.jobs.prepare import PrepareRequest
from lastgood.rules import canonical, layout
from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.stores.base import Key, UploadId
from tests.retention.world import PROJECT, World

OBJECTS = {"a.bin": b"a" * 64, "b.bin": b"b" * 32}
ABORT_AFTER = timedelta(hours=1)


@dataclass(frozen=True)
class Begun:
    """An attempt with an upload for each of its objects; no part was sent yet."""

    world: World
    writer: Writer
    attempt: Attempt
    objects: Mapping[str, bytes]
    uploads: Mapping[str, UploadId]

    def key(self, path: str) -> Key:
        return Key(layout.object_key(self.attempt.prefix, path))

    def send(self, *paths: str) -> Begun:
        """Send these objects, all of them without a name; each has one part."""
        for path in paths or self.objects:
            data = self.objects[path]
            self.world.store.write_part(self.key(path), self.uploads[path], 1, len(data), [data])
        return self

    def commit(self) -> Any:
        name = self.attempt.checkpoint
        manifest = Manifest(
            name.project,
            name.workload,
            name.stage,
            name.generation,
            name.sequence,
            self.attempt.step,
            tuple(
                ManifestObject(path, len(data), canonical.digest(data))
                for path, data in sorted(self.objects.items())
            ),
        )
        return commit.commit(
            self.world.catalog, self.world.stores, self.writer, self.attempt.attempt_id, manifest
        )

    @property
    def state(self) -> str:
        with self.world.catalog.transaction() as tx:
            return attempts.get(tx, PROJECT, self.attempt.attempt_id).state.value

    def entries(self) -> list[Entry]:
        with self.world.catalog.transaction() as tx:
            return incomplete_uploads.of_attempt(tx, PROJECT, self.attempt.attempt_id)


def begin(
    world: World,
    sequence: int = 1,
    objects: Mapping[str, bytes] = OBJECTS,
    *,
    stage: str = "pretrain",
) -> Begun:
    """Prepare as a writer whose generation outlives everything here."""
    stage_id = world.generation(1, stage=stage, lease=timedelta(days=30))
    writer = Writer(PROJECT, stage_id, 1)
    declared = [DeclaredObject(path, len(data), None) for path, data in objects.items()]
    request = PrepareRequest(sequence, sequence * 100, "full", str(uuid4()), declared)
    prepared = prepare.prepare(world.catalog, world.stores, writer, "a token", request)
    uploads = {item.path: UploadId(item.upload_id) for item in prepared.objects if item.upload_id}
    return Begun(world, writer, prepared.attempt, objects, uploads)


def clean(world: World, actor: str = "dag:test") -> dict[str, Any]:
    return cleanup.run(world.catalog, world.stores, PROJECT, actor)


def history(world: World, entry: Entry | int) -> list[tuple[str, str]]:
    """What became of an upload: ("state", …) and ("try", …), in order."""
    number = entry if isinstance(entry, int) else entry.entry_id
    with world.catalog.transaction() as tx:
        found = incomplete_uploads.history(tx, PROJECT, number)
    return [(one["kind"], one["what"]) for one in found]


def inventory(world: World, *, ended: bool = True) -> list[Entry]:
    with world.catalog.transaction() as tx:
        return incomplete_uploads.shown(tx, PROJECT, ended=ended)


def attempt_id(begun: Begun) -> UUID:
    return begun.attempt.attempt_id
