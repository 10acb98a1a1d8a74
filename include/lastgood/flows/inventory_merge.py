"""Joining what a store lists with what the catalog expects, key by key, in one pass.

Both sides come in the order of their keys; memory is the current key and the current prefix. Every
listed byte leaves here in exactly one line of the byte equation, and every disagreement with a
cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from lastgood.catalog.inventory import ExpectedObject, OwnedPrefix
from lastgood.flows.inventory_lines import Line
from lastgood.rules.layout import (
    CHECKPOINTS_PREFIX,
    CONTROL_PREFIX,
    ControlKey,
    ControlKind,
    parse_key,
)
from lastgood.stores.base import PendingUpload, StoredObject

SHARED = "-"
"""Stands where no project owns a key; no project can have this name."""


class Cause(StrEnum):
    """Why a key, or a number of bytes, is not explained."""

    MISSING = "missing"  # a copy's object is not in the store
    SIZE_DIFFERS = "size-differs"  # it is there with another size: truncated, or replaced
    MISPLACED = "misplaced"  # hidden although present, or readable although quarantined
    UNTRACKED = "untracked"  # nothing in the catalog knows the key
    LEFT_BEHIND = "left-behind"  # below the prefix of a closed attempt or of a deleted copy
    FOREIGN = "foreign"  # no regular object: a symbolic link, a pipe, a name that is not UTF-8
    DUPLICATE = "duplicate"  # the same key a second time, readable and hidden
    UNKNOWN_UPLOAD = "unknown-upload"  # a pending upload that no attempt owns
    UNKNOWN_CONTROL = "unknown-control"  # a control key of a stage that the catalog does not know
    ACCOUNTING_GAP = "accounting-gap"  # the backend accounts for bytes that no listing shows


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one listed object or upload. `cause` is None where all is as it should be.
    `unit` names what it belongs to: an attempt's or a stage's prefix, or a folder."""

    project: str
    line: Line
    size_bytes: int
    key: str
    unit: str
    cause: Cause | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Absence:
    """An expected object that the listing does not show as it should be. For a wrong size, the
    bytes that lie there come as an Entry of their own."""

    project: str
    expected_bytes: int
    key: str
    unit: str
    cause: Cause
    detail: str = ""


_ATTEMPT_LINES = {
    "open": Line.OPEN,
    "sealed": Line.SEALED,
    "failed": Line.FAILED_EVIDENCE,
    "incomplete": Line.INCOMPLETE,
    "committed": Line.SEALED,  # committed to another store: this one's bytes are not a copy yet
}
_COPY_LINES = {
    "present": Line.COMMITTED,
    "quarantined": Line.QUARANTINED,
    "deleting": Line.QUARANTINED,
}
_HIDDEN_STATES = ("quarantined", "deleting")


class Owners:
    """Answers, for keys in ascending order, which prefix owns each."""

    def __init__(self, owned: Iterable[OwnedPrefix], projects: Collection[str]) -> None:
        self._coming = iter(owned)
        self._current: OwnedPrefix | None = None
        self._next = next(self._coming, None)
        self._projects = projects

    def of(self, key: str) -> OwnedPrefix | None:
        """The owner of `key`, or None."""
        while self._next is not None and self._next.prefix <= key:
            self._current, self._next = self._next, next(self._coming, None)
        if self._current is not None and key.startswith(self._current.prefix):
            return self._current
        return None

    def project_of(self, key: str) -> str:
        """The project whose part of the store `key` lies in, or SHARED."""
        for folder in (CHECKPOINTS_PREFIX, f"{CONTROL_PREFIX}stages/"):
            if key.startswith(folder):
                project = key[len(folder) :].partition("/")[0]
                return project if project in self._projects else SHARED
        return SHARED


def merge(
    listed: Iterable[StoredObject],
    expected: Iterable[ExpectedObject],
    owners: Owners,
    *,
    hides: bool,
) -> Iterator[Entry | Absence]:
    """One Entry for every listed object, and one Absence for every expected one that is not as it
    should be. `hides`: the store makes quarantined objects unreadable under their key."""
    coming = iter(expected)
    awaited = next(coming, None)
    for key, group in groupby(listed, key=attrgetter("key")):
        while awaited is not None and awaited.key < key:
            yield from _absent(awaited, owners)
            awaited = next(coming, None)
        wanted = None
        if awaited is not None and awaited.key == key:
            wanted, awaited = awaited, next(coming, None)
        yield from _same_key(key, list(group), wanted, owners, hides)
    while awaited is not None:
        yield from _absent(awaited, owners)
        awaited = next(coming, None)


def _absent(wanted: ExpectedObject, owners: Owners, detail: str = "") -> Iterator[Absence]:
    if wanted.copy_state == "deleting":
        return
    owner = owners.of(wanted.key)
    unit = owner.prefix if owner else unit_of(wanted.key)
    project = owner.project if owner else owners.project_of(wanted.key)
    yield Absence(project, wanted.size_bytes, wanted.key, unit, Cause.MISSING, detail)


