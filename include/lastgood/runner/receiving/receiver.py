"""Receiving objects into a folder: continued where they broke off, checked before they count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.disk.durable import make_folders
from lastgood.runner.disk.files import SourceFile, Version, new_buffer
from lastgood.runner.disk.shared import shared_folder
from lastgood.runner.problems import CorruptObject, RemoteProblem
from lastgood.runner.receiving.arriving import BUFFER_BYTES, Arriving, Take
from lastgood.runner.receiving.reading import Reading
from lastgood.runner.wire.carrying import (
    Body,
    check_is_an_object,
    check_is_of_s3,
    get_bytes,
)
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.wire.spans import Span, goes_by_part, most_bytes
from lastgood.runner.wire.transport import url_has_ended
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.parallel import in_parallel
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.retry import Transient

_PARTIAL = 206
_BEYOND_THE_END = 416


class Receiver:
    """Receives objects of one checkpoint into a folder, on as many threads as `pace` says."""

    def __init__(
        self,
        coordinator: Coordinator,
        reading: Reading,
        folder: Path,
        progress: Progress,
        pace: Pace,
        *,
        durable: bool,
    ) -> None:
        self._coordinator = coordinator
        self._stop = coordinator.stop
        self._reading = reading
        self._folder = folder
        self._progress = progress
        self._pace = pace
        self._durable = durable

    def receive(self, objects: Sequence[ManifestObject]) -> None:
        """Have the objects whole and verified in the folder, and on the disk if `durable`, begun in
        this order. Raises CorruptObject."""
        total_bytes = sum(item.size_bytes for item in objects)
        begun = in_parallel(
            lambda item: self._begin(item, total_bytes),
            objects,
            workers=self._pace,
            stop=self._stop,
        )
        missing = [(arriving, span) for arriving in begun for span in arriving.missing]
        try:
            in_parallel(
                lambda one: self._receive(*one), missing, workers=self._pace, stop=self._stop
            )
        finally:
            for arriving in begun:
                arriving.close()

    def _begin(self, item: ManifestObject, total_bytes: int) -> Arriving:
        target = self._folder / item.path
        make_folders(self._folder, target.parent)
        most: int | None = max(1, item.size_bytes)
        if self._reading.lease.how != "direct":
            workers = self._pace.workers
            by_part = goes_by_part(item, total_bytes, workers)
            most = None if by_part else most_bytes(item.size_bytes, total_bytes, workers)
        arriving = Arriving(target, item, most, self._progress, durable=self._durable)
        try:
            if not arriving.missing:
                self._finish(arriving)
        finally:
            arriving.close()  # there may be more objects than descriptors
        return arriving

    def _receive(self, arriving: Arriving, span: Span) -> None:
        if self._fetch(arriving, span):
            self._finish(arriving)

    def _finish(self, arriving: Arriving) -> None:
        if not arriving.is_right() and arriving.may_be_righted:
            arriving.restart()
            for span in arriving.missing:
                self._fetch(arriving, span)
        if not arriving.is_right():
            found = arriving.found
            arriving.give_up()
            raise self._corrupt(arriving.item, found)
        arriving.keep()

    def _fetch(self, arriving: Arriving, span: Span) -> bool:
        """Have the span; whether it is decided what the object is."""
        lease = self._reading.lease
        with arriving.receiving(span) as take:
            if lease.how == "direct":
                self._copy(arriving, span, shared_folder(lease.direct_path), take)
            else:
                self._coordinator.retry.call(
                    lambda: self._fetch_all(arriving, span, take), self._stop, lambda: span.at
                )
        return arriving.end(span)

    def _copy(self, arriving: Arriving, span: Span, folder: Path, take: Take) -> None:
        path = arriving.item.path
        file = SourceFile(path, folder / path, Version.of((folder / path).stat()))
        is_last = span.end == arriving.item.size_bytes
        end = file.size_bytes if is_last else min(span.end, file.size_bytes)
        with file.reading() as fd:
            for chunk in file.chunks(fd, span.at, end - span.at, new_buffer(), self._stop):
                take(chunk)

    def _fetch_all(self, arriving: Arriving, span: Span, take: Take) -> None:
        """Have the span, or all that the store has of it: an answer may be shorter than what was
        asked for, and only one without anything more tells that there is no more."""
        before = -1
        while before < span.at < span.end:
            before = span.at
            self._fetch_once(arriving, span, take)

    def _fetch_once(self, arriving: Arriving, span: Span, take: Take) -> None:
        item = arriving.item
        url, headers = self._reading.request_for(item.path)
        # Without an end where the object's is expected: what is too long is to be noticed.
        end = "" if span.end == item.size_bytes else span.end - 1
        headers |= {"Accept-Encoding": "identity", "Range": f"bytes={span.at}-{end}"}
        try:
            is_presigned = self._reading.lease.how == "presigned"
            check = check_is_of_s3 if is_presigned else check_is_an_object
            with get_bytes(self._coordinator.client.objects, url, headers, check) as body:
                arriving.replacement_url = None  # one that is taken may end later, as the first did
                self._take_from(body, arriving, span, take)
        except Transient as failure:
            if failure.asks_for_less:
                self._pace.slow_down()
            raise
        except RemoteProblem as refused:
            if refused.facts["http_status"] == _BEYOND_THE_END:
                return
            if not url_has_ended(refused) or url == arriving.replacement_url:
                raise
            arriving.replacement_url = self._reading.replace(url, item.path)
            raise Transient(refused) from refused

    def _take_from(self, body: Body, arriving: Arriving, span: Span, take: Take) -> None:
        is_whole_object = body.status != _PARTIAL  # though a range was asked for
        before_bytes = span.at if is_whole_object else 0
        for chunk in self._pace.carried(body.chunks(new_buffer(BUFFER_BYTES))):
            self._stop.check()
            wanted = chunk[before_bytes:]
            before_bytes = max(0, before_bytes - len(chunk))
            if span.end != arriving.item.size_bytes:
                if span.is_whole:  # and more comes than was asked for
                    return
                wanted = wanted[: span.end - span.at]
            is_too_long = len(wanted) > span.end - span.at
            take(wanted)
            if is_too_long or (is_whole_object and span.is_whole):
                return

    def _corrupt(self, item: ManifestObject, found: str) -> CorruptObject:
        return CorruptObject(
            path=item.path,
            checkpoint=self._reading.lease.checkpoint.id,
            expected=f"{item.size_bytes} bytes with SHA-256 {item.sha256}",
            found=found,
        )
