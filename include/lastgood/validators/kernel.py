"""The few Linux calls of confinement that Python's standard library does not have.

Each raises OSError; on another platform all raise it with ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19

_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_NO_ROOT_FOR_GOOD = 0b1111  # user 0 is given no capabilities, neither by exec nor by setuid
_CAPABILITIES_VERSION = 0x2008_0522

# The same numbers on every architecture that has them.
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_RULE_PATH_BENEATH = 1
_CREATE_RULESET_VERSION = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _call(name: str, *arguments: object) -> int:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name} is a Linux call")
    result: int = getattr(_libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _syscall(number: int, *arguments: object) -> int:
    return _call("syscall", ctypes.c_long(number), *arguments)


def unshare(flags: int) -> None:
    """Leave the namespaces named by the flags for new ones."""
    _call("unshare", ctypes.c_int(flags))


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """See mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), options.encode())


def unmount(target: str) -> None:
    """Take a mount away, at once from sight, and in truth when nobody uses it."""
    _call("umount2", target.encode(), ctypes.c_int(_MNT_DETACH))


def pivot_root(new: str, old: str) -> None:
    """See pivot_root(2)."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, "pivot_root has no known number here")
    _syscall(number, new.encode(), old.encode())


def filter_calls(length: int, address: int) -> None:
    """Submit this process to a filter of system calls: so many instructions at this address."""
    program = struct.pack("HxxxxxxQ", length, address)
    held = ctypes.create_string_buffer(program, len(program))
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _call("prctl", _PR_SET_SECCOMP, mode, ctypes.byref(held), 0, 0)


def set_read_only(path: str, read_only: bool, *, recursive: bool) -> None:
    """Make a mount, or all below it too, read-only or writable. See mount_setattr(2)."""
    bit = _MOUNT_ATTR_RDONLY
    attributes = struct.pack("QQQQ", bit if read_only else 0, 0 if read_only else bit, 0, 0)
    _syscall(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(-100),
        path.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    _call("prctl", _PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent dies."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def gain_no_privileges() -> None:
    """No program run from now on is given more rights by its file, such as setuid."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every privilege of root beyond owning root's files, for good."""
    _call("prctl", _PR_SET_SECUREBITS, ctypes.c_ulong(_NO_ROOT_FOR_GOOD), 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    _call("capset", header, struct.pack("6I", *[0] * 6))


def landlock_version() -> int:
    """The version of Landlock that the kernel has. OSError where it has none."""
    return _syscall(
        _SYS_LANDLOCK_CREATE_RULESET,
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint(_CREATE_RULESET_VERSION),
    )


def landlock_ruleset(version: int, files: int, network: int, scopes: int) -> int:
    """A descriptor of a new set of rules, which refuses what it handles and no rule allows."""
    fields = 1 if version < 4 else 2 if version < 6 else 3
    attributes = struct.pack(f"{fields}Q", *(files, network, scopes)[:fields])
    return _syscall(
        _SYS_LANDLOCK_CREATE_RULESET,
        attributes,
        ctypes.c_size_t(len(attributes)),
        ctypes.c_uint(0),
    )


def landlock_allow(ruleset: int, folder: int, access: int) -> None:
    """Allow access below the folder (or to the file) behind a descriptor."""
    _syscall(
        _SYS_LANDLOCK_ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_int(_RULE_PATH_BENEATH),
        struct.pack("=Qi", access, folder),
        ctypes.c_uint(0),
    )


def landlock_enforce(ruleset: int) -> None:
    """Submit this process and all that it starts to the rules, for good."""
    _syscall(_SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
