"""What keeps a program from everything but its own folder: namespaces, Landlock, mounts.

Each layer is used where the platform allows it, and what came of it is told: a receipt says
whether a network was in reach.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lastgood.validators import kernel, refusals
from lastgood.validators.new_root import enter_new_root

SHARED_MEMORY = "/dev/shm"
SHARED_MEMORY_BYTES = 64 << 20
_INSIDE_ID = 1000  # no root inside the namespace: a program started there has no capabilities
_INSIDE_REAL_ID = 1001
_FIRST_UNUSED_ID = 2_000_000_000  # plus a process' id: a user of which nothing else runs
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/opt/rocm",
    "/etc/alternatives", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd",
)  # fmt: skip
_DEVICES_READ = ("/dev/random", "/dev/urandom", "/dev/zero")
_DEVICES_WRITTEN = ("/dev/null",)

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_VERSION = (1 << 13) - 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract sockets and signals to what is outside


@dataclass(slots=True)
class Confinement:
    """What was in force."""

    processes: bool = False  # an own namespace: all of the group dies with its first process
    network: str = "open"  # "none" (an own namespace), "no TCP" (Landlock), or "open"
    files: str = "open"  # "landlock", "read-only mounts" or "open"
    sockets: str = "open"  # those with names in files: "own" (no other is in sight), "none", "open"
    attributes: str = "open"  # modes and times outside: "read-only mounts", "refused", "open"
    segments: str = "open"  # System V's memory and queues: "none", "open"
    shared_memory: bool = False  # an own, small one
    users: bool = False  # an own namespace
    as_root: bool = False  # who started it is root

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def enter_namespaces(
    folder: str, reads: Iterable[str] = (), without: Collection[str] = ()
) -> Confinement:
    """Put this process' future children into namespaces of their own, as many as are allowed.

    What they are not given is out of sight, and all mounts but `folder` become read-only: Landlock
    lets the owner of a file change its mode and times, and root owns most files; and no layer but
    sight keeps a program from a socket that has a name. The process must have one thread. `without`
    leaves out "namespaces", "new root", "landlock" or "filter", as a platform does that has none.
    Answers what will be in force for a program that calls `confine_files`.
    """
    told = Confinement(as_root=os.geteuid() == 0)
    version = 0 if "landlock" in without else _landlock_version()
    if version:
        told.files = "landlock"
    if "namespaces" not in without and _leave_namespaces(told):
        told.processes, told.network = True, "none"
        with suppress(OSError):
            _raise_loopback()
        with suppress(OSError):
            kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
            _confine_mounts(folder, reads, told, without)
        if told.attributes == "read-only mounts" and not version:
            told.files = "read-only mounts"
    elif version >= 4:
        told.network = "no TCP"
    if "filter" not in without and refusals.known():
        told.sockets = "none" if told.sockets == "open" else told.sockets
        told.attributes = "refused" if told.attributes == "open" else told.attributes
        told.segments = "none"
    return told


def _confine_mounts(
    folder: str, reads: Iterable[str], told: Confinement, without: Collection[str]
) -> None:
    if "new root" not in without:
        with suppress(OSError):
            paths = (*_SYSTEM, *_DEVICES_READ, *_DEVICES_WRITTEN, *_known_as(), *reads)
            enter_new_root(paths, folder)
            told.sockets, told.attributes = "own", "read-only mounts"
    with suppress(OSError):
        _mount_shared_memory()
        told.shared_memory = True
    if told.sockets == "own":
        return
    with suppress(OSError):
        _mount_all_read_only(folder, told)
        told.attributes = "read-only mounts"


def _leave_namespaces(told: Confinement) -> bool:
    spaces = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNS
    for leave in (_unshare_as_user, kernel.unshare):
        with suppress(OSError):
            leave(spaces)
            told.users = leave is _unshare_as_user
            return True
    return False


def _unshare_as_user(spaces: int) -> None:
    user, group = os.geteuid(), os.getegid()
    users = f"{_INSIDE_ID} {user} 1"
    if user == 0:
        users += f"\n{_INSIDE_REAL_ID} {_unused_id()} 1"
    with _from_outside(os.getpid(), users, f"{_INSIDE_ID} {group} 1"):
        kernel.unshare(kernel.CLONE_NEWUSER | spaces)


@contextmanager
def _from_outside(process: int, users: str, groups: str) -> Iterator[None]:
    """Map the users of the namespace that the process enters in this block: only from outside may
    two of them be mapped."""
    inside, outside = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(outside)
        try:
            if os.read(inside, 1):
                _write_maps(process, users, groups)
                os._exit(0)
        finally:
            os._exit(1)
    os.close(inside)
    try:
        yield
        os.write(outside, b"!")
    finally:
        os.close(outside)
        _, status = os.waitpid(helper, 0)
    if status != 0:
        raise PermissionError("the users of the new namespace cannot be mapped")


def _write_maps(process: int, users: str, groups: str) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        Path(f"/proc/{process}/{name}").write_text(text)


def _unused_id() -> int:
    return _FIRST_UNUSED_ID + os.getpid()


def count_as_another_user(told: Confinement) -> None:
    """Root is bound by no limit of processes: have this process counted as another user's. It still
    owns what root owns, so that it can read it."""
    if not told.as_root:
        return
    if told.users:
        os.setresuid(_INSIDE_REAL_ID, _INSIDE_ID, _INSIDE_ID)
    else:
        os.setresuid(_unused_id(), 0, 0)
        kernel.drop_capabilities()


def _raise_loopback() -> None:
    """Ranks of one machine talk over 127.0.0.1, which is down in a new namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _mount_shared_memory() -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    size = f"size={SHARED_MEMORY_BYTES},mode=1777"
    kernel.mount("lastgood", SHARED_MEMORY, "tmpfs", flags, size)


