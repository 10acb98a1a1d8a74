"""A folder that the job and the coordinator's workers both see."""

from __future__ import annotations

from pathlib import Path

from lastgood.runner.problems import FolderUnreachable


def shared_folder(path: str | None) -> Path:
    """The folder that the coordinator named, if it can be seen from here. It is never made here:
    where the file system is not mounted, that would write to the wrong disk."""
    if path is None or not Path(path).is_dir():
        raise FolderUnreachable(folder=path)
    return Path(path)
