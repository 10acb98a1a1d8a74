"""The process between us and a program that we do not trust: it starts it, watches, and ends it.

`python -I -m lastgood.validators.warden` reads one line of JSON (see `isolation`), and writes one.
Its standard input is its life line: when that closes, the group is killed. In an own namespace the
group dies with its first process, whatever it forked; elsewhere the warden adopts every orphan and
kills until none is left.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from lastgood.validators import census, kernel
from lastgood.validators.confinement import (
    SHARED_MEMORY,
    Confinement,
    confine_files,
    count_as_another_user,
    enter_namespaces,
)

_POLL_SECONDS = 0.05
_LOOKS_PER_WALK = 4  # the folder and open files are walked at every fourth look
_TAIL_BYTES = 64 << 10
_LINES, _LINE_CHARACTERS = 40, 500
_OPEN_FILES = 1024
_LEAST_FREE_SHARE = 0.03  # of the machine's memory, whoever took it
_LEAST_FREE_BYTES = 256 << 20  # of the disk: what has no name, and is only mapped, is not counted
_DATA_SLACK_BYTES = (
    256 << 20
)  # above the limit, so that the look names it before an allocation fails
_NICENESS = 10  # whatever the program does, the warden gets to look
_NOT_STARTED = 125


@dataclass(slots=True)
class Peaks:
    memory_bytes: int = 0
    tasks: int = 0
    disk_bytes: int = 0
    cpu_seconds: float = 0.0


@dataclass(slots=True)
class Ward:
    """One program under watch."""

    request: dict[str, Any]
    told: Confinement
    first: int  # the group's first process
    status: int  # where it tells how the program ended
    output: int
    started: float = field(default_factory=time.monotonic)
    tail: deque[bytes] = field(default_factory=deque)
    peaks: Peaks = field(default_factory=Peaks)
    looks: int = 0

    def watch(self) -> dict[str, Any]:
        """Wait for the end, or make one. Answers how it came."""
        waiting = select.poll()
        for descriptor in (0, self.status, self.output):
            waiting.register(descriptor, select.POLLIN | select.POLLHUP)
        while True:
            for descriptor, _ in waiting.poll(_POLL_SECONDS * 1000):
                if descriptor == 0:
                    return {"ended": "abandoned"}
                if descriptor == self.status:
                    return self._told_end()
                if not self._take_output():
                    waiting.unregister(descriptor)
            limit = self._look()
            if limit is not None:
                self._take_rest()
                return {"ended": limit}

    def _told_end(self) -> dict[str, Any]:
        self._look()
        text = os.read(self.status, 4096)
        self._take_rest()
        first = text.partition(b"\n")[0]  # a program that could not be started ends as well
        return dict(json.loads(first)) if first else {"ended": "lost", "reason": "no word came"}

    def _take_rest(self) -> None:
        """What was printed until now; a program that prints for ever is not listened to."""
        for _ in range(_TAIL_BYTES >> 12):
            if not (self._has_output() and self._take_output()):
                break

    def _has_output(self) -> bool:
        return bool(select.select([self.output], [], [], 0)[0])

    def _take_output(self) -> bool:
        read = os.read(self.output, 1 << 16)
        self.tail.append(read)
        while sum(map(len, self.tail)) - len(self.tail[0]) > _TAIL_BYTES:
            self.tail.popleft()
        return bool(read)

    def _look(self) -> str | None:
        """The limit that is passed, if one is."""
        limits = self.request["limits"]
        walk = self.looks % _LOOKS_PER_WALK == 0
        self.looks += 1
        now = census.of_group(self.first, with_open_files=walk)
        memory = now.memory_bytes + (_shared_bytes() if self.told.shared_memory else 0)
        peaks = self.peaks
        peaks.memory_bytes = max(peaks.memory_bytes, memory)
        peaks.tasks = max(peaks.tasks, now.tasks)
        peaks.cpu_seconds = max(peaks.cpu_seconds, now.cpu_seconds)
        if walk:
            used = census.used_bytes(self.request["folder"]) + now.unlinked_bytes
            peaks.disk_bytes = max(peaks.disk_bytes, used)
            if used - self.request["disk_before"] > limits["disk_bytes"] or self._disk_is_scarce():
                return "disk"
        if now.tasks > limits["tasks"]:
            return "processes"
        if memory > limits["memory_bytes"] or (walk and _memory_is_scarce()):
            return "memory"
        if now.cpu_seconds > limits["cpu_seconds"]:
            return "cpu"
        return "time" if time.monotonic() - self.started > limits["seconds"] else None

    def _disk_is_scarce(self) -> bool:
        """Whoever took it. A disk that was nearly full before may be used by half."""
        least: int = min(_LEAST_FREE_BYTES, self.request["free_before"] // 2)
        return census.free_bytes(self.request["folder"]) < least

    def last_lines(self) -> list[str]:
        text = b"".join(self.tail)[-_TAIL_BYTES:].decode(errors="replace")
        text = text.replace("\0", "\\0")  # which a database refuses
        return [line[:_LINE_CHARACTERS] for line in text.splitlines()[-_LINES:]]

    def outcome(self) -> dict[str, Any]:
        """Watch to the end, leave nothing alive, and tell all."""
        try:
            end = self.watch()
        finally:
            seconds = time.monotonic() - self.started
            _kill_all(self.first)
        return {
            **end,
            "seconds": round(seconds, 3),
            "cpu_seconds": self.peaks.cpu_seconds,
            "memory_peak_bytes": self.peaks.memory_bytes,
            "disk_peak_bytes": max(0, self.peaks.disk_bytes - self.request["disk_before"]),
            "tasks_peak": self.peaks.tasks,
            "confinement": self.told.to_json(),
            "last_lines": self.last_lines(),
        }


def _shared_bytes() -> int:
    shared = os.statvfs(SHARED_MEMORY)
    return (shared.f_blocks - shared.f_bfree) * shared.f_frsize


def _memory_is_scarce() -> bool:
    with open("/proc/meminfo", "rb") as file:
        lines = dict(line.split(b":", 1) for line in file)
    available, total = (int(lines[name].split()[0]) for name in (b"MemAvailable", b"MemTotal"))
    return available < total * _LEAST_FREE_SHARE


def _kill_all(first: int) -> None:
    """Kill the group and reap it. Everything that it left becomes our child, so it ends when we
    have no child any more."""
    _kill(first)
    own = os.getpid()
    with suppress(ChildProcessError):
        while True:
            for process in census.members(own):
                if process != own:
                    _kill(process)
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
            time.sleep(0.002)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def start(request: dict[str, Any]) -> Ward:
    """Start the program in its confinement."""
    with suppress(OSError):
        kernel.adopt_orphans()
    request["disk_before"] = census.used_bytes(request["folder"])
    request["free_before"] = census.free_bytes(request["folder"])
    told = enter_namespaces(
        request["folder"], [*request["reads"], *request["names"]], request["without"]
    )
    status_read, status_write = os.pipe()
    output_read, output_write = os.pipe()
    warden = os.getpid()
    first = os.fork()
    if first == 0:
        _be_first(request, told, warden, status_write, output_write)
    os.close(status_write)
    os.close(output_write)
    return Ward(request, told, first, status_read, output_read)


def _be_first(
    request: dict[str, Any], told: Confinement, warden: int, status: int, output: int
) -> NoReturn:
    """The group's first process: starts the program, reaps, and tells how the program ended."""
    try:
        with suppress(OSError):
            kernel.die_with_parent(signal.SIGKILL)
            kernel.adopt_orphans()
        program = os.fork()
        if program == 0:
            _be_program(request, told, status, output)
        os.close(output)
        while True:
            process, how = os.waitpid(-1, 0)
            if process == program:
                os.write(status, json.dumps(_ended(how)).encode() + b"\n")
                os._exit(0)
    finally:
        os._exit(1)


