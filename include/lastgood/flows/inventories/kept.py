"""A kept inventory: its files, its manifest, and the place where both lie.

    control/inventories/<store>/<inventory>/listed-….parquet    as listed, shard by shard
                                           /rechecked-….parquet what moved meanwhile, listed again
                                           /expected-….parquet  what the catalog expected
                                           /owned-….parquet     whose each prefix was
                                           /manifest.json       written last

An inventory whose manifest is not there, or names a file that is not as it says, is unusable.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lastgood.flows.inventories.rows import Written, digest_of
from lastgood.rules.layout import inventory_prefix
from lastgood.stores.base import Key, Prefix, Store, StoreError, UploadGone, Usage

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20


class InventoryUnusable(StoreError):
    """Inventory {inventory} of store {store} is unusable: {reason}. Nothing may be concluded from
    it; take another."""

    type = "inventory-unusable"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of an inventory. `role`: listed, uploads, expected, owned, rechecked,
    rechecked-expected, rechecked-owned. `after` and `through` bound the shard of a listed one;
    `first` and `last` are its first and last key, in hexadecimal."""

    name: str
    role: str
    rows: int
    size_bytes: int
    sha256: str
    first: str = ""
    last: str = ""
    after: str = ""
    through: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As one task hands it to another; `KeptFile(**document)` reads it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """What an inventory is made of and was taken with. Instants are the catalog's (UTC); `usages`
    are what the backend accounted before (None: not asked) and after, by project, "" for all.
    It is finished once the backend has accounted: its files but the listed ones come later."""

    inventory: str
    store: str
    source: str  # "listing", or the address of the S3 Inventory report that it was made from
    started_at: datetime
    finished_at: datetime
    hides: bool
    projects: Sequence[str]
    files: Sequence[KeptFile]
    moving: Sequence[str]  # prefixes that were looked at once more
    passes: int
    objects: int
    size_bytes: int
    uploads: int
    upload_bytes: int
    in_flight_objects: int
    in_flight_bytes: int
    usages: Mapping[str, Usage]
    usages_before: Mapping[str, Usage] | None
    numbers: Sequence[Mapping[str, Any]] = ()  # further accountings of the backend
    counts: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)

    def of(self, role: str) -> list[KeptFile]:
        """The files of a role, in the order of their keys."""
        return [one for one in self.files if one.role == role]

    @property
    def kept_bytes(self) -> int:
        """The bytes of its files, the manifest's own not among them."""
        return sum(one.size_bytes for one in self.files)

    def to_bytes(self) -> bytes:
        """The manifest as it is kept."""
        document = {
            **asdict(self),
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "format_version": FORMAT_VERSION,
            "complete": True,
        }
        return json.dumps(document, indent=1, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> KeptManifest:
        """Read a manifest. ValueError for what is none of this version."""
        document = json.loads(content)
        if document.pop("format_version") != FORMAT_VERSION or not document.pop("complete"):
            raise ValueError("not a complete manifest of this version")
        before = document["usages_before"]
        return cls(
            **{
                **document,
                "started_at": datetime.fromisoformat(document["started_at"]),
                "finished_at": datetime.fromisoformat(document["finished_at"]),
                "files": [KeptFile(**one) for one in document["files"]],
                "usages": _usages(document["usages"]),
                "usages_before": None if before is None else _usages(before),
            }
        )


def _usages(document: Mapping[str, Any]) -> dict[str, Usage]:
    return {scope: Usage(**one) for scope, one in document.items()}


def new_name(at: datetime) -> str:
    """The name of an inventory that begins now (UTC); names sort by their time."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one inventory of `store` lies: below a prefix of its own in the store `place`."""

    place: Store
    store: str
    inventory: str

    @property
    def prefix(self) -> Prefix:
        return Prefix(inventory_prefix(self.store, self.inventory))

    def publish(self, written: Written, role: str, **bounds: Any) -> KeptFile:
        """Upload a file; it is there whole, under a name of its own, or not at all."""
        name = f"{written.path.stem}-{secrets.token_hex(4)}.parquet"
        key = Key(self.prefix + name)
        upload = self.place.create_upload(key, written.size_bytes)
        size = self.place.part_bytes(written.size_bytes)
        count = max(1, -(-written.size_bytes // size))
        parts = [
            self.place.write_part(
                key,
                upload,
                number,
                min(size, written.size_bytes - (number - 1) * size),
                _chunks(written.path, (number - 1) * size, size),
            )
            for number in range(1, count + 1)
        ]
        try:
            self.place.complete_upload(key, upload, parts)
        except UploadGone:  # an earlier answer was lost: what counts is that it is there
            there = self.place.stat(key)
            if there is None or there.size_bytes != written.size_bytes:
                raise
        return described(written, role, name, **bounds)

    def close(self, manifest: KeptManifest) -> str:
        """Write the manifest, which makes the inventory complete; answers its SHA-256."""
        content = manifest.to_bytes()
        self.place.put_new(Key(self.prefix + MANIFEST), content)
        return hashlib.sha256(content).hexdigest()

    def manifest(self, sha256: str | None = None) -> KeptManifest:
        """The manifest, which must have this digest where one is known. Raises InventoryUnusable
        if it is not there or is another one."""
        try:
            content = self.place.read(Key(self.prefix + MANIFEST))
            if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
                raise self.unusable("its manifest is not the one that was written")
            return KeptManifest.from_bytes(content)
        except (ValueError, KeyError, TypeError) as error:
            raise self.unusable(f"its manifest cannot be read: {error}") from error
        except StoreError as error:
            if isinstance(error, InventoryUnusable):
                raise
            raise self.unusable(f"its manifest cannot be read: {error}") from error

    @contextmanager
    def opened(self, manifest: KeptManifest) -> Iterator[Mapping[str, Path]]:
        """Every file by its name, on this machine, each checked against its digest. What does not
        lie here already is brought into a temporary folder. Raises InventoryUnusable."""
        local = self.place.local_path(self.prefix)
        with TemporaryDirectory(prefix="lastgood-inventory-") as scratch:
            paths = {}
            for one in manifest.files:
                path = Path(scratch if local is None else local) / one.name
                if local is None:
                    self._bring(one, path)
                self._require_same(one, path)
                paths[one.name] = path
            yield paths

    def _bring(self, file: KeptFile, path: Path) -> None:
        with self.place.open(Key(self.prefix + file.name)) as source, path.open("wb") as target:
            while chunk := source.read(_CHUNK_BYTES):
                target.write(chunk)

    def _require_same(self, file: KeptFile, path: Path) -> None:
        try:
            found = digest_of(path)
        except OSError as error:
            raise self.unusable(f"{file.name}: {error.strerror}") from error
        if found != (file.size_bytes, file.sha256):
            raise self.unusable(f"{file.name} is not the file that was written")

    def unusable(self, reason: str) -> InventoryUnusable:
        """The error that says why this inventory cannot be used."""
        return InventoryUnusable(
            store=self.store, key=self.prefix, inventory=self.inventory, reason=reason
        )


def described(written: Written, role: str, name: str | None = None, **bounds: Any) -> KeptFile:
    """A finished file as a manifest names it: under `name`, else under its own."""
    return KeptFile(
        name or written.path.name,
        role,
        written.rows,
        written.size_bytes,
        written.sha256,
        written.first.hex(),
        written.last.hex(),
        **bounds,
    )


def _chunks(path: Path, start: int, size_bytes: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        left = size_bytes
        while left and (chunk := file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
