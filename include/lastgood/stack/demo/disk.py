"""The demo's store as the operating system sees it, without the library that is being shown."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol


class Outside(Protocol):
    """A store seen from outside."""

    def bytes_held(self, until: datetime) -> int:
        """All bytes that it held at that instant, as nothing was changed since but by new
        objects."""

    def bytes_of_attempt(self, prefix: str, attempt: str) -> int:
        """What one attempt has in it: its objects, hidden ones too, and its pending uploads."""


@dataclass(frozen=True)
class Disk:
    """A store that is a folder."""

    root: Path

    def bytes_held(self, until: datetime) -> int:
        return bytes_below(self.root, until)

    def bytes_of_attempt(self, prefix: str, attempt: str) -> int:
        return bytes_of_attempt(self.root, prefix, attempt)


_UPLOADS, _QUARANTINE = ".uploads", ".quarantine"


def bytes_below(folder: Path, until: datetime | None = None) -> int:
    """The sizes of all regular files below a folder, a file of many names once; with `until`, only
    of those that were there at that instant, as nothing was changed since but by new files."""
    last = float("inf") if until is None else until.timestamp()
    seen: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
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