def _ended(how: int) -> dict[str, Any]:
    if os.WIFEXITED(how):
        return {"ended": "exit", "code": os.WEXITSTATUS(how)}
    number = os.WTERMSIG(how)
    limits = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}
    for one, limit in limits.items():
        if number == one:
            return {"ended": limit}
    return {"ended": "signal", "signal": _signal_name(number)}


def _signal_name(number: int) -> str:
    """Of real-time signals only the first and the last have a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _be_program(request: dict[str, Any], told: Confinement, status: int, output: int) -> NoReturn:
    """Take on every limit, then become the program."""
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.umask(0o077)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # should memory run out, then it is this that goes
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.set_inheritable(status, False)
        for descriptor in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
            if int(descriptor) > 2 and int(descriptor) != status:
                with suppress(OSError):
                    os.close(int(descriptor))
        os.nice(_NICENESS)
        _set_limits(request["limits"])
        count_as_another_user(told)
        with suppress(OSError):
            kernel.die_with_parent(signal.SIGKILL)  # anew: another user is another process
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        confine_files(told, request["folder"], request["reads"])
        os.execve(request["command"][0], request["command"], request["environment"])
    except BaseException as error:
        ended = {"ended": "not-started", "reason": str(error)}
        os.write(status, json.dumps(ended).encode() + b"\n")
    finally:
        os._exit(_NOT_STARTED)


def _set_limits(limits: dict[str, Any]) -> None:
    """The kernel's own limits, a little above ours: ours are looked at and tell their name."""
    cpu_seconds = int(limits["cpu_seconds"]) + 2
    disk_bytes = limits["disk_bytes"] + (1 << 20)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: disk_bytes,
        resource.RLIMIT_DATA: limits["memory_bytes"] + _DATA_SLACK_BYTES,
        resource.RLIMIT_NPROC: limits["tasks"] + 32,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def main() -> None:
    """Guard one program."""
    request = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(start(request).outcome()))


if __name__ == "__main__":
    main()
