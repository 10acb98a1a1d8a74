"""Who runs PostgreSQL: ourselves, or an unprivileged account when we are root.

PostgreSQL refuses to run as root. No account is created for it: an existing unprivileged one is
borrowed, and what it must read is put where it can read.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.stack.errors import StackError

_PREFERRED = ("nobody", "daemon")
_OUTSIDE_ROOTS = (Path("/var/lib"), Path("/var/tmp"))


@dataclass(frozen=True)
class ServerAccount:
    """The operating-system account of the server. `borrowed` is true when we are root."""

    uid: int
    gid: int
    borrowed: bool

    @classmethod
    def current(cls) -> ServerAccount:
        """Return our own account, or as root the first suitable unprivileged one."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), borrowed=False)
        entry = _unprivileged_entry()
        return cls(entry.pw_uid, entry.pw_gid, borrowed=True)

    def popen_arguments(self) -> dict[str, Any]:
        """Return the subprocess arguments that start a program as this account."""
        if not self.borrowed:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give one file or directory to this account."""
        if self.borrowed:
            os.chown(path, self.uid, self.gid)

    def reaches(self, path: Path) -> bool:
        """Tell whether this account may pass through every folder above `path`."""
        return not self.borrowed or all(self._may(parent, 0o1) for parent in path.parents)

    def reads(self, path: Path) -> bool:
        """Tell whether this account reaches and reads the file or directory."""
        wanted = 0o5 if path.is_dir() else 0o4
        return self.reaches(path) and (not self.borrowed or self._may(path, wanted))

    def _may(self, path: Path, wanted: int) -> bool:
        status = path.stat()
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid == self.gid:
            shift = 3
        else:
            shift = 0
        return (stat.S_IMODE(status.st_mode) >> shift) & wanted == wanted


def _unprivileged_entry() -> pwd.struct_passwd:
    for name in _PREFERRED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    for entry in pwd.getpwall():
        if entry.pw_uid != 0:
            return entry
    raise StackError("no unprivileged account exists to run PostgreSQL; run as a normal user")


def make_private(path: Path, account: ServerAccount) -> Path:
    """Create a folder of ours that others cannot list and only a borrowed account passes through.

    Raises StackError when something of somebody else already lies there.
    """
    mode = 0o711 if account.borrowed else 0o700
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise StackError(f"{path} exists and is not a folder of ours; remove it") from None
    path.chmod(mode)
    return path


def outside_folder(name: str, account: ServerAccount) -> Path:
    """Return a private folder that the account reaches, for what lies in a root-only checkout."""
    for root in _OUTSIDE_ROOTS:
        if root.is_dir() and os.access(root, os.W_OK) and account.reaches(root / name):
            return make_private(root / name, account)
    places = " or ".join(map(str, _OUTSIDE_ROOTS))
    raise StackError(
        f"the account that runs PostgreSQL cannot reach this checkout, and {places} cannot "
        "take its files; move the checkout out of the root-only folder, or run as a normal user"
    )
