"""A reader's lease on a checkpoint: its manifest, where its objects are read, and renewal
meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from lastgood.errors import LastgoodError
from lastgood.rules.manifest import Manifest
from lastgood.runner.checkpoint import Checkpoint
from lastgood.runner.wire.heartbeat import Heartbeat
from lastgood.runner.wire.http import BEAT_TIMEOUT, Answer, Coordinator
from lastgood.runner.working.stopping import Stop

log = logging.getLogger("lastgood.runner")


@dataclass(frozen=True, slots=True)
class Lease:
    """One answer of `POST readers`."""

    id: str
    token: str
    checkpoint: Checkpoint
    manifest: Manifest
    how: str
    direct_path: str | None
    urls: Mapping[str, str]  # by object path
    renew_after: timedelta

    @classmethod
    def from_json(cls, answer: Answer, token: str | None = None) -> Lease:
        """`token`: of a lease that somebody else acquired."""
        return cls(
            id=answer["lease"],
            token=token or answer["token"],
            checkpoint=Checkpoint.from_json(answer["checkpoint"]),
            manifest=Manifest.parse(answer["manifest"]),
            how=answer["how"],
            direct_path=answer.get("direct_path"),
            urls={item["path"]: item["url"] for item in answer["objects"]},
            renew_after=answer.renewal_of("expires_at"),
        )

    def through_the_coordinator(self) -> Lease:
        """The same, for a machine that does not have the store's own folder."""
        return replace(self, how="endpoint", direct_path=None)


class Reading:
    """A lease that is renewed until it is closed, and its URLs with it."""

    def __init__(
        self, coordinator: Coordinator, workload: str, stage: str, which: str, reader: str
    ) -> None:
        self._coordinator = coordinator
        self._asked = {
            "workload": workload,
            "stage": stage,
            "reader": reader,
        }
        self._lock = threading.Lock()
        self._lease = self._acquire(which)
        self._beat = Heartbeat(
            self._renew, self._lease.renew_after, coordinator.stop.request, name="reader"
        )

    @property
    def lease(self) -> Lease:
        return self._lease

    def request_for(self, path: str) -> tuple[str, dict[str, str]]:
        """The URL and the headers that read an object. A presigned URL gets no token of ours."""
        lease = self._lease
        url = self._coordinator.absolute(lease.urls[path])
        if lease.how == "presigned":
            return url, {}
        return url, self._coordinator.bearing(lease.token).authorization()

    def replace(self, refused_url: str, path: str) -> str:
        """Take new URLs on a new lease, and answer the object's: a URL ends with the lease that it
        was given with."""
        with self._lock:
            if self.request_for(path)[0] == refused_url:  # no other thread did
                old = self._lease
                self._lease = self._acquire(old.checkpoint.position)
                self._release(old)
            return self.request_for(path)[0]

    def close(self) -> None:
        self._beat.close()
        self._release(self._lease)

    def _acquire(self, which: str) -> Lease:
        body = self._asked | {"checkpoint": which}
        return Lease.from_json(self._coordinator.ask("POST", "readers", body))

    def _renew(self) -> timedelta:
        lease = self._lease
        try:
            answer = self._coordinator.bearing(lease.token).ask_once(
                "POST", f"readers/{lease.id}/renew", timeout=BEAT_TIMEOUT
            )
        except LastgoodError:
            if lease is self._lease:
                raise
            return self._lease.renew_after  # the other was replaced meanwhile, and given back
        return answer.renewal_of("expires_at")

    def _release(self, lease: Lease) -> None:
        try:
            self._coordinator.bearing(lease.token).until(Stop()).ask(
                "DELETE", f"readers/{lease.id}"
            )
        except LastgoodError as error:
            # It ends by itself; what was read is read.
            log.warning("reader lease %s was not released: %s", lease.id, error)


@contextmanager
def reading(
    coordinator: Coordinator, workload: str, stage: str, which: str, reader: str
) -> Iterator[Reading]:
    """A lease on a checkpoint ("latest", or workload/stage/generation.sequence) for the block."""
    lease = Reading(coordinator, workload, stage, which, reader)
    try:
        yield lease
    finally:
        lease.close()
