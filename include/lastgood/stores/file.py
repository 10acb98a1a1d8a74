"""A directory as a store, reached through the object endpoint or, `direct`, by the jobs themselves.

<key>                 a published object
.quarantine/<key>     the same object, hidden
.uploads/<id>/        a pending upload (see `upload_folder`)
.attested/            digests computed while receiving (see `attestations`)
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from heapq import merge
from pathlib import Path as FilePath
from typing import BinaryIO, cast

from lastgood.rules.accounting import Number
from lastgood.rules.shards import WHOLE, Shard
from lastgood.stores.attestations import attested, whole_sha256
from lastgood.stores.base import (
    EVERYTHING,
    Key,
    KeyExists,
    KeyMissing,
    KeyOutcome,
    Listing,
    Lock,
    Outcome,
    Part,
    PendingUpload,
    Prefix,
    SignedRequest,
    StoredObject,
    StoreError,
    StoreProfile,
    UploadGone,
    UploadId,
    Usage,
)
from lastgood.stores.file_deletes import deleted
from lastgood.stores.file_numbers import file_numbers
from lastgood.stores.file_uploads import FileUploads
from lastgood.stores.file_usage import file_usage
from lastgood.stores.folders import move, protect_below, prune_below
from lastgood.stores.job_folders import make_for_jobs
from lastgood.stores.keys import QUARANTINE, Path, path_of, prefix_path_of
from lastgood.stores.listing import StreamedListing
from lastgood.stores.parts import part_bytes_for
from lastgood.stores.ranged import RangedReader
from lastgood.stores.tree import Tree, read_small
from lastgood.stores.walk import listed, objects_below


class FileStore:
    """See `base.Store` for what each method promises."""

    def __init__(self, name: str, root: FilePath | str, *, direct: bool = False) -> None:
        """`root` must exist: a folder that is not there may be a disk that is not mounted."""
        self.name = name
        self.root = FilePath(root).absolute()
        self.profile = StoreProfile(
            kind="file",
            presigns=False,
            direct=direct,
            attests_sha256=True,
            versioned=False,
            hides=True,
        )
        self._tree = Tree(name, self.root)
        self._uploads = FileUploads(self._tree)
        with self._tree.folder(()):
            pass

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        path = path_of(self.name, key)
        with self._tree.translated(key, "write"):
            if not self._uploads.put(path, data):
                self._require_same(key, path, data)
        return self._stat_or_missing(key)

    def _require_same(self, key: Key, path: Path, data: bytes) -> None:
        with self._opened(key) as (folder, fd):
            if read_small(fd, len(data) + 1) != data:
                raise KeyExists(store=self.name, key=key)
            os.fsync(folder)  # whoever wrote it may have crashed before this

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        with self._tree.translated(key, "read"), self._opened(key) as (_, fd):
            data = read_small(fd, limit_bytes + 1)
        if len(data) > limit_bytes:
            raise StoreError(store=self.name, key=key, reason=f"larger than {limit_bytes} bytes")
        return data

    def stat(self, key: Key) -> StoredObject | None:
        with self._tree.translated(key, "stat"):
            file = self._tree.lstat(path_of(self.name, key))
            if file is None or stat.S_ISDIR(file.st_mode):
                return None
            sha256 = whole_sha256(attested(self._tree, key, file))
            return listed(self._tree, key, file, sha256=sha256)

    def attested_parts(self, key: Key) -> Sequence[Part] | None:
        with self._tree.translated(key, "stat"):
            file = self._tree.lstat(path_of(self.name, key))
            return None if file is None else attested(self._tree, key, file)

    @contextmanager
    def open(
        self,
        key: Key,
        *,
        start: int = 0,
        size_bytes: int | None = None,
        version_id: str | None = None,
    ) -> Iterator[BinaryIO]:
        if version_id is not None:
            raise KeyMissing(store=self.name, key=f"{key} (version {version_id})")
        with ExitStack() as stack:
            with self._tree.translated(key, "read"):
                _, fd = stack.enter_context(self._opened(key))
            yield cast(BinaryIO, RangedReader(self._tree, key, fd, start, size_bytes))

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        return deleted(self._tree, objects, prune=self._prune)

    def locked(self, objects: Sequence[StoredObject]) -> Mapping[tuple[Key, str | None], Lock]:
        return {}

    def prune(self, prefix: Prefix) -> None:
        path = self._copy_path(prefix)
        with self._tree.translated(prefix, "prune"):
            for place in (path, (QUARANTINE, *path)):
                with (
                    suppress(FileNotFoundError, NotADirectoryError),
                    self._tree.folder(place) as folder,
                ):
                    prune_below(self._tree, folder)
                self._prune(place)

    def _prune(self, folder: Path) -> None:
        floor = 1 if folder[:1] == (QUARANTINE,) else 0
        with suppress(FileNotFoundError, PermissionError):
            self._tree.prune(folder, floor)

    def list(self, prefix: Prefix, *, versions: bool = False) -> Listing[StoredObject]:
        path = prefix_path_of(self.name, prefix)
        return StreamedListing(
            lambda: merge(
                self._below(path, prefix, hidden=False),
                self._below((QUARANTINE, *path), prefix, hidden=True),
                key=lambda one: one.key.encode(),
            )
        )

    def list_shard(self, shard: Shard) -> Listing[StoredObject]:
        """See `sharded.ListsShards`: folders without a key of the shard are not entered."""
        return StreamedListing(
            lambda: merge(
                self._below((), EVERYTHING, hidden=False, shard=shard),
                self._below((QUARANTINE,), EVERYTHING, hidden=True, shard=shard),
                key=lambda one: one.key.encode(),
            )
        )

    def _below(
        self, path: Path, prefix: Prefix, *, hidden: bool, shard: Shard = WHOLE
    ) -> Iterator[StoredObject]:
        with self._tree.translated(prefix, "list"), ExitStack() as stack:
            try:
                folder = stack.enter_context(self._tree.folder(path))
            except (FileNotFoundError, NotADirectoryError):
                return
            yield from objects_below(self._tree, folder, prefix, hidden=hidden, shard=shard)

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        path = self._copy_path(prefix)
        with self._tree.translated(prefix, "quarantine"):
            move(self._tree, path, (QUARANTINE, *path))
            self._prune(path[:-1])

    def unquarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        path = self._copy_path(prefix)
        with self._tree.translated(prefix, "unquarantine"):
            move(self._tree, (QUARANTINE, *path), path)
            self._prune((QUARANTINE, *path[:-1]))

    def protect(self, prefix: Prefix) -> None:
        path = self._copy_path(prefix)
        with self._tree.translated(prefix, "protect"):
            protect_below(self._tree, path)

    def usage(self, prefix: Prefix = EVERYTHING) -> Usage:
        return file_usage(self._tree, self._uploads, prefix)

    def numbers(self) -> Sequence[Number]:
        """See `numbers.AccountsFurther`: blocks on disk, the file system, a project quota."""
        with self._tree.translated(EVERYTHING, "account"):
            parts = sum(upload.part_bytes_held for upload in self._uploads.pending(EVERYTHING))
            return file_numbers(self._tree, parts)

    def part_bytes(self, size_bytes: int) -> int:
        return part_bytes_for(size_bytes)

    def create_upload(self, key: Key, size_bytes: int) -> UploadId:
        path_of(self.name, key)
        with self._tree.translated(key, "begin an upload"):
            return self._uploads.create(key, size_bytes, self.part_bytes(size_bytes))

    def presign_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        expires_seconds: int,
        *,
        sha256: str | None = None,
    ) -> SignedRequest:
        raise StoreError(store=self.name, key=key, reason="a directory has no presigned URLs")

    def presign_read(self, key: Key, expires_seconds: int, *, version_id: str | None = None) -> str:
        raise StoreError(store=self.name, key=key, reason="a directory has no presigned URLs")

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        with self._tree.translated(key, "receive a part"):
            return self._uploads.write_part(key, upload_id, number, size_bytes, chunks)

    def parts(self, key: Key, upload_id: UploadId) -> Sequence[Part]:
        with self._tree.translated(key, "list parts"):
            return self._uploads.parts(key, upload_id)

    def complete_upload(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> StoredObject:
        with self._tree.translated(key, "complete an upload"):
            self._uploads.complete(key, upload_id, parts)
        published = self.stat(key)
        if published is None:  # an earlier call published it, and it was moved or deleted since
            raise UploadGone(store=self.name, upload=upload_id, key=key)
        return published

    def abort_upload(self, key: Key, upload_id: UploadId) -> Outcome:
        with self._tree.translated(key, "abort an upload"):
            return self._uploads.abort(key, upload_id)

    def uploads(self, prefix: Prefix) -> Listing[PendingUpload]:
        prefix_path_of(self.name, prefix)

        def pending() -> Iterator[PendingUpload]:
            with self._tree.translated(prefix, "list uploads"):
                try:
                    yield from self._uploads.pending(prefix)
                except NotADirectoryError as error:
                    reason = f"list uploads: {error.strerror}"
                    raise StoreError(store=self.name, key=prefix, reason=reason) from error

        return StreamedListing(pending)

    def direct_path(self, prefix: Prefix) -> str:
        if not self.profile.direct:
            raise StoreError(store=self.name, key=prefix, reason="jobs do not share this folder")
        path = self._copy_path(prefix)
        with (
            self._tree.translated(prefix, "create a folder"),
            self._tree.folder(path, create=True),
        ):
            return os.fsdecode(os.path.join(os.fsencode(self.root), *path))

    def make_direct(self, prefix: Prefix, objects: Iterable[str]) -> str:
        """See `job_folders.MakesJobFolders`."""
        named, folder = self.direct_path(prefix), self._copy_path(prefix)
        keys = (Key(f"{prefix}{path}") for path in objects)
        below = {path_of(self.name, key)[len(folder) : -1] for key in keys}
        with self._tree.translated(prefix, "create a folder"):
            make_for_jobs(self._tree, folder, sorted(below))
        return named

    def local_path(self, prefix: Prefix) -> str | None:
        return os.fsdecode(os.path.join(os.fsencode(self.root), *self._copy_path(prefix)))

    def _copy_path(self, prefix: Prefix) -> Path:
        path = prefix_path_of(self.name, prefix)
        if not path:
            raise StoreError(store=self.name, key=prefix, reason="this is the whole store")
        return path

    def _stat_or_missing(self, key: Key) -> StoredObject:
        found = self.stat(key)
        if found is None:
            raise KeyMissing(store=self.name, key=key)
        return found

    @contextmanager
    def _opened(self, key: Key) -> Iterator[tuple[int, int]]:
        """Descriptors of the key's folder and of its file."""
        path = path_of(self.name, key)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._tree.folder(path[:-1]))
                fd = self._tree.open_file(folder, path[-1])
            except (FileNotFoundError, NotADirectoryError) as error:
                raise KeyMissing(store=self.name, key=key) from error
            stack.callback(os.close, fd)
            yield folder, fd
