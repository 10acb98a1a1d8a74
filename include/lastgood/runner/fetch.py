"""Fetch a checkpoint under a lease that somebody else holds, such as the validator for its pod.

    python -m lastgood.runner.fetch FOLDER [MESSAGE]

The environment names the coordinator (`LASTGOOD_URL`), the lease (`LASTGOOD_LEASE`) and its token
(`LASTGOOD_READER_TOKEN`). Whoever acquired the lease renews it and gives it back. What went wrong
is written to MESSAGE as a line of JSON; the exit code is 65 for bytes that are not those committed,
75 for all that may pass.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from lastgood.errors import InvalidInput, LastgoodError
from lastgood.runner.problems import CorruptObject
from lastgood.runner.receiving.download import Downloaded, check_free, receive_all
from lastgood.runner.receiving.reading import Lease, Reading
from lastgood.runner.wire.client import new_client
from lastgood.runner.wire.http import Coordinator
from lastgood.runner.working.pace import Pace
from lastgood.runner.working.retry import Retry
from lastgood.runner.working.stopping import Stop

URL, LEASE, TOKEN = "LASTGOOD_URL", "LASTGOOD_LEASE", "LASTGOOD_READER_TOKEN"
CORRUPT, MAY_PASS = 65, 75  # sysexits' EX_DATAERR and EX_TEMPFAIL


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
    `Workload.download` does, and LeaseExpired."""
    check_free(dest)
    with new_client() as client:
        coordinator = Coordinator.at(url, token, retry=retry or Retry(), client=client)
        asking = coordinator.until(Stop())
        return receive_all(asking, LentReading(asking, lease), dest, pace=Pace(), progress=None)


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
