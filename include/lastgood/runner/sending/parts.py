"""Where the parts of an upload go: through the coordinator's object endpoint, or straight to a
store."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from urllib.parse import quote

from lastgood.errors import GrantExpired
from lastgood.runner.problems import RemoteProblem, problem_of
from lastgood.runner.sending.ticket import Slot, Ticket
from lastgood.runner.wire.carrying import Chunks, put_bytes
from lastgood.runner.wire.http import API, BEAT_TIMEOUT, Coordinator
from lastgood.runner.wire.transport import shown_url, url_has_ended
from lastgood.runner.working.retry import Transient

GRANT_BATCH = 256  # presigned URLs asked for at once, so that the last is used long before it ends
_BYTES_DIFFER = 400  # of a part that was granted for its digest
PartName = tuple[str, int]  # object path and part number
Grant = tuple[str, Mapping[str, str]]  # URL and headers


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A part that the store says it holds; `sha256` where the store proved it."""

    size_bytes: int
    sha256: str | None


class PartSender(Protocol):
    """One way to send parts. All of it may be called from many threads."""

    needs_digest: bool  # a part's SHA-256 has to be known before it is sent

    def send(
        self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None
    ) -> str | None:
        """Send one part as it comes; the SHA-256 that the other end computed, or None if it says
        none. `sha256` is the part's, where it has to be known before. Raises Transient where the
        same part may be sent again."""


class EndpointSender:
    """Parts by `PUT objects/…`: the coordinator hashes what it receives."""

    needs_digest = False

    def __init__(self, coordinator: Coordinator, ticket: Ticket) -> None:
        self._coordinator = coordinator
        self._base = coordinator.absolute(f"{API}/objects/{ticket.attempt}")
        self._attempt = ticket.attempt

    def send(
        self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None
    ) -> str | None:
        url = f"{self._base}/{quote(slot.path)}?part={number}"
        headers = self._coordinator.authorization()
        try:
            answer = put_bytes(
                self._coordinator.client.objects, url, headers, slot.part_size(number), chunks
            )
        except GrantExpired as expired:
            renew_grants(self._coordinator, self._attempt)
            raise Transient(expired) from expired
        try:
            received: str = answer.json()["sha256"]
        except (ValueError, LookupError, TypeError):  # a proxy's page in the place of an answer
            page = problem_of(answer.text, answer.status_code, shown_url(url))
            raise Transient(page) from None
        return received


class PresignedSender:
    """Parts by presigned URLs. They carry no token of ours: the store never sees one."""

    def __init__(self, coordinator: Coordinator, ticket: Ticket, order: Sequence[Slot]) -> None:
        self._coordinator = coordinator
        self._attempt = ticket.attempt
        self.needs_digest = ticket.part_sha256
        self._wanted = [(slot.path, n) for slot in order for n in range(1, slot.parts + 1)]
        self._position = {part: index for index, part in enumerate(self._wanted)}
        self._lock = threading.Lock()
        self._granted: dict[PartName, Grant] = {}
        self._refused_new: set[PartName] = set()

    def send(
        self, slot: Slot, number: int, chunks: Chunks, sha256: str | None = None
    ) -> str | None:
        grant, is_new = self._grant(slot.path, number, sha256)
        url, headers = grant
        try:
            put_bytes(
                self._coordinator.client.objects,
                url,
                headers,
                slot.part_size(number),
                chunks,
                to_s3=True,
            )
        except RemoteProblem as refused:
            status = refused.facts["http_status"]
            if sha256 is not None and status == _BYTES_DIFFER:
                raise Transient(refused) from refused  # on the way, or the file changed
            if not url_has_ended(refused) or (is_new and (slot.path, number) in self._refused_new):
                raise
            if is_new:  # once more: the process may have been stopped between asking and sending
                self._refused_new.add((slot.path, number))
            self._forget_all()  # they were granted at once, and probably ended at once
            raise Transient(refused) from refused
        return None

    def _grant(self, path: str, number: int, sha256: str | None) -> tuple[Grant, bool]:
        """The part's grant, and whether it was asked for just now. One that is made for a digest
        cannot be asked for before that is known."""
        part = path, number
        if sha256 is not None:
            wanted = {"path": path, "numbers": [number], "sha256": [sha256]}
            return self._granted_now([wanted])[part], True
        with self._lock:
            is_new = part not in self._granted
            if is_new:
                first = self._position[part]
                self._granted |= self._ask(self._wanted[first : first + GRANT_BATCH])
            return self._granted.pop(part), is_new

    def _ask(self, parts: Sequence[PartName]) -> dict[PartName, Grant]:
        numbers: dict[str, list[int]] = {}
        for path, number in parts:
            numbers.setdefault(path, []).append(number)
        return self._granted_now(
            [{"path": path, "numbers": listed} for path, listed in numbers.items()]
        )

    def _granted_now(self, wanted: Sequence[Mapping[str, object]]) -> dict[PartName, Grant]:
        answer = self._coordinator.ask(
            "POST", f"checkpoints/{self._attempt}/grants", {"parts": list(wanted)}
        )
        return {
            (grant["path"], grant["number"]): (grant["url"], grant.get("headers") or {})
            for grant in answer["urls"]
        }

    def _forget_all(self) -> None:
        with self._lock:
            self._granted.clear()


def renew_grants(coordinator: Coordinator, attempt: str) -> timedelta:
    """Move the end of the attempt's upload grant; when to do it again. Raises Transient, or why it
    is refused."""
    path = f"checkpoints/{attempt}/grants"
    answer = coordinator.ask_once("POST", path, {"parts": []}, timeout=BEAT_TIMEOUT)
    return answer.renewal_of("grant_expires_at")


def held_parts(
    coordinator: Coordinator, attempt: str, path: str | None = None
) -> dict[PartName, HeldPart]:
    """What has arrived of an attempt, or of one of its objects, by object path and part number."""
    query = {"parts": "true"} if path is None else {"parts": "true", "path": path}
    answer = coordinator.ask("GET", f"checkpoints/{attempt}", query=query)
    return {
        (held["path"], part["number"]): HeldPart(part["bytes"], part.get("sha256"))
        for held in answer.get("parts") or []
        for part in held["held"]
    }
