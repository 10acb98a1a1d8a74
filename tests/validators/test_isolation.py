"""What a program that was let loose can do to us: nothing."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from lastgood.flows.validation.local_files import scratch_folder
from lastgood.validators import isolation
from lastgood.validators.isolation import Limits, Outcome
from tests.waiting import wait_for

LIMITS = Limits(
    time=timedelta(minutes=2),  # the programs here are the last to run on a busy machine
    cpu=timedelta(seconds=20),
    memory_bytes=256 << 20,
    disk_bytes=16 << 20,
    tasks=24,
)


def run(
    folder: Path,
    code: str,
    limits: Limits = LIMITS,
    *,
    reads: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Outcome:
    program = [sys.executable, "-I", "-c", textwrap.dedent(code)]
    return isolation.run(
        program, folder, limits, reads=reads, environment=environment, without=without
    )


def confined(outcome: Outcome, layer: str, *forces: object) -> None:
    if outcome.confinement[layer] not in forces:
        pytest.skip(f"this platform confines {layer} as {outcome.confinement[layer]!r}")


def unlike_any_other(mark: str) -> str:
    """A word that stands in the command line of this test's processes alone."""
    return f"{mark}-{secrets.token_hex(4)}"


def still_alive(mark: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if mark in " ".join(process.info["cmdline"] or ())
    ]


def test_a_program_that_ends_is_told_with_its_code_and_last_lines(tmp_path: Path) -> None:
    outcome = run(tmp_path, "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)")

    assert (outcome.ended, outcome.code) == ("exit", 3)
    assert sorted(outcome.last_lines) == ["one", "two"]
    assert str(outcome) == "ended with exit code 3"


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (34, "SIGRTMIN"), (40, "SIGRTMIN+6")])
def test_the_signal_that_killed_a_program_is_told(tmp_path: Path, number: int, name: str) -> None:
    outcome = run(tmp_path, f"import os; os.kill(os.getpid(), {number})")

    assert (outcome.ended, outcome.signal) == ("signal", name)


def test_only_the_end_of_a_flood_of_output_is_kept(tmp_path: Path) -> None:
    outcome = run(tmp_path, "for n in range(200_000): print(n, 'x' * 50)")

    assert outcome.succeeded
    assert outcome.last_lines[-1].startswith("199999 ")
    assert len(outcome.last_lines) <= 40


def test_a_program_that_hangs_is_stopped_in_time(tmp_path: Path) -> None:
    limits = Limits(time=timedelta(seconds=1))

    outcome = run(tmp_path, "import time; time.sleep(1000)", limits)

    assert outcome.ended == "time"
    assert "limit of time" in str(outcome)


def test_a_program_that_ignores_signals_is_stopped_all_the_same(tmp_path: Path) -> None:
    code = """
        import signal, time
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(1000)
    """
    outcome = run(tmp_path, code, Limits(time=timedelta(seconds=1)))

    assert outcome.ended == "time"


def test_a_busy_loop_is_stopped_by_processor_time(tmp_path: Path) -> None:
    limits = Limits(cpu=timedelta(seconds=1), time=timedelta(minutes=2))

    assert run(tmp_path, "while True: pass", limits).ended == "cpu"


def test_processor_time_of_dead_children_counts(tmp_path: Path) -> None:
    code = """
        import os, time
        while True:
            if os.fork() == 0:
                begin = time.process_time()
                while time.process_time() < begin + 0.1: pass
                os._exit(0)
            os.wait()
    """
    limits = Limits(cpu=timedelta(seconds=1), time=timedelta(minutes=2))

    assert run(tmp_path, code, limits).ended == "cpu"


@pytest.mark.parametrize("without", [(), ("namespaces",)], ids=["all", "no namespaces"])
def test_a_fork_bomb_is_bounded(tmp_path: Path, without: Sequence[str]) -> None:
    mark = unlike_any_other("bomb-of-forks")
    code = f"import os\nwhile True: os.fork()  # {mark}"

    outcome = run(tmp_path, code, without=without)

    assert outcome.ended == "processes"
    assert outcome.tasks_peak < 2 * LIMITS.tasks + 32
    assert not still_alive(mark)


