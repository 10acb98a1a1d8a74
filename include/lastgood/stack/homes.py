"""Where the files of an embedded server lie, and whose they are while it runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import IO

from lastgood.stack.account import ServerAccount, make_private, outside_folder
from lastgood.stack.errors import DataDirInUse


def home_of(data_dir: Path, account: ServerAccount) -> Path:
    """Return the folder of the server's files: `data_dir`, if the server's account reaches it.

    Otherwise it is a private folder under /var/lib, named by a digest of `data_dir`.
    """
    data_dir = make_private(data_dir.absolute(), account).resolve()
    if account.reaches(data_dir):
        return data_dir
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return outside_folder(f"lastgood-data-{digest}", account)


def acquire_lock(home: Path) -> IO[bytes]:
    """Hold the folder until the returned file is closed or this process ends.

    Raises DataDirInUse when another living process holds it.
    """
    lock = (home / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DataDirInUse(home) from None
    return lock
