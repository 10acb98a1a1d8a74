"""Joining what a store lists with what the catalog expects, key by key, in one pass.

Keys come in their order; memory is the current key and the current prefix. Every listed byte leaves
here in exactly one line of the byte equation, and every disagreement with a cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lastgood.catalog.reconciliation.inventory import ExpectedObject
from lastgood.flows.inventories.owners import Belonging, Owners, is_kept_inventory
from lastgood.rules.byte_equation import Line
from lastgood.rules.layout import ControlKey, parse_key
from lastgood.rules.quantities import counted
from lastgood.stores.base import PendingUpload, StoredObject


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
    `unit` names what it belongs to: an attempt's or a stage's prefix, or a folder. `unreadable`:
    nobody can restore a present copy's object, since it lies hidden and no version names it."""

    project: str
    line: Line
    size_bytes: int
    key: str
    unit: str
    cause: Cause | None = None
    detail: str = ""
    unreadable: bool = False


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


_UPLOAD_LINES = (Line.OPEN, Line.SEALED, Line.FAILED_EVIDENCE, Line.INCOMPLETE)
_HIDDEN_STATES = ("quarantined", "deleting")


def settle(
    key: str,
    listed: list[StoredObject],
    wanted: ExpectedObject | None,
    owners: Owners,
    *,
    hides: bool,
) -> Iterator[Entry | Absence]:
    """One Entry for every object that is listed under a key, and one Absence if the expected one is
    not as it should be. Keys come ascending, as `owners` wants them. `hides`: the store makes
    quarantined objects unreadable under their key."""
    if listed:
        yield from _same_key(key, listed, wanted, owners, hides)
    elif wanted is not None:
        yield from _absent(wanted, owners)


def _absent(wanted: ExpectedObject, owners: Owners) -> Iterator[Absence]:
    if wanted.copy_state != "deleting":
        place = owners.belongs(wanted.key)
        yield Absence(place.project, wanted.size_bytes, wanted.key, place.unit, Cause.MISSING)


def _same_key(
    key: str,
    group: list[StoredObject],
    wanted: ExpectedObject | None,
    owners: Owners,
    hides: bool,
) -> Iterator[Entry | Absence]:
    found = None if wanted is None else _match(wanted, group)
    place = owners.belongs(key)
    if wanted is not None:
        if found is None:
            yield from _absent(wanted, owners)
        else:
            yield from _expected(wanted, found, place, hides)
    for index, item in enumerate(group):
        if item is not found:
            is_second = found is not None or any(_is_current(one) for one in group[:index])
            # Versions of a key are no repetition of it: one lies over what was committed.
            is_repeat = is_second and item.version_id is None
            yield _unexpected(item, place, is_repeat=is_repeat, lies_over=found)


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
    wanted: ExpectedObject, found: StoredObject, place: Belonging, hides: bool
) -> Iterator[Entry | Absence]:
    key, size_bytes, state = wanted.key, found.size_bytes, wanted.copy_state
    is_whole = size_bytes == wanted.size_bytes or state == "deleting"
    line = place.line(key, found, expected=is_whole)
    cause, detail, unreadable = None, "", False
    if not is_whole:
        cause, detail = Cause.SIZE_DIFFERS, f"{size_bytes} bytes, not {wanted.size_bytes}"
        if state == "present" and found.hidden:
            detail += ", and hidden"
        yield Absence(place.project, wanted.size_bytes, key, place.unit, cause, detail)
    elif state != "deleting" and found.hidden != (hides and state in _HIDDEN_STATES):
        where = "hidden" if found.hidden else "readable"
        cause, detail = Cause.MISPLACED, f"{state}, but {where}"
        unreadable = found.hidden and state == "present" and found.version_id is None
    elif line is Line.NONCURRENT:
        cause, detail = Cause.MISPLACED, "another version lies over it"
    yield Entry(place.project, line, size_bytes, key, place.unit, cause, detail, unreadable)


def _unexpected(
    item: StoredObject, place: Belonging, *, is_repeat: bool, lies_over: StoredObject | None
) -> Entry:
    """A listed object that no copy's record means; `lies_over` is what one does mean, of that
    key."""
    line = place.line(item.key, item)
    cause, detail = None, ""
    if item.foreign is not None:
        line, cause, detail = Line.UNEXPLAINED, Cause.FOREIGN, item.foreign
    elif line is Line.UNEXPLAINED:
        cause, detail = _why_unexplained(item, place, is_repeat=is_repeat)
        if cause is Cause.UNTRACKED and lies_over is not None:
            detail = "written over the version that was committed"
    return Entry(place.project, line, item.size_bytes, item.key, place.unit, cause, detail)


def _why_unexplained(item: StoredObject, place: Belonging, *, is_repeat: bool) -> tuple[Cause, str]:
    if is_repeat:
        return Cause.DUPLICATE, "hidden" if item.hidden else "readable"
    if isinstance(parse_key(item.key), ControlKey):
        return Cause.UNKNOWN_CONTROL, ""
    if place.owner is not None:
        if place.owner.attempt == "closed":
            return Cause.LEFT_BEHIND, "the attempt is closed"
        if place.owner.copy in ("deleting", "deleted"):
            return Cause.LEFT_BEHIND, f"the copy is {place.owner.copy}"
        if place.owner.copy == "lost":
            return Cause.UNTRACKED, "the copy was recorded as lost with the store"
    return Cause.UNTRACKED, ""


def settle_upload(upload: PendingUpload, owners: Owners) -> Entry:
    """The Entry of a pending upload, with the bytes of its parts."""
    place = owners.belongs(upload.key)
    line = place.line(upload.key, pending_upload=True)
    cause, detail = None, ""
    if line not in _UPLOAD_LINES and not is_kept_inventory(place.owner):
        line, cause = Line.UNEXPLAINED, Cause.UNKNOWN_UPLOAD
        detail = f"upload {upload.upload_id}, {counted(upload.parts, 'part')}"
    return Entry(place.project, line, upload.part_bytes_held, upload.key, place.unit, cause, detail)