def test_too_many_threads_are_named_as_processes(tmp_path: Path) -> None:
    code = """
        import threading, time
        for _ in range(30): threading.Thread(target=time.sleep, args=(1000,)).start()
    """
    assert run(tmp_path, code).ended == "processes"


@pytest.mark.parametrize("without", [(), ("namespaces",)], ids=["all", "no namespaces"])
def test_a_grandchild_in_its_own_session_dies_with_the_program(
    tmp_path: Path, without: Sequence[str]
) -> None:
    mark = unlike_any_other("lonely-grandchild")
    code = f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: time.sleep(1000)  # {mark}
            os._exit(0)
        os.wait()
        print("parent is done")
    """
    outcome = run(tmp_path, code, without=without)

    assert outcome.succeeded
    assert not still_alive(mark)


@pytest.mark.parametrize(
    "code",
    [
        "held = []\nwhile True: held.append(bytearray(4 << 20))",
        "held = bytearray(100 << 30)",
        "import mmap\nheld = mmap.mmap(-1, 8 << 30)\nfor n in range(0, 8 << 30, 4096): held[n] = 1",
    ],
    ids=["bit by bit", "at once", "shared"],
)
def test_an_allocator_is_stopped_by_memory(tmp_path: Path, code: str) -> None:
    outcome = run(tmp_path, code)

    assert outcome.ended == "memory"
    assert outcome.memory_peak_bytes < LIMITS.memory_bytes * 3


@pytest.mark.parametrize(
    "code",
    [
        "file = open('big', 'wb')\nwhile True: file.write(bytes(1 << 20))",
        "n = 0\nwhile True:\n  n += 1\n  open(f'{n}', 'wb').write(bytes(1 << 20))",
        "import os\nfile = open('gone', 'wb')\nos.unlink('gone')\n"
        "while True: file.write(bytes(1 << 20))",
    ],
    ids=["one file", "many files", "unlinked"],
)
def test_a_disk_filler_is_stopped_by_the_disk(tmp_path: Path, code: str) -> None:
    outcome = run(tmp_path, code)

    assert outcome.ended == "disk"


@pytest.mark.parametrize("without", [(), ("landlock",), ("namespaces",)])
def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, without: Sequence[str]) -> None:
    folder, other = tmp_path / "own", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    victim = other / "victim"
    victim.write_text("before")
    code = f"""
        import os
        open("inside", "w").write("fine")
        for act in (
            lambda: open({str(other / "new")!r}, "w"),
            lambda: open({str(victim)!r}, "w"),
            lambda: os.unlink({str(victim)!r}),
            lambda: os.rename({str(victim)!r}, "stolen"),
            lambda: os.symlink("x", {str(other / "link")!r}),
            lambda: os.mkdir({str(other / "folder")!r}),
        ):
            try: act()
            except OSError as error: print("refused", error)
            else: print("DONE")
    """
    outcome = run(folder, code, reads=[other], without=without)

    confined(outcome, "files", "landlock", "read-only mounts")
    assert outcome.succeeded
    assert "DONE" not in outcome.last_lines
    assert victim.read_text() == "before"
    assert [entry.name for entry in other.iterdir()] == ["victim"]
    assert (folder / "inside").read_text() == "fine"


@pytest.mark.parametrize("without", [(), ("landlock",), ("new root",), ("namespaces",)])
def test_what_lies_outside_keeps_its_mode_and_times(tmp_path: Path, without: Sequence[str]) -> None:
    folder, other = tmp_path / "own", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    before = other.stat()
    code = f"""
        import os
        for act in (
            lambda: os.chmod({str(other)!r}, 0),
            lambda: os.utime({str(other)!r}, (1, 1)),
            lambda: os.setxattr({str(other)!r}, "user.mark", b"x"),
        ):
            try: act()
            except OSError as error: print("refused", error)
            else: print("DONE")
    """
    outcome = run(folder, code, reads=[other], without=without)

    confined(outcome, "attributes", "read-only mounts", "refused")
    assert outcome.succeeded
    assert "DONE" not in outcome.last_lines or outcome.confinement["attributes"] == "refused"
    assert os.listxattr(other) == []
    after = other.stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


def test_shared_memory_is_its_own_and_of_its_size(tmp_path: Path) -> None:
    code = """
        import os
        print(os.listdir("/dev/shm"))
        open("/dev/shm/part", "wb").write(bytes(12 << 20))
        try: open("/new", "w")
        except OSError as error: print("refused", error)
    """
    outcome = run(tmp_path, code)

    confined(outcome, "shared_memory", True)
    assert outcome.succeeded, outcome
    assert outcome.last_lines[0] == "[]"
    assert outcome.last_lines[1].startswith("refused")
    assert outcome.memory_peak_bytes > 0
    assert not Path("/dev/shm/part").exists()


@pytest.mark.parametrize("without", [(), ("landlock",), ("new root",), ("namespaces",)])
def test_no_memory_is_left_behind_that_belongs_to_no_process(
    tmp_path: Path, without: Sequence[str]
) -> None:
    code = """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.shmget(0, 4096, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600))
    """
    outcome = run(tmp_path, code, without=without)

    confined(outcome, "segments", "none")
    assert outcome.last_lines == ["-1 -1 -1"]


def test_files_that_are_in_no_count_do_not_fill_the_disk(tmp_path: Path) -> None:
    """Unlinked, closed, and only mapped: nobody can tell how large they are."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64m", "none", str(disk)]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    code = """
        import ctypes, os, time
        libc = ctypes.CDLL(None)
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        for number in range(48):  # the disk has 64, of which half must stay free
            file = os.open("f", os.O_RDWR | os.O_CREAT)
            os.write(file, bytes(1 << 20))
            libc.mmap(None, 4096, 1, 1, file, 0)
            os.unlink("f")
            os.close(file)
        time.sleep(1000)
    """
    try:
        outcome = run(disk, code)
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert outcome.ended == "disk"
    assert outcome.last_lines == []


