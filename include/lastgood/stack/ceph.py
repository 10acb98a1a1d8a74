"""One Ceph node with its S3 gateway, all in memory: started in about two seconds, stopped by its
process ids. For tests, and for the demo on S3."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from lastgood.stack.ceph_settings import configuration
from lastgood.stack.ports import LOOPBACK, held_port

# In the order in which they are stopped.
PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-osd", "ceph-mon", "monmaptool")
STARTS = 3  # a daemon may be too slow on a busy machine; Linux alone holds its port
READY_SECONDS = 120.0
STOP_SECONDS = 30.0
DESCRIPTION = "cluster.json"


class CephFailed(Exception):
    """A program of Ceph failed; the message holds what it said."""


def missing_programs() -> list[str]:
    """The programs of Ceph that are not installed here."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@dataclass(frozen=True)
class Ceph:
    """A running cluster. `access_key` belongs to an ordinary user, `tests`."""

    folder: str
    endpoint: str
    access_key: str
    secret_key: str

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start a cluster whose files all lie in `folder`, which is made anew."""
        for remaining in reversed(range(STARTS)):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                with held_port() as mon_port, held_port() as s3_port:
                    return cls._start(folder, mon_port, s3_port)
            except CephFailed:
                stop(folder)
                if not remaining:
                    raise
        raise AssertionError

    @classmethod
    def _start(cls, folder: Path, mon_port: int, s3_port: int) -> Self:
        for name in ("mon", "osd", "rgw", "run", "log"):
            (folder / name).mkdir(parents=True)
        (folder / "keyring").touch()
        fsid, osd = uuid4(), uuid4()
        (folder / "ceph.conf").write_text(
            configuration(folder, fsid, mon_port=mon_port, s3_port=s3_port)
        )
        found = cls(str(folder), f"http://{LOOPBACK}:{s3_port}", "testaccess", uuid4().hex)
        monmap = str(folder / "monmap")
        address = f"[v2:{LOOPBACK}:{mon_port}]"
        found._run("monmaptool", "--create", "--fsid", str(fsid), "--addv", "a", address, monmap)
        found._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", "/dev/null")
        found._run("ceph-mon", "-i", "a")
        found._run("ceph", "--connect-timeout", "60", "osd", "new", str(osd))
        found._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", str(osd))
        found._run("ceph-osd", "-i", "0")
        found.add_user("tests", found.access_key, found.secret_key)
        found._run("radosgw", "--name", "client.rgw")
        found._wait_until_ready()
        (folder / DESCRIPTION).write_text(json.dumps(asdict(found)))
        return found

    @classmethod
    def running(cls, folder: Path) -> Self:
        """The cluster that somebody started in `folder`."""
        return cls(**json.loads((folder / DESCRIPTION).read_text()))

    def admin(self, *arguments: str) -> Any:
        """What `radosgw-admin` answers, from JSON; None where it says nothing."""
        said = self._run("radosgw-admin", "--name", "client.rgw", *arguments)
        return json.loads(said) if said.strip() else None

    def add_user(self, name: str, access_key: str, secret_key: str) -> None:
        """A further user, who sees nothing of the others' buckets."""
        keys = ("--access-key", access_key, "--secret-key", secret_key)
        self.admin("user", "create", "--uid", name, "--display-name", name, *keys)

    def bucket_bytes(self, bucket: str) -> int:
        """The bytes that Ceph itself accounts to a bucket: versions and parts of pending uploads
        included."""
        usage = self.admin("bucket", "stats", "--bucket", bucket)["usage"]
        return sum(category["size"] for category in usage.values())

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                if all(program != "radosgw" for _, program in _programs(Path(self.folder))):
                    break
                time.sleep(0.02)
        raise CephFailed(f"radosgw does not answer; see {self.folder}/log")

    def _run(self, program: str, *arguments: str) -> str:
        # A daemon keeps what it inherits open: so files, not pipes.
        said = Path(self.folder, "log", f"{program}.out")
        complained = said.with_suffix(".err")
        configured = [] if program == "monmaptool" else ["--conf", f"{self.folder}/ceph.conf"]
        command = [program, *configured, *arguments]
        with said.open("w") as out, complained.open("w") as err:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
                timeout=120,
                start_new_session=True,
            )
        if done.returncode:
            detail = complained.read_text()[-2000:] + said.read_text()[-2000:]
            raise CephFailed(f"{' '.join(command)}: {detail}")
        return said.read_text()


def stop(folder: Path) -> None:
    """Stop the daemons of a cluster, also one that was only being started, the gateway first, and
    remove its folder."""
    for _ in range(STARTS):  # a daemon forks while it starts
        for pid, _ in sorted(_programs(folder), key=lambda one: PROGRAMS.index(one[1])):
            # Nothing is kept, and the gateway alone would take seconds to end by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _wait_for_end(pid)
    shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> list[tuple[int, str]]:
    """What runs with the cluster's configuration: id and program. A daemon tells its id in a file
    only some time after it began, and the id may belong to another process by now."""
    asked = os.fsencode(folder / "ceph.conf")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        program = os.path.basename(os.fsdecode(command[0]))
        if asked in command and program in PROGRAMS:
            found.append((int(process.name), program))
    return found


def _wait_for_end(pid: int) -> None:
    until = time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
