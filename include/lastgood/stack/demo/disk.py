"""The demo's store as the operating system sees it, without the library that is being shown."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol


class Outside(Protocol):
    """A store seen from outside."""

    def bytes_held(self, until: datetime, inventory: str) -> int:
        """All bytes that it held at that instant, as nothing was changed since but by new objects.
        Then an inventory, whose files have this prefix, had listed and accounted it: of its own
        files those that list were there, and no other, whatever their times say."""

    def bytes_of_attempt(self, prefix: str, attempt: str) -> int:
        """What one attempt has in it: its objects, hidden ones too, and its pending uploads."""


@dataclass(frozen=True)
class Disk:
    """A store that is a folder."""

    root: Path

    def bytes_held(self, until: datetime, inventory: str) -> int:
        held = bytes_below(self.root, until)
        return held - sum(bytes_below(one, until) for one in self._later(inventory))

    def _later(self, inventory: str) -> Iterator[Path]:
        """The files of an inventory that it wrote last, and the records of what was received of
        them. The kernel dates a file by its last tick: the first of them can seem to be older than
        the instant after which it was written."""
        yield from (one for one in (self.root / inventory).glob("*") if is_written_last(one.name))
        for record in (self.root / _ATTESTED).rglob("*"):
            if record.is_file():
                folder, _, name = str(json.loads(record.read_bytes())["key"]).rpartition("/")
                if f"{folder}/" == inventory and is_written_last(name):
                    yield record

    def bytes_of_attempt(self, prefix: str, attempt: str) -> int:
        return bytes_of_attempt(self.root, prefix, attempt)


_UPLOADS, _QUARANTINE, _ATTESTED = ".uploads", ".quarantine", ".attested"


def is_written_last(name: str) -> bool:
    """Whether a file of an inventory, by its name in it, is none of those that list."""
    return not name.startswith("listed-")


def bytes_below(folder: Path, until: datetime | None = None) -> int:
    """The sizes of all regular files below a folder, a file of many names once, or of one file;
    with `until`, only of those that were there at that instant, as nothing was changed since but
    by new files."""
    last = float("inf") if until is None else until.timestamp()
    seen: dict[tuple[int, int], int] = {}
    one = [(str(folder.parent), [], [folder.name])] if folder.is_file() else os.walk(folder)
    for parent, _, names in one:
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            if stat.S_ISREG(status.st_mode) and status.st_mtime <= last:
                seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def bytes_of_attempt(root: Path, prefix: str, attempt: str) -> int:
    """What one attempt has in the store: its objects, hidden ones too, and its pending uploads."""
    published = sum(bytes_below(place / prefix) for place in (root, root / _QUARANTINE))
    pending = sum(
        bytes_below(folder)
        for folder in (root / _UPLOADS).iterdir()
        if folder.is_dir() and _names(folder / "upload.json", attempt)
    )
    return published + pending


def _names(record: Path, attempt: str) -> bool:
    return record.is_file() and attempt in record.read_text()