@pytest.mark.parametrize("name", ["d", "d" * 100])
def test_folders_without_end_hide_nothing_and_go_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LASTGOOD_SCRATCH", str(tmp_path))
    code = f"""
        import os, time
        for _ in range(1500): os.mkdir({name!r}); os.chdir({name!r})
        for n in range(4): open(str(n), "wb").write(bytes(8 << 20))
        time.sleep(1000)
    """
    with scratch_folder() as folder:
        outcome = run(folder, code)

    assert outcome.ended == "disk"
    assert not folder.exists()


def test_a_printed_nul_is_told_as_one(tmp_path: Path) -> None:
    outcome = run(tmp_path, r"print('a\0b')")

    assert outcome.last_lines == ["a\\0b"]


def test_what_it_was_not_given_cannot_be_read(tmp_path: Path) -> None:
    folder, secret = tmp_path / "own", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("token")

    outcome = run(folder, f"print(open({str(secret)!r}).read())")

    confined(outcome, "files", "landlock")
    assert outcome.code == 1
    assert "PermissionError" in outcome.last_lines[-1] or "No such" in outcome.last_lines[-1]


def test_the_environment_brings_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    monkeypatch.setenv("LASTGOOD_CATALOG", "postgresql://user:do-not-tell@host/db")
    code = f"""
        import os
        print(sorted(os.environ))
        print(open("/proc/self/environ").read())
        try: print(open("/proc/{os.getpid()}/environ").read())
        except OSError as error: print(error)
    """
    outcome = run(tmp_path, code, environment={"MODEL": "mlp"})

    said = "\n".join(outcome.last_lines)
    assert "'MODEL'" in said
    if outcome.confinement["files"] == "landlock":
        assert "do-not-tell" not in said
    assert "AWS_SECRET_ACCESS_KEY" not in outcome.last_lines[0]


def test_there_is_no_network_but_its_own_loopback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        code = f"""
            import socket
            own = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(own.getsockname(), 5)
            print("own loopback works")
            try: socket.create_connection(("127.0.0.1", {ours.getsockname()[1]}), 5)
            except OSError as error: print("refused", error)
            else: print("REACHED")
        """
        outcome = run(tmp_path, code)

    confined(outcome, "network", "none")
    assert outcome.succeeded
    assert outcome.last_lines[0] == "own loopback works"
    assert outcome.last_lines[1].startswith("refused")


