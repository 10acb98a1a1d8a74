"""One pending upload on disk: a folder under `.uploads/`, named by its id.

    upload.json   key, size and part size, as they were said when it was begun
    data          the object's bytes, each part written at its offset
    00001.json    size and SHA-256 of a finished part; written once the part's bytes are on disk
    00001.writer  the right to write part 1, held by whoever has this very file open
    aborted       set first by an abort, so that a crash in its middle is seen

The folder's lock (flock) is held for as long as one write takes, never while waiting for a client.
Replacing or removing the `.writer` file ends a writer's right, which it finds out before its next
write: so a part that is sent twice at once ends as one of the two, whole, and no late writer
reaches the bytes of a published object.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lastgood.stores.base import Key, Part, UploadGone, UploadId
from lastgood.stores.parts import part_count, part_size
from lastgood.stores.tree import FILE, NEW_FILE, Tree, read_small, write_all

RECORD, DATA, ABORTED = b"upload.json", b"data", b"aborted"
PART_RECORD = re.compile(r"\d{5}\.json")
RECORD_LIMIT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Begun:
    """What was said when an upload was created."""

    key: Key
    size_bytes: int
    part_bytes: int
    initiated_at: datetime

    def part_size(self, number: int) -> int | None:
        """The bytes of a part, None if there is no such part."""
        if not 1 <= number <= part_count(self.size_bytes, self.part_bytes):
            return None
        return part_size(self.size_bytes, self.part_bytes, number)

    def is_whole(self, parts: tuple[Part, ...]) -> bool:
        """Whether these parts, in this order, are the whole object."""
        count = part_count(self.size_bytes, self.part_bytes)
        return len(parts) == count and all(
            (part.number, part.size_bytes) == (number, self.part_size(number))
            for number, part in enumerate(parts, 1)
        )


class UploadFolder:
    """An open upload folder. FileNotFoundError means that it is gone."""

    def __init__(self, tree: Tree, upload_id: UploadId, fd: int) -> None:
        self._tree = tree
        self.upload_id = upload_id
        self.fd = fd

    @contextmanager
    def lock(self, *, exclusive: bool, wait: bool = True) -> Iterator[None]:
        """Keep others out (exclusive) or completion and abort out (shared). BlockingIOError if not
        `wait` and somebody has it."""
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(self.fd, mode if wait else mode | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def begin(self, key: Key, size_bytes: int, part_bytes: int) -> None:
        """Fill a new folder. Not synced: an upload lost in a power failure is only begun again."""
        record = {
            "key": key,
            "size_bytes": size_bytes,
            "part_bytes": part_bytes,
            "initiated_at": datetime.now(UTC).isoformat(),
        }
        os.close(os.open(DATA, NEW_FILE, 0o666, dir_fd=self.fd))
        self._write(RECORD, record)

    def begun(self) -> Begun | None:
        """What the record says; None if a crash left none, or only a torn one."""
        record = self._read(RECORD)
        if not isinstance(record, dict):
            return None
        return Begun(
            Key(record["key"]),
            record["size_bytes"],
            record["part_bytes"],
            datetime.fromisoformat(record["initiated_at"]),
        )

    def is_over(self) -> bool:
        """Whether an abort began, or a completion or an abort came to its end; needs the lock."""
        return self.stat(RECORD) is None or self.stat(ABORTED) is not None

    def is_empty(self) -> bool:
        """Whether a completion or an abort came to its end, and is about to remove the folder."""
        return not os.listdir(self.fd)

    def mark_aborted(self) -> None:
        with suppress(FileExistsError):
            os.close(os.open(ABORTED, NEW_FILE, 0o666, dir_fd=self.fd))

    def open_data(self, flags: int = FILE) -> int:
        """A descriptor of the data; FileNotFoundError once it was published or aborted."""
        return self._tree.open_file(self.fd, DATA, flags)

    def stat(self, name: bytes) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def parts(self) -> tuple[Part, ...]:
        """The finished parts, in order."""
        names = sorted(name for name in os.listdir(self.fd) if PART_RECORD.fullmatch(name))
        records = [(int(name[:5]), self._read(name.encode())) for name in names]
        return tuple(
            Part(number, record["size_bytes"], sha256=record["sha256"])
            for number, record in records
            if isinstance(record, dict)
        )

    def finish_part(self, part: Part) -> None:
        self._write(
            _part_record(part.number), {"size_bytes": part.size_bytes, "sha256": part.sha256}
        )

    @contextmanager
    def writer(self, begun: Begun, number: int, data: int) -> Iterator[Writer]:
        """Take the right to write a part from whoever has it. UploadGone if it is too late."""
        name = b"%05d.writer" % number
        with self.lock(exclusive=True):
            if self.is_over() or os.fstat(data).st_nlink > 1:
                raise self._gone(begun.key)
            with suppress(FileNotFoundError):
                os.unlink(_part_record(number), dir_fd=self.fd)
            token = self._replace(name, b"")
        writer = Writer(self, begun.key, token)
        try:
            yield writer
        finally:
            with suppress(FileNotFoundError, UploadGone), writer.right():
                os.unlink(name, dir_fd=self.fd)
            os.close(token)

    def revoke_writers(self) -> None:
        """End the right of every writer; needs the exclusive lock."""
        for name in os.listdir(self.fd):
            if name.endswith(".writer"):
                os.unlink(name, dir_fd=self.fd)

    def empty(self) -> None:
        """Remove every file, what says what this folder is last; needs the exclusive lock."""
        last = {os.fsdecode(RECORD): 1, os.fsdecode(ABORTED): 2}
        for name in sorted(os.listdir(self.fd), key=lambda name: last.get(name, 0)):
            os.unlink(name, dir_fd=self.fd)

    def _gone(self, key: Key) -> UploadGone:
        return UploadGone(store=self._tree.store, upload=self.upload_id, key=key)

    def _write(self, name: bytes, record: dict[str, object]) -> None:
        os.close(self._replace(name, json.dumps(record).encode()))

    def _replace(self, name: bytes, content: bytes) -> int:
        scratch = b".new-" + secrets.token_hex(8).encode()
        fd = os.open(scratch, NEW_FILE, 0o666, dir_fd=self.fd)
        write_all(fd, content, 0)
        os.rename(scratch, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        return fd

    def _read(self, name: bytes) -> object:
        try:
            fd = self._tree.open_file(self.fd, name)
        except FileNotFoundError:
            return None
        try:
            return json.loads(read_small(fd, RECORD_LIMIT_BYTES))
        except ValueError:
            return None
        finally:
            os.close(fd)


class Writer:
    """The right to write one part, lost without notice to a later writer, a completion or an
    abort."""

    def __init__(self, folder: UploadFolder, key: Key, token: int) -> None:
        self._folder = folder
        self._key = key
        self._token = token

    @contextmanager
    def right(self) -> Iterator[None]:
        """Hold everybody off for one write; UploadGone if the right is lost."""
        with self._folder.lock(exclusive=False):
            if os.fstat(self._token).st_nlink == 0:
                raise self._folder._gone(self._key)
            yield


def _part_record(number: int) -> bytes:
    return b"%05d.json" % number
