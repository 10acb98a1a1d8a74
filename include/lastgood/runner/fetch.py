"""Fetch a checkpoint under a lease that somebody else holds, such as the validator for its pod.

    python -m lastgood.runner.fetch FOLDER [MESSAGE]

The environment names the coordinator (`LASTGOOD_URL`), the lease (`LASTGOOD_LEASE`) and its token
(`LASTGOOD_READER_TOKEN`). Whoever acquired the lease renews it and gives it back. What went wrong
is written to MESSAGE as a line of JSON. The exit code is 65 where what was committed is damaged:
other bytes, or an object that is not there; 77 where the lease lets nobody read any more, so that
only another lease helps; 75 for all that may pass.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lastgood.errors import (
    CopyGone,
    FencedGeneration,
    InvalidInput,
    LastgoodError,
    LeaseExpired,
    NotFound,
    RestoreBlocked,
    Unauthenticated,
)
from lastgood.runner.problems import CorruptObject, RemoteProblem
from lastgood.runner.receiving.download import Downloaded, check_free, receive_all
from lastgood.runner.receiving.reading import Lease, Reading
from lastgood.runner.wire.client import new_client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.wire.transport import shown_url
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.retry import Retry
from lastgood.runner.working.stopping import Stop

URL, LEASE, TOKEN = "LASTGOOD_URL", "LASTGOOD_LEASE", "LASTGOOD_READER_TOKEN"
CORRUPT, MAY_PASS, NO_LEASE = 65, 75, 77  # sysexits' EX_DATAERR, EX_TEMPFAIL and EX_NOPERM
# What a store says, or the coordinator for it, of an object that the lease's manifest names.
_NOT_THERE = frozenset({"NoSuchKey", "NoSuchVersion", "key-missing", "object-short"})
_ENDED = (LeaseExpired, NotFound, Unauthenticated, CopyGone, RestoreBlocked, FencedGeneration)


class LentReading(Reading):
    """A lease of somebody else, who renews it; its URLs are taken anew when they end."""

    def __init__(self, coordinator: Coordinator, lease: str) -> None:
        self._coordinator = coordinator
        self._id = lease
        self._lease = self._taken()

    def replace(self, refused_url: str, path: str) -> str:
        """The object's URL as the lease gives it now."""
        self._lease = self._taken()
        return self.request_for(path)[0]

    def close(self) -> None:
        """Nothing: the lease is not ours to end."""

    def _taken(self) -> Lease:
        answer = self._coordinator.ask("GET", f"readers/{self._id}")
        lease = Lease.from_json(answer, self._coordinator.token)
        if lease.how == "direct" and not Path(lease.direct_path or "").is_dir():
            return lease.through_the_coordinator()
        return lease


def fetch(
    url: str, lease: str, token: str, dest: Path, *, retry: Retry | None = None
) -> Downloaded:
    """Fetch what the lease lets its holder read into `dest`, every byte verified. Raises as
    `Workload.download` does, LeaseExpired, and CorruptObject also for an object that is not in the
    store, or shorter there."""
    check_free(dest)
    with new_client() as client:
        coordinator = Coordinator.at(url, token, retry=retry or Retry(), client=client)
        asking = coordinator.until(Stop())
        reading = LentReading(asking, lease)
        with _absence_told(reading.lease, coordinator):
            return receive_all(asking, reading, dest, pace=Pace(), progress=None)


@contextmanager
def _absence_told(lease: Lease, coordinator: Coordinator) -> Iterator[None]:
    """Tell an object that is not in the store as damage: no lease would have been given without it,
    and nothing may delete it while the lease lasts."""
    try:
        yield
    except RemoteProblem as refused:
        if refused.facts["problem"] not in _NOT_THERE:
            raise
        where = refused.facts["where"]
        urls = {shown_url(coordinator.absolute(url)): path for path, url in lease.urls.items()}
        raise _absent(lease, urls.get(where, where), str(refused)) from refused
    except FileNotFoundError as error:
        folder = Path(lease.direct_path or os.devnull)
        if not folder.is_dir() or not Path(str(error.filename)).is_relative_to(folder):
            raise
        path = str(Path(str(error.filename)).relative_to(folder))
        raise _absent(lease, path, str(error)) from error


def _absent(lease: Lease, path: str, found: str) -> CorruptObject:
    item = next((one for one in lease.manifest.objects if one.path == path), None)
    size = "" if item is None else f" of {item.size_bytes} bytes"
    return CorruptObject(
        path=path, checkpoint=lease.checkpoint.id, expected=f"an object{size}", found=found
    )


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Fetch as the environment says; the exit code."""
    folder, *message = arguments
    try:
        missing = [name for name in (URL, LEASE, TOKEN) if not environment.get(name)]
        if missing:
            raise InvalidInput(where=missing[0], reason="is not set")
        fetch(environment[URL], environment[LEASE], environment[TOKEN], Path(folder))
    except CorruptObject as error:
        return _told(message, error.type, str(error), CORRUPT)
    except _ENDED as error:
        return _told(message, error.type, str(error), NO_LEASE)
    except (LastgoodError, OSError) as error:
        return _told(message, getattr(error, "type", type(error).__name__), str(error), MAY_PASS)
    return 0


def _told(message: list[str], kind: str, detail: str, code: int) -> int:
    sys.stderr.write(f"{kind}: {detail}\n")
    for path in message:
        Path(path).write_text(json.dumps({"type": kind, "detail": detail[:1000]}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