@pytest.mark.parametrize(
    ("without", "sockets"),
    [((), "own"), (("new root",), "none"), (("namespaces",), "none"), (("landlock",), "own")],
)
def test_a_socket_with_a_name_is_not_in_reach(
    tmp_path: Path, without: Sequence[str], sockets: str
) -> None:
    folder, other = tmp_path / "own", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    name = str(other / "database")
    code = f"""
        import os, socket
        try:
            socket.socket(socket.AF_UNIX).connect({name!r})
        except OSError as error: print("refused", error)
        else: print("REACHED")
        ours, theirs = socket.socketpair()
        ours.send(b"pairs work")
        print(theirs.recv(10).decode())
        own = socket.create_server(("127.0.0.1", 0)) if {"namespaces" not in without} else None
        if own: socket.create_connection(own.getsockname(), 5)
        try: print(os.listdir({str(other)!r}), "SEEN")
        except OSError as error: print(error)
    """
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(name)
        served.listen()
        outcome = run(folder, code, without=without)

    confined(outcome, "sockets", sockets)
    assert outcome.succeeded, outcome
    assert outcome.last_lines[0].startswith("refused")
    assert outcome.last_lines[1] == "pairs work"
    assert "SEEN" not in outcome.last_lines[2]


def test_a_platform_that_keeps_no_socket_away_says_so(tmp_path: Path) -> None:
    outcome = run(tmp_path, "pass", without=["namespaces", "filter"])

    assert outcome.confinement["sockets"] == "open"
    assert outcome.confinement["attributes"] == "open"


def test_programs_of_a_group_talk_by_sockets_and_memory_of_their_own(tmp_path: Path) -> None:
    code = """
        import multiprocessing as mp
        from multiprocessing.connection import Client, Listener
        def work(queue, address):
            queue.put(1)
            Client(address, family="AF_UNIX").send(2)
        if __name__ == "__main__":
            context = mp.get_context("spawn")
            queue, listener = context.Queue(), Listener("mine", family="AF_UNIX")
            context.Process(target=work, args=(queue, "mine")).start()
            print(queue.get(timeout=100), listener.accept().recv())
    """
    (tmp_path / "group.py").write_text(textwrap.dedent(code))
    program = [sys.executable, "-I", str(tmp_path / "group.py")]

    outcome = isolation.run(program, tmp_path, LIMITS)

    confined(outcome, "sockets", "own")
    assert outcome.last_lines == ["1 2"], outcome


def test_a_program_known_by_the_names_of_links_is_started(tmp_path: Path) -> None:
    folder, real = tmp_path / "own", tmp_path / "real"
    folder.mkdir()
    real.mkdir()
    (real / "python").symlink_to(sys.executable)
    (tmp_path / "linked").symlink_to(real)
    program = [str(tmp_path / "linked" / "python"), "-I", "-c", "print('started')"]

    outcome = isolation.run(program, folder, LIMITS, reads=[tmp_path / "linked"])

    assert outcome.last_lines == ["started"], outcome


def test_without_namespaces_there_is_no_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        code = f"""
            import socket
            socket.create_connection(("127.0.0.1", {ours.getsockname()[1]}), 5)
        """
        outcome = run(tmp_path, code, without=["namespaces"])

    confined(outcome, "network", "no TCP")
    assert "Permission denied" in outcome.last_lines[-1]


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    outcome = isolation.run(["/no/such/program"], tmp_path, LIMITS)

    assert outcome.ended == "not-started"
    assert "/no/such/program" in str(outcome) or "No such file" in str(outcome)


def test_the_group_dies_with_the_warden(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    mark = unlike_any_other("ward-of-the-killed")
    code = f"import time; time.sleep(1000)  # {mark}"
    waiting = threading.Thread(target=lambda: outcomes.append(run(tmp_path, code)))
    waiting.start()
    wait_for(lambda: still_alive(mark))
    warden = next(
        child
        for child in psutil.Process().children()
        if "lastgood.validators.warden" in child.cmdline()
    )

    warden.kill()
    waiting.join()

    assert outcomes[0].ended == "lost"
    wait_for(lambda: not still_alive(mark))
