"""What can go wrong for a training script, beside the errors that the coordinator names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lastgood.errors
from lastgood.errors import Conflict, LastgoodError

_STANDARD = frozenset({"type", "title", "status", "detail", "instance"})
_KNOWN: Mapping[str, type[LastgoodError]] = {
    known.type: known
    for known in vars(lastgood.errors).values()
    if isinstance(known, type) and issubclass(known, LastgoodError)
}


NO_DOCUMENT = "no problem document"


class RemoteProblem(LastgoodError):
    """{where} answered {http_status}, {problem}: {detail}"""

    type = "remote-problem"


class Unreachable(LastgoodError):
    """{where} does not answer: {reason}."""

    status = 503
    type = "unreachable"


class StageBusy(Conflict):
    """{stage} is written by {holder} (generation {generation}, its lease ends at
    {lease_expires_at}). Wait for it, or say after={generation} if you know that it is dead: that
    fences it."""

    type = "stage-busy"


class FileChanged(LastgoodError):
    """{path} ({file}) changed while it was saved: {what}. Write each checkpoint into files that
    nobody rewrites before the save is over, or take snapshot="copy"."""

    type = "file-changed"


class UnusableFiles(LastgoodError):
    """{where}: {reason}."""

    type = "unusable-files"


class FolderUnreachable(LastgoodError):
    """The store's folder {folder} is not on this machine: mount the shared file system here, or
    let the store take uploads through its endpoint (`direct: false`)."""

    type = "folder-unreachable"


class FolderNotOurs(LastgoodError):
    """Files of this job (uid {uid}) in the store's folder {folder} would be another account's than
    the coordinator's (uid {owner}), which could not delete them: run the job as that account, give
    the store's own folder to a group of both and set its set-group-ID bit (`chmod g+s`), or let the
    store take uploads through its endpoint (`direct: false`)."""

    type = "folder-not-ours"


class DestinationTaken(LastgoodError):
    """{dest} {reason}; a download goes into a folder that is empty or not there."""

    type = "destination-taken"


class CorruptObject(LastgoodError):
    """{path} of {checkpoint} is damaged: expected {expected}, found {found}. Nothing was put in
    place."""

    type = "corrupt-object"


class Cancelled(LastgoodError):
    """The {what} was cancelled."""

    type = "cancelled"


def problem_of(document: object, http_status: int, where: str) -> LastgoodError:
    """The error that a problem document (RFC 9457) stands for.

    Its class is the one of `lastgood.errors` with the document's `type`, its message the
    document's `detail`, its `facts` whatever else the document says. RemoteProblem for an unknown
    type, and for an answer that is no problem document (`document` is then its text).
    """
    fields = document if isinstance(document, dict) else {"detail": str(document)[:500]}
    kind = str(fields.get("type", NO_DOCUMENT)).rsplit("/", 1)[-1]
    detail = str(fields.get("detail") or fields.get("title") or kind)
    facts = {name: value for name, value in fields.items() if name not in _STANDARD}
    if kind not in _KNOWN:
        error: LastgoodError = RemoteProblem(
            where=where, http_status=http_status, problem=kind, detail=detail
        )
        error.facts |= facts
        return error
    return _with_message(_KNOWN[kind], detail, facts)


def _with_message(kind: type[LastgoodError], message: str, facts: dict[str, Any]) -> LastgoodError:
    # Not through __init__: the message was made where the facts were whole.
    error = kind.__new__(kind, message)
    error.facts = facts
    return error
