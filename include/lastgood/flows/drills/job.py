"""A small job of a drill: it acquires, prepares, sends and commits as any job does, in this
process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempt_objects, copies, generations, stages
from lastgood.catalog.jobs.attempt_objects import DeclaredObject
from lastgood.catalog.jobs.copies import Copy
from lastgood.errors import Unavailable
from lastgood.flows.jobs import acquire, commit, prepare
from lastgood.flows.jobs.acquire import AcquireRequest
from lastgood.flows.jobs.prepare import Prepared, PrepareRequest
from lastgood.rules import layout
from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.rules.names import CheckpointId, ManifestDigest, StageId
from lastgood.stores.base import Key, UploadId
from lastgood.stores.open import Stores
from lastgood.stores.parts import part_count, part_size

OBJECT_BYTES = 64 << 10


class ScratchJob:
    """One generation of a scratch stage, and the writer of its checkpoints."""

    def __init__(self, catalog: Catalog, stores: Stores, stage: StageId) -> None:
        self._catalog, self._stores, self._stage = catalog, stores, stage
        with catalog.transaction() as tx:
            known = stages.find(tx, stage)
        request = AcquireRequest(
            stage,
            after=0 if known is None else known.generation,
            idempotency_key=str(uuid4()),
            holder="drill",
            kind="checkpointed",
        )
        acquired = acquire.acquire(catalog, stores, request)
        self.generation = acquired.generation
        self.resumed_from = None if acquired.resume is None else acquired.resume.id
        self._token = acquired.token
        with catalog.transaction() as tx:
            writer = generations.writer_of_token(tx, acquired.token)
        assert writer is not None, "it was issued just now"
        self._writer = writer

    def save(self, sequence: int) -> Copy:
        """Commit a checkpoint; answers its copy."""
        contents = _contents(self.generation, sequence)
        prepared = self.begin(sequence, contents)
        for path, content in contents.items():
            self._send(prepared, path, content)
        checkpoint = prepared.attempt.checkpoint
        manifest = Manifest(
            checkpoint.project,
            checkpoint.workload,
            checkpoint.stage,
            checkpoint.generation,
            checkpoint.sequence,
            sequence,
            tuple(
                ManifestObject(path, len(content), _sha256(content))
                for path, content in contents.items()
            ),
        )
        outcome = commit.commit(
            self._catalog, self._stores, self._writer, prepared.attempt.attempt_id, manifest
        )
        if outcome.checkpoint is None:
            raise Unavailable(what=f"commit of {checkpoint}", reason="it was left to the workers")
        return self.copy(checkpoint)

    def interrupted(self, sequence: int) -> UUID:
        """Begin a checkpoint, send one object of it, and never go on; answers the attempt."""
        contents = _contents(self.generation, sequence)
        prepared = self.begin(sequence, contents)
        path = next(iter(contents))
        self._send(prepared, path, contents[path])
        return prepared.attempt.attempt_id

    def begin(self, sequence: int, contents: Mapping[str, bytes]) -> Prepared:
        """An open attempt with a place for each object."""
        declared = [DeclaredObject(path, len(data), None) for path, data in contents.items()]
        request = PrepareRequest(sequence, sequence, "full", str(uuid4()), declared)
        return prepare.prepare(self._catalog, self._stores, self._writer, self._token, request)

    def end(self) -> None:
        """The clean end of the generation."""
        acquire.release(self._catalog, self._stores, self._writer)

    def copy(self, checkpoint: CheckpointId) -> Copy:
        """The one copy of a checkpoint as it stands now."""
        with self._catalog.transaction() as tx:
            return copies.of_checkpoint(tx, checkpoint)[0]

    def _send(self, prepared: Prepared, path: str, content: bytes) -> None:
        if prepared.direct_path is not None:
            _write(Path(prepared.direct_path) / path, content)
            return
        store = self._stores[prepared.attempt.store]
        with self._catalog.transaction() as tx:
            place = attempt_objects.at(tx, prepared.attempt, [path])[path]
        assert place.upload_id is not None
        assert place.part_bytes is not None
        key = Key(layout.object_key(prepared.attempt.prefix, path))
        start = 0
        for number in range(1, part_count(len(content), place.part_bytes) + 1):
            size = part_size(len(content), place.part_bytes, number)
            part = memoryview(content)[start : start + size]
            store.write_part(key, UploadId(place.upload_id), number, size, [part])
            start += size


def _contents(generation: int, sequence: int) -> dict[str, bytes]:
    """A tensor that no two checkpoints share, as a file of the safetensors form, and a cursor."""
    seed = hashlib.sha256(f"{generation}.{sequence}".encode()).digest()
    tensor = seed * (OBJECT_BYTES // len(seed))
    said = {"w": {"dtype": "U8", "shape": [len(tensor)], "data_offsets": [0, len(tensor)]}}
    header = json.dumps(said).encode()
    return {
        "cursor.json": json.dumps({"step": sequence}).encode(),
        "model.safetensors": len(header).to_bytes(8, "little") + header + tensor,
    }


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sha256(content: bytes) -> ManifestDigest:
    return ManifestDigest(hashlib.sha256(content).hexdigest())
