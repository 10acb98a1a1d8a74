"""Uploads of a file store: received part by part into a sparse file, published by a hard link."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lastgood.stores.attestations import attest
from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    PartInvalid,
    PendingUpload,
    Prefix,
    UploadGone,
    UploadId,
)
from lastgood.stores.keys import QUARANTINE, UPLOADS, Path, path_of
from lastgood.stores.parts import part_count, require_whole
from lastgood.stores.tree import FOLDER, NEW_FILE, Tree, write_all
from lastgood.stores.upload_folder import DATA, Begun, UploadFolder, Writer
from lastgood.stores.walk import Tally

SCRATCH = b".new"  # small files on their way to being published
UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
WRITE_DATA = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """What a pending upload takes on disk: finished parts, the data file, everything beside it. One
    that never began has no key."""

    began: bool
    part_bytes: int
    data: os.stat_result | None
    record_bytes: int


class FileUploads:
    """The `.uploads` folder of one store."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def create(self, key: Key, size_bytes: int, part_bytes: int) -> UploadId:
        """Begin an upload of `size_bytes` in parts of `part_bytes`."""
        while True:
            upload_id = UploadId(secrets.token_hex(16))
            with self._tree.folder((UPLOADS,), create=True) as uploads:
                os.mkdir(upload_id, dir_fd=uploads)
                # A clearing of what crashes left may remove the new folder before it is locked.
                with suppress(FileNotFoundError), self._folder(upload_id) as folder:
                    with folder.lock(exclusive=True):
                        folder.begin(key, size_bytes, part_bytes)
                    return upload_id

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        """Receive one part; its record follows its bytes to the disk, never the other way round."""
        with self._open(key, upload_id) as (folder, begun):
            if begun.part_size(number) != size_bytes:
                reason = f"{size_bytes} bytes announced, it has {begun.part_size(number)}"
                raise self._invalid(key, number, reason)
            data = folder.open_data(WRITE_DATA)
            try:
                with folder.writer(begun, number, data) as writer:
                    sha256 = self._receive(writer, data, begun, number, size_bytes, chunks)
                    os.fdatasync(data)
                    part = Part(number, size_bytes, sha256=sha256)
                    with writer.right():
                        folder.finish_part(part)
                    return part
            finally:
                os.close(data)

    def _receive(
        self,
        writer: Writer,
        data: int,
        begun: Begun,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> str:
        digest = hashlib.sha256()
        start = (number - 1) * begun.part_bytes
        received = 0
        for chunk in chunks:
            view = memoryview(chunk)
            if received + view.nbytes > size_bytes:
                raise self._invalid(begun.key, number, f"more than {size_bytes} bytes came")
            with writer.right():
                write_all(data, view, start + received)
            digest.update(view)
            received += view.nbytes
        if received != size_bytes:
            raise self._invalid(begun.key, number, f"{received} of {size_bytes} bytes came")
        return digest.hexdigest()

    def parts(self, key: Key, upload_id: UploadId) -> tuple[Part, ...]:
        """The finished parts, in order."""
        with self._open(key, upload_id) as (folder, _):
            return folder.parts()

    def complete(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> None:
        """Publish the data. Order: all parts there, writers out, data durable, link, attestation,
        and only then the upload's own files, its record last: a repetition finishes what a crash
        left anywhere."""
        path = path_of(self._tree.store, key)
        with self._open(key, upload_id) as (folder, begun), folder.lock(exclusive=True):
            if folder.is_over():
                raise UploadGone(store=self._tree.store, upload=upload_id, key=key)
            if folder.stat(DATA) is not None:
                self._publish(folder, begun, path, parts)
            folder.empty()
        self._remove_folder(upload_id)

    def _publish(
        self, folder: UploadFolder, begun: Begun, path: Path, parts: Sequence[Part]
    ) -> None:
        held = folder.parts()
        with _closing(folder.open_data()) as data:
            if not self._is_published(path, data):
                self._check_whole(begun, held, parts, os.fstat(data).st_size)
                folder.revoke_writers()
                os.fsync(data)
                if not self._tree.link_new(folder.fd, DATA, path):
                    raise KeyExists(store=self._tree.store, key=begun.key)
            if begun.is_whole(held):
                attest(self._tree, begun.key, os.fstat(data), held)

    def _check_whole(
        self, begun: Begun, held: tuple[Part, ...], named: Sequence[Part], data_bytes: int
    ) -> None:
        count = part_count(begun.size_bytes, begun.part_bytes)
        require_whole(self._tree.store, begun.key, held, named, count)
        if not begun.is_whole(held):
            raise self._invalid(begun.key, count, "a part held is not of its size")
        if data_bytes != begun.size_bytes:
            raise self._invalid(begun.key, count, f"{data_bytes} bytes are on disk")

    def _is_published(self, path: Path, data: int) -> bool:
        ours = os.fstat(data)
        for place in (path, (QUARANTINE, *path)):
            with suppress(FileNotFoundError, NotADirectoryError):
                with self._tree.folder(place[:-1]) as folder:
                    there = os.stat(place[-1], dir_fd=folder, follow_symlinks=False)
                if os.path.samestat(ours, there):
                    return True
        return False

    def abort(self, key: Key, upload_id: UploadId) -> Outcome:
        """Throw an upload away, however far it got; an object that it published stays."""
        if not UPLOAD_ID.fullmatch(upload_id):
            return Outcome.ABSENT
        try:
            with self._folder(upload_id) as folder, folder.lock(exclusive=True):
                begun = folder.begun()
                if begun is not None and begun.key != key:
                    return Outcome.ABSENT
                if folder.is_empty():
                    return Outcome.ABSENT
                folder.mark_aborted()
                folder.empty()
        except FileNotFoundError:
            return Outcome.ABSENT
        self._remove_folder(upload_id)
        return Outcome.GONE

    def pending(self, prefix: Prefix) -> list[PendingUpload]:
        """Every upload whose key begins with the prefix, in the order of keys. What a crash left of
        an upload that never began, and of small files never published, is cleared away on the
        way."""
        found = []
        for upload_id in self._ids():
            with suppress(FileNotFoundError), self._folder(upload_id) as folder:
                begun = folder.begun()
                if begun is None:
                    self._clear_unbegun(folder)
                elif begun.key.startswith(prefix):
                    parts = folder.parts()
                    held = sum(part.size_bytes for part in parts)
                    found.append(
                        PendingUpload(begun.key, upload_id, held, len(parts), begun.initiated_at)
                    )
        self._clear_scratch()
        return sorted(found, key=lambda upload: (upload.key.encode(), upload.upload_id))

    def held(self, prefix: Prefix) -> Iterator[HeldBytes]:
        """For accounting: what each pending upload below the prefix takes on disk."""
        for upload_id in self._ids():
            with suppress(FileNotFoundError), self._folder(upload_id) as folder:
                begun = folder.begun()
                if not (begun.key if begun else "").startswith(prefix):
                    continue
                records = [
                    folder.stat(os.fsencode(name))
                    for name in os.listdir(folder.fd)
                    if name != "data"
                ]
                yield HeldBytes(
                    begun is not None,
                    sum(part.size_bytes for part in folder.parts()),
                    folder.stat(DATA),
                    sum(file.st_size for file in records if file is not None),
                )

    def stray_bytes(self) -> int:
        """For accounting: what lies among the uploads and is neither one nor a small file on its
        way."""
        tally = Tally()
        with suppress(FileNotFoundError), self._tree.folder((UPLOADS,)) as folder:
            for name in os.listdir(folder):
                if not UPLOAD_ID.fullmatch(name) and name != SCRATCH.decode():
                    tally.add_entry(folder, os.fsencode(name))
        return tally.used_bytes

    def scratch_bytes(self) -> int:
        """For accounting: small files on their way to being published."""
        total = 0
        with suppress(FileNotFoundError), self._tree.folder((UPLOADS, SCRATCH)) as folder:
            for name in os.listdir(folder):
                with suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        return total

    def put(self, path: Path, content: bytes) -> bool:
        """Publish a small file durably; False if something is there."""
        with self._tree.folder((UPLOADS, SCRATCH), create=True) as folder:
            while True:
                name = secrets.token_hex(16).encode()
                with _closing(os.open(name, NEW_FILE, 0o666, dir_fd=folder)) as fd:
                    fcntl.flock(fd, fcntl.LOCK_EX)  # its writer lives: see _clear_scratch
                    try:
                        write_all(fd, content, 0)
                        os.fsync(fd)
                        return self._tree.link_new(folder, name, path)
                    except FileNotFoundError:
                        continue  # cleared away before it was locked
                    finally:
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=folder)

    def _clear_unbegun(self, folder: UploadFolder) -> None:
        with suppress(BlockingIOError), folder.lock(exclusive=True, wait=False):
            if folder.begun() is None:
                folder.empty()
                self._remove_folder(folder.upload_id)

    def _clear_scratch(self) -> None:
        with suppress(FileNotFoundError), self._tree.folder((UPLOADS, SCRATCH)) as folder:
            for name in os.listdir(folder):
                with (
                    suppress(FileNotFoundError, BlockingIOError),
                    _closing(self._tree.open_file(folder, os.fsencode(name))) as fd,
                ):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder)

    def _ids(self) -> list[UploadId]:
        try:
            with self._tree.folder((UPLOADS,)) as uploads:
                return [UploadId(name) for name in os.listdir(uploads) if UPLOAD_ID.fullmatch(name)]
        except FileNotFoundError:
            return []

    @contextmanager
    def _folder(self, upload_id: UploadId) -> Iterator[UploadFolder]:
        with self._tree.folder((UPLOADS,)) as uploads:
            fd = os.open(upload_id, FOLDER, dir_fd=uploads)
        with _closing(fd):
            yield UploadFolder(self._tree, upload_id, fd)

    @contextmanager
    def _open(self, key: Key, upload_id: UploadId) -> Iterator[tuple[UploadFolder, Begun]]:
        gone = UploadGone(store=self._tree.store, upload=upload_id, key=key)
        if not UPLOAD_ID.fullmatch(upload_id):
            raise gone
        try:
            with self._folder(upload_id) as folder:
                begun = folder.begun()
                if begun is None or begun.key != key:
                    raise gone
                yield folder, begun
        except FileNotFoundError as error:
            raise gone from error

    def _remove_folder(self, upload_id: UploadId) -> None:
        with suppress(FileNotFoundError), self._tree.folder((UPLOADS,)) as uploads:
            try:
                os.rmdir(upload_id, dir_fd=uploads)
            except OSError as error:
                # A network file system keeps an open file's name; `pending` clears it later.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            os.fsync(uploads)

    def _invalid(self, key: Key, number: int, reason: str) -> PartInvalid:
        return PartInvalid(store=self._tree.store, key=key, part=number, reason=reason)


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