def _same_key(
    key: str,
    group: list[StoredObject],
    wanted: ExpectedObject | None,
    owners: Owners,
    hides: bool,
) -> Iterator[Entry | Absence]:
    found = None if wanted is None else _match(wanted, group)
    owner = owners.of(key)
    if wanted is not None:
        if found is None:
            yield from _absent(wanted, owners)
        else:
            yield from _expected(wanted, found, owner, hides)
    for index, item in enumerate(group):
        if item is not found:
            is_repeat = found is not None or any(_is_current(one) for one in group[:index])
            yield _unexpected(item, owner, owners, is_repeat=is_repeat)


def _match(wanted: ExpectedObject, group: list[StoredObject]) -> StoredObject | None:
    """The listed object that the copy's record means: by version where it names one, else the
    current one, preferring the side of quarantine on which it should lie."""
    regular = [one for one in group if one.foreign is None and not one.is_delete_marker]
    if wanted.version_id is not None:
        return next((one for one in regular if one.version_id == wanted.version_id), None)
    hidden = wanted.copy_state in _HIDDEN_STATES
    regular.sort(key=lambda one: (not one.is_latest, one.hidden != hidden))
    return regular[0] if regular else None


def _is_current(item: StoredObject) -> bool:
    return item.is_latest and not item.is_delete_marker


def _expected(
    wanted: ExpectedObject, found: StoredObject, owner: OwnedPrefix | None, hides: bool
) -> Iterator[Entry | Absence]:
    unit = owner.prefix if owner else unit_of(wanted.key)
    project = owner.project if owner else SHARED
    if found.size_bytes != wanted.size_bytes and wanted.copy_state != "deleting":
        detail = f"{found.size_bytes} bytes, not {wanted.size_bytes}"
        cause = Cause.SIZE_DIFFERS
        yield Absence(project, wanted.size_bytes, wanted.key, unit, cause, detail)
        yield Entry(project, Line.UNEXPLAINED, found.size_bytes, wanted.key, unit, cause, detail)
        return
    line = _COPY_LINES[wanted.copy_state]
    should_hide = hides and wanted.copy_state in _HIDDEN_STATES
    if found.hidden != should_hide and wanted.copy_state != "deleting":
        detail = f"{wanted.copy_state}, but {'hidden' if found.hidden else 'readable'}"
        yield Entry(project, line, found.size_bytes, wanted.key, unit, Cause.MISPLACED, detail)
        return
    yield Entry(project, line, found.size_bytes, wanted.key, unit)


def _unexpected(
    item: StoredObject, owner: OwnedPrefix | None, owners: Owners, *, is_repeat: bool
) -> Entry:
    """A listed object that no copy's record means."""
    key = item.key
    unit = owner.prefix if owner else unit_of(key)
    project = owner.project if owner else owners.project_of(key)
    line, cause, detail = Line.UNEXPLAINED, Cause.UNTRACKED, ""
    if item.foreign is not None:
        cause, detail = Cause.FOREIGN, item.foreign
    elif item.is_delete_marker or not item.is_latest:
        return Entry(project, Line.NONCURRENT, item.size_bytes, key, unit)
    elif owner is not None and owner.owner == "attempt" and owner.state in _ATTEMPT_LINES:
        return Entry(project, _ATTEMPT_LINES[owner.state], item.size_bytes, key, unit)
    elif is_repeat:
        cause, detail = Cause.DUPLICATE, "hidden" if item.hidden else "readable"
    elif isinstance(parsed := parse_key(key), ControlKey):
        if _is_known_control(parsed, owner):
            return Entry(project, Line.CONTROL, item.size_bytes, key, unit)
        cause = Cause.UNKNOWN_CONTROL
    elif owner is not None and owner.state in ("closed", "deleted", "deleting"):
        cause, detail = Cause.LEFT_BEHIND, owner.state
    return Entry(project, line, item.size_bytes, key, unit, cause, detail)


def _is_known_control(key: ControlKey, owner: OwnedPrefix | None) -> bool:
    if key.kind in (ControlKind.CATALOG, ControlKind.INCARNATION):
        return True
    if owner is None or owner.owner != "stage" or key.number is None:
        return False
    newest = owner.generation if key.kind is ControlKind.GENERATION else owner.event
    return key.number <= newest


def merge_uploads(pending: Iterable[PendingUpload], owners: Owners) -> Iterator[Entry]:
    """One Entry for each pending upload, with the bytes of its parts."""
    for upload in pending:
        owner = owners.of(upload.key)
        project = owner.project if owner else owners.project_of(upload.key)
        unit = owner.prefix if owner else unit_of(upload.key)
        if owner is not None and owner.owner == "attempt" and owner.state in _ATTEMPT_LINES:
            line = _ATTEMPT_LINES[owner.state]
            yield Entry(project, line, upload.part_bytes_held, upload.key, unit)
            continue
        yield Entry(
            project,
            Line.UNEXPLAINED,
            upload.part_bytes_held,
            upload.key,
            unit,
            Cause.UNKNOWN_UPLOAD,
            f"upload {upload.upload_id}, {upload.parts} parts",
        )


def unit_of(key: str) -> str:
    """What a key without an owner is gathered under: the attempt's prefix that it reads as, else at
    most its first two folders."""
    parsed = parse_key(key)
    if parsed is not None and not isinstance(parsed, ControlKey):
        return parsed.prefix
    folders = key.split("/")[:-1]
    return "/".join(folders[:2]) + "/" if folders else key
