"""System calls that are refused to a program where mounts cannot keep it from them: a small filter
in the kernel (seccomp), for the platforms whose numbers are known here.

A filter sees numbers, not paths. So every Unix socket is refused, because one with a name in the
file system may be anybody's; a change of a mode or of times is answered as if it had been made,
because the owner of a file outside could make it; io_uring is refused, because it is a way round;
System V's shared memory, queues and semaphores are refused, because they are no process' memory,
and stay when all processes are gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

from lastgood.validators import kernel

_AF_UNIX = 1
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # of seccomp_data, little endian
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_X32 = 0x4000_0000


@dataclass(frozen=True, slots=True)
class _Platform:
    audit: int
    socket: int
    pretended: tuple[int, ...]  # chmod and utime in all their forms
    unsupported: tuple[int, ...]  # extended attributes
    segments: tuple[int, ...]  # shmget, shmat, semget, msgget, msgsnd


_IO_URING = (425, 426, 427)
_SINCE_ALL_ARE_ONE = ((452,), (463, 466, 469))  # fchmodat2; setxattrat, removexattrat, file_setattr
_PLATFORMS = {
    "x86_64": _Platform(
        0xC000_003E,
        41,
        (90, 91, 132, 235, 261, 268, 280),
        (188, 189, 190, 197, 198, 199),
        (29, 30, 64, 68, 69),
    ),
    "aarch64": _Platform(
        0xC000_00B7, 198, (52, 53, 88), (5, 6, 7, 14, 15, 16), (194, 196, 190, 186, 189)
    ),
}


def known() -> bool:
    """Whether this platform's numbers are known, and its kernel filters calls."""
    has_filters = os.path.exists("/proc/sys/kernel/seccomp/actions_avail")
    return os.uname().machine in _PLATFORMS and has_filters


def refuse_calls(*, sockets: bool, attributes: bool) -> None:
    """Submit this process and all that it starts to the filter, for good; it gains no privileges
    any more. Raises OSError where that cannot be."""
    kernel.gain_no_privileges()
    platform = _PLATFORMS[os.uname().machine]
    program = b"".join(_program(platform, sockets=sockets, attributes=attributes))
    held = ctypes.create_string_buffer(program, len(program))
    kernel.filter_calls(len(program) // 8, ctypes.addressof(held))


def _program(platform: _Platform, *, sockets: bool, attributes: bool) -> list[bytes]:
    pretended, unsupported = _SINCE_ALL_ARE_ONE
    answers = [(number, errno.ENOSYS) for number in (*_IO_URING, *platform.segments)]
    if attributes:
        answers += [(number, 0) for number in (*platform.pretended, *pretended)]
        answers += [(number, errno.ENOTSUP) for number in (*platform.unsupported, *unsupported)]
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, platform.audit, 1, 0),
        _line(_RETURN, _ERRNO | errno.ENOSYS),  # another architecture's numbers
        _line(_LOAD, _NUMBER),
        _line(_AT_LEAST, _X32, 0, 1),
        _line(_RETURN, _ERRNO | errno.ENOSYS),
    ]
    for number, answer in answers:
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ERRNO | answer)]
    if sockets:
        lines += [
            _line(_EQUAL, platform.socket, 0, 3),
            _line(_LOAD, _FIRST_ARGUMENT),
            _line(_EQUAL, _AF_UNIX, 0, 1),
            _line(_RETURN, _ERRNO | errno.EACCES),
        ]
    return [*lines, _line(_RETURN, _ALLOW)]


def _line(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)
