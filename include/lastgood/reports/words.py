"""How numbers, instants and names of the catalog are put into words for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lastgood.rules.forecast import LEAST_DAYS

_HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MOVES = re.compile(f"{_HIDDEN.pattern}|[\n\u2028\u2029]")
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
_LINES = {
    "committed": "Committed",
    "open": "Open",
    "sealed": "Sealed",
    "failed_evidence": "Failed, kept as evidence",
    "quarantined": "Quarantined",
    "incomplete": "Incomplete",
    "noncurrent": "Noncurrent versions",
    "control": "Control",
    "unexplained": "Unexplained",
}
_LINE_NOTES = {
    "committed": "checkpoints with a present copy: objects, manifest, marker",
    "open": "attempts that are being written under a live lease",
    "sealed": "attempts whose commit is being verified",
    "failed_evidence": "attempts whose bytes were wrong",
    "quarantined": "copies in quarantine or being deleted",
    "incomplete": "attempts whose lease ran out, aborted ones, leftover parts",
    "noncurrent": "older versions and delete markers",
    "control": "control keys and the store's own records",
    "unexplained": "nobody's: each is in a finding",
}
_CAUSES = {
    "missing": "a committed object is not in the store",
    "size-differs": "a committed object has another size",
    "misplaced": "readable although quarantined, or hidden although present",
    "untracked": "the catalog does not know these keys",
    "left-behind": "left after a deletion or a closed attempt",
    "foreign": "no regular object",
    "duplicate": "the same key twice",
    "unknown-upload": "a pending upload that no attempt owns",
    "unknown-control": "control keys that no stage of this catalog wrote",
    "accounting-gap": "the backend accounts for bytes that no listing shows",
    "burst of commits": "more commits than the stage's own past lets expect",
    "noncurrent-versions": "older versions of a versioned bucket",
    "delete-markers": "what hides a deleted key of a versioned bucket",
    "pending-parts": "parts of uploads that nobody completed",
    "hard-links": "further names of one file: on disk once",
    "sparse-files": "holes: no blocks on disk below them",
    "symbolic-links": "what they hold lies beside their name: no block on disk",
    "block-rounding": "the last block of a file is not full",
    "deleted-but-open": "a process still has the file open",
    "snapshots": "the file system keeps them",
    "replication-factor": "every byte is stored several times",
    "accounting-delay": "the backend's number is older than the listing",
}
_ADJUSTMENTS = {
    "hard-links": "listed twice: further names of the same file",
    "in-flight": "written or removed while the listing ran",
}


def visible(text: str, *, one_line: bool = False) -> str:
    """Text that a terminal or a page only shows: a key of a store may hold what moves the cursor or
    turns the line around. Such characters are written out (`\\x1b`); of one line, so are its
    breaks."""
    hidden = _MOVES if one_line else _HIDDEN
    return hidden.sub(lambda found: ascii(found[0])[1:-1], text)


def human_bytes(size_bytes: int | None) -> str:
    """A size in three digits and a decimal unit: `1.23 GB`; an unknown one is a dash."""
    if size_bytes is None:
        return "—"
    size, unit = float(size_bytes), 0
    while abs(size) >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    if unit == 0:
        return f"{size_bytes:,} bytes" if size_bytes != 1 else "1 byte"
    digits = 2 if abs(size) < 9.995 else 1 if abs(size) < 99.95 else 0
    return f"{size:.{digits}f} {_UNITS[unit]}"


def exact(number: float | None) -> str:
    """A whole number with its thousands apart; an unknown one is a dash."""
    return "—" if number is None else f"{number:,}"


def share(part: int, whole: int) -> str:
    """A share in percent; a small one is not called zero."""
    if not whole or not part:
        return "0 %" if not part else "—"
    percent = 100 * part / whole
    return "< 0.1 %" if abs(percent) < 0.1 else f"{percent:.1f} %"


def instant(at: datetime | str | None) -> str:
    """An instant to the second, in UTC; an unknown one is a dash."""
    if at is None:
        return "—"
    known = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def lasting(seconds: float | timedelta | None) -> str:
    """A length of time in its two largest units: `3 d 4 h`; an unknown one is a dash."""
    if seconds is None:
        return "—"
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    sign, left = ("-" if left < 0 else ""), abs(left)
    if left < 60:
        return f"{sign}{left:.0f} s"
    lengths = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(index for index, (_, length) in enumerate(lengths) if left >= length)
    parts = []
    for unit, length in lengths[first : first + 2]:
        count, left = divmod(int(left), length)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts)


def figure(value: object) -> str:
    """A metric's value to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def outlook(growth: Mapping[str, Any]) -> str:
    """A forecast in words."""
    days = growth["days"]
    match growth["outlook"]:
        case "not-enough-days":
            return f"not known: {days} of {LEAST_DAYS} days are reported that a forecast needs"
        case "no-mark":
            return "no hard mark is known"
        case "reached":
            return "it stands above the hard mark now"
        case "not-growing":
            return f"not reached: nothing grew over {days} days"
        case "beyond-horizon":
            return "not within ten years"
    return f"{growth['hard_reached_on']}, if it grows as over the last {days} days"


def line_name(line: str) -> str:
    """A line of the byte equation."""
    return _LINES.get(line, line)


def line_note(line: str) -> str:
    """What is in a line of the byte equation."""
    return _LINE_NOTES.get(line, "")


def cause_note(cause: str) -> str:
    """What the cause of a finding means."""
    return _CAUSES.get(cause, "")


def adjustment_note(adjustment: str) -> str:
    """Why a listing and the backend's sum differ."""
    return _ADJUSTMENTS.get(adjustment, adjustment)
