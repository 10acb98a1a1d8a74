"""Killing a process at each step that it takes in a file store."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import lastgood.stores.file as file_module
from lastgood.stores import attestations, file_uploads, folders, tree, upload_folder, walk

MODULES: list[ModuleType] = [
    attestations,
    file_module,
    file_uploads,
    folders,
    tree,
    upload_folder,
    walk,
]
# What changes the disk, or opens the way to it; reading steps only repeat the state before.
STEPS = frozenset(
    ("open", "mkdir", "unlink", "rmdir", "rename", "link", "pwrite", "fsync", "fdatasync", "fchmod")
)


class _KilledAt:
    """The `os` module as seen by the stores, until step number `step`."""

    def __init__(self, step: int) -> None:
        self._left = step

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in STEPS:
            return real

        def counted(*args: Any, **kwargs: Any) -> Any:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            return real(*args, **kwargs)

        return counted


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Run the action in a process of its own, killed before its step number `step`; False if the
    action had fewer steps and came to its end."""
    child = os.fork()
    if child == 0:
        try:
            hooked = _KilledAt(step)
            for module in MODULES:
                module.os = hooked  # type: ignore[attr-defined]
            action()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False
