"""Receiving one object: hashed as it comes, continued where it broke off, checked before it
counts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.carrying import get_bytes
from lastgood.runner.direct import direct_folder
from lastgood.runner.durable import NEW_OR_OLD, make_folders, write_all
from lastgood.runner.files import SourceFile, Version, new_buffer
from lastgood.runner.http import Coordinator
from lastgood.runner.problems import CorruptObject, RemoteProblem
from lastgood.runner.progress import Progress
from lastgood.runner.reading import Reading
from lastgood.runner.retry import Transient
from lastgood.runner.transport import url_has_ended

_PARTIAL = 206


class Receiver:
    """Receives objects of one checkpoint into a folder. For many threads at once."""

    def __init__(
        self, coordinator: Coordinator, reading: Reading, folder: Path, progress: Progress
    ) -> None:
        self._coordinator = coordinator
        self._reading = reading
        self._folder = folder
        self._progress = progress

    def receive(self, item: ManifestObject) -> None:
        """Have the object whole, verified and durable in the folder. Raises CorruptObject."""
        target = self._folder / item.path
        make_folders(self._folder, target.parent)
        fd = os.open(target, NEW_OR_OLD, 0o666)
        try:
            arriving = Arriving(fd, item, self._progress)
            arriving.take_what_is_there()
            had_bytes = arriving.size_bytes
            self._fetch_rest(arriving)
            if had_bytes and not arriving.is_right:  # the rest of an earlier try may be at fault
                arriving.restart()
                self._fetch_rest(arriving)
            if not arriving.is_right:
                arriving.restart()
                raise self._corrupt(item, arriving.found)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _fetch_rest(self, arriving: Arriving) -> None:
        lease = self._reading.lease
        if lease.how == "direct":
            self._copy_rest(arriving, direct_folder(lease.direct_path))
        else:
            self._coordinator.retry.call(lambda: self._fetch_once(arriving), self._coordinator.stop)

    def _copy_rest(self, arriving: Arriving, folder: Path) -> None:
        path = arriving.item.path
        file = SourceFile(path, folder / path, Version.of((folder / path).stat()))
        rest_bytes = file.size_bytes - arriving.size_bytes
        with file.reading() as fd:
            for chunk in file.chunks(
                fd, arriving.size_bytes, rest_bytes, new_buffer(), self._coordinator.stop
            ):
                arriving.add(chunk)

    def _fetch_once(self, arriving: Arriving) -> None:
        item, buffer = arriving.item, new_buffer(256 << 10)
        if arriving.size_bytes == item.size_bytes:
            return
        url, headers = self._reading.request_for(item.path)
        headers |= {"Accept-Encoding": "identity", "Range": f"bytes={arriving.size_bytes}-"}
        try:
            with get_bytes(self._coordinator.client.objects, url, headers) as response:
                if response.status != _PARTIAL:
                    arriving.restart()
                for chunk in response.chunks(buffer):
                    self._coordinator.stop.check()
                    arriving.add(chunk)
                    if arriving.size_bytes > item.size_bytes:
                        return
        except RemoteProblem as refused:
            if not url_has_ended(refused) or url == arriving.replacement_url:
                raise
            arriving.replacement_url = self._reading.replace(url, item.path)
            raise Transient(refused) from refused

    def _corrupt(self, item: ManifestObject, found: str) -> CorruptObject:
        return CorruptObject(
            path=item.path,
            checkpoint=self._reading.lease.checkpoint.id,
            expected=f"{item.size_bytes} bytes with SHA-256 {item.sha256}",
            found=found,
        )


class Arriving:
    """A file that grows by what was received, with the hash of it."""

    def __init__(self, fd: int, item: ManifestObject, progress: Progress) -> None:
        self.item = item
        self.size_bytes = 0
        self.replacement_url: str | None = None  # in the place of one that the store refused
        self._fd = fd
        self._progress = progress
        self._digest = hashlib.sha256()

    def take_what_is_there(self) -> None:
        """Count what an earlier try left, as far as it can belong to the object."""
        there_bytes = os.fstat(self._fd).st_size
        if there_bytes > self.item.size_bytes:
            self.restart()
            return
        for chunk in _read(self._fd, there_bytes):
            self._digest.update(chunk)
            self.size_bytes += len(chunk)
        self._progress.add(self.size_bytes)

    def add(self, chunk: bytes | memoryview) -> None:
        """Take received bytes. Those beyond the object's size are counted, but not written."""
        fitting = memoryview(chunk)[: max(0, self.item.size_bytes - self.size_bytes)]
        write_all(self._fd, fitting, self.size_bytes)
        self._digest.update(chunk)
        self.size_bytes += len(chunk)
        self._progress.add(len(fitting))

    def restart(self) -> None:
        """Throw away what has arrived."""
        os.ftruncate(self._fd, 0)
        self._progress.add(-min(self.size_bytes, self.item.size_bytes))
        self.size_bytes = 0
        self._digest = hashlib.sha256()

    @property
    def is_right(self) -> bool:
        """Whether this is the object that the manifest names."""
        return (
            self.size_bytes == self.item.size_bytes and self._digest.hexdigest() == self.item.sha256
        )

    @property
    def found(self) -> str:
        return f"{self.size_bytes} bytes with SHA-256 {self._digest.hexdigest()}"


def _read(fd: int, size_bytes: int) -> Iterator[memoryview]:
    buffer = new_buffer()
    done = 0
    while done < size_bytes and (read := os.preadv(fd, [buffer], done)):
        yield buffer[:read]
        done += read