def _mount_all_read_only(folder: str, told: Confinement) -> None:
    kernel.mount(folder, folder, None, kernel.MS_BIND)
    kernel.set_read_only("/", True, recursive=True)
    kernel.set_read_only(folder, False, recursive=False)
    if told.shared_memory:
        kernel.set_read_only(SHARED_MEMORY, False, recursive=False)


def _landlock_version() -> int:
    with suppress(OSError):
        return kernel.landlock_version()
    return 0


def confine_files(told: Confinement, folder: str, reads: Iterable[str]) -> None:
    """Submit this process to Landlock where the kernel has it: it writes below `folder` alone, and
    reads that, the system, this interpreter and `reads`."""
    kernel.gain_no_privileges()
    if told.segments == "none":
        refusals.refuse_calls(
            sockets=told.sockets == "none", attributes=told.attributes == "refused"
        )
    if told.files != "landlock":
        return
    version = _landlock_version()
    handled = _FIRST_VERSION
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        handled |= right if version >= since else 0
    network = _TCP if told.network == "no TCP" else 0
    ruleset = kernel.landlock_ruleset(version, handled, network, _SCOPES)
    try:
        for path in (*_SYSTEM, *_DEVICES_READ, *interpreter_folders(), *reads):
            _allow(ruleset, path, _READ)
        written = (*_DEVICES_WRITTEN, folder, *((SHARED_MEMORY,) if told.shared_memory else ()))
        for path in written:
            _allow(ruleset, path, handled & ~_IOCTL_DEV)
        kernel.landlock_enforce(ruleset)
    finally:
        os.close(ruleset)


def _known_as() -> list[str]:
    """The interpreter's folders by every name that leads to them, those of links included."""
    names = [sys.prefix, sys.base_prefix, sys.exec_prefix, *interpreter_folders()]
    hop = sys.executable
    while os.path.islink(hop):
        names.append(os.path.dirname(hop))
        hop = os.path.normpath(os.path.join(os.path.dirname(hop), os.readlink(hop)))
    return [*names, os.path.dirname(hop)]


def interpreter_folders() -> list[str]:
    """Where this interpreter has its modules."""
    folders = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    return sorted({os.path.realpath(folder) for folder in folders if os.path.isabs(folder)})


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(opened).st_mode)
        kernel.landlock_allow(ruleset, opened, access if is_folder else access & _OF_FILES)
    finally:
        os.close(opened)
