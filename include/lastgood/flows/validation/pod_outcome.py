"""What the status of a pod says of the command that ran in it.

Only the command itself can prove something, by its exit code and its report. Whatever Kubernetes
does to a pod, or fails to do for it, proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastgood.rules.contract_pod import COMMAND, FETCH
from lastgood.validators.isolation import Outcome

_OUT_OF_MEMORY, _DEADLINE, _EVICTED = "OOMKilled", "DeadlineExceeded", "Evicted"
_DISK_WORDS = ("ephemeral", "emptyDir")
_NEVER_RAN = ("StartError", "ContainerCannotRun")
_TEXT_LIMIT = 500
_SIGNALS_FROM = 128


@dataclass(frozen=True, slots=True)
class PodRun:
    """How a pod went: its last status as the API has it (empty if it is not known), what kept us
    from learning more, what its command printed last, and whether there was a pod at all."""

    name: str
    status: Mapping[str, Any]
    error: str | None = None
    node: str | None = None
    last_lines: Sequence[str] = ()
    made: bool = True


@dataclass(frozen=True, slots=True)
class PodEnd:
    """`outcome` is of the command, `report` what it left behind. `fetched` is the exit code of the
    first container with its message; None if it was not told."""

    outcome: Outcome
    report: str
    fetched: int | None
    fetch_message: str
    fetch_seconds: float


def told_by(run: PodRun) -> PodEnd:
    """The end of a pod."""
    status = run.status
    fetch = _ended(status.get("initContainerStatuses"), FETCH)
    command = _ended(status.get("containerStatuses"), COMMAND)
    return PodEnd(
        outcome=_outcome(run, fetch, command),
        report=str(command.get("message") or ""),
        fetched=_code(fetch),
        fetch_message=_shown(fetch.get("message")),
        fetch_seconds=_seconds(fetch),
    )


def _outcome(run: PodRun, fetch: Mapping[str, Any], command: Mapping[str, Any]) -> Outcome:
    """The pod's own end comes first: a command that was evicted has an exit code, too."""
    lines, reason = tuple(run.last_lines), str(run.status.get("reason") or "")
    said = _shown(f"{reason}: {run.status.get('message') or ''}")
    seconds = _seconds(command)
    code = _code(command)
    if reason == _DEADLINE:
        return Outcome("time", seconds=seconds, last_lines=lines)
    if _OUT_OF_MEMORY in (command.get("reason"), fetch.get("reason")):
        return Outcome("memory", seconds=seconds, last_lines=lines)
    if reason == _EVICTED and any(word in said for word in _DISK_WORDS):
        return Outcome("disk", seconds=seconds, last_lines=lines)
    if reason or (code is None and command):
        return Outcome("lost", reason=f"the pod was {said}", last_lines=lines)
    if command.get("reason") in _NEVER_RAN:
        return Outcome("not-started", reason=_shown(command.get("message")), last_lines=lines)
    if code is None:
        vanished = run.made and not run.status
        ended = "lost" if vanished or _code(fetch) == 0 else "not-started"
        return Outcome(ended, reason=_shown(_why(run)), last_lines=lines)
    if code > _SIGNALS_FROM and command.get("signal"):
        return Outcome("signal", signal=str(command["signal"]), seconds=seconds, last_lines=lines)
    return Outcome("exit", code=code, seconds=seconds, last_lines=lines)


def _why(run: PodRun) -> str:
    """What Kubernetes says of a pod that did not come to its command."""
    words = [run.error or "its command did not end"]
    words += [
        f"{condition.get('reason')}: {condition.get('message')}"
        for condition in run.status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") != "True"
    ]
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in run.status.get(key) or ():
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
                words.append(f"{one.get('name')} {waiting['reason']}: {waiting.get('message')}")
    return "; ".join(words)


def _ended(statuses: Any, name: str) -> Mapping[str, Any]:
    for one in statuses or ():
        if one.get("name") == name:
            state: Mapping[str, Any] = one.get("state") or {}
            return state.get("terminated") or {}
    return {}


def _code(terminated: Mapping[str, Any]) -> int | None:
    code = terminated.get("exitCode")
    return code if type(code) is int else None


def _seconds(terminated: Mapping[str, Any]) -> float:
    begin, end = terminated.get("startedAt"), terminated.get("finishedAt")
    if not begin or not end:
        return 0.0
    return max(0.0, (_instant(end) - _instant(begin)).total_seconds())


def _instant(text: Any) -> datetime:
    return datetime.fromisoformat(str(text))


def _shown(text: Any) -> str:
    words = " ".join(str(text or "").replace("\0", "\\0").split())
    return words if len(words) <= _TEXT_LIMIT else words[: _TEXT_LIMIT - 1] + "…"
