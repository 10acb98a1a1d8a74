"""Owners of overdue findings are told: by the DAG's own task, through a notifier of Airflow that
sends mail, to a server that takes it."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from lastgood.flows.reconciliation import reconcile
from tests.retention.world import PROJECT, World, opened

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from airflow.dag_processing.dagbag import DagBag
from airflow.models.pool import Pool
for pool in ("lastgood_reading", "lastgood_deleting"):
    Pool.create_or_update_pool(pool, slots=2, description="", include_deferred=False)
dag = DagBag(sys.argv[1]).dags["reconcile_inventory"]
run = dag.test()
print("RUN", run.state.value, run.run_id)
for task in run.get_task_instances():
    print("TASK", task.task_id, task.state)

from lastgood.notifiers import OverdueFindings
OverdueFindings()({"run_id": run.run_id})
try:
    OverdueFindings([{"notifier": "airflow.sdk.BaseNotifier"}])({"run_id": "another"})
except Exception as error:
    print("REFUSED", type(error).__name__, error)
try:
    OverdueFindings([{"notifier": "os.system"}])({"run_id": "another"})
except Exception as error:
    print("REFUSED", type(error).__name__, error)
"""


class _Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP (RFC 5321) as a client needs to hand a message over."""

    def handle(self) -> None:
        self.wfile.write(b"220 mailbox\r\n")
        for line in self.rfile:
            verb = line[:4].upper().strip()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                self.server.taken.append(self._message())  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return

    def _message(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line)
        return b"".join(lines)


@pytest.fixture
def mailbox() -> Iterator[Any]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Mailbox) as server:
        server.taken = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


def _airflow(catalog_dsn: str, folder: Path, port: int) -> dict[str, str]:
    connection = {
        "conn_type": "smtp",
        "host": "127.0.0.1",
        "port": port,
        "extra": {"disable_ssl": True, "disable_tls": True},
    }
    notifier = {
        "notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
        "arguments": {
            "from_email": "lastgood@example.com",
            "to": "{{ overdue.owner }}",
            "subject": "{{ overdue.subject }}",
            "html_content": "{{ overdue.html }}",
        },
    }
    return {
        **os.environ,
        "LASTGOOD_CATALOG": catalog_dsn,
        "LASTGOOD_REPORTS": str(folder / "reports"),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(connection),
        "AIRFLOW_VAR_LASTGOOD_FINDING_NOTIFIERS": json.dumps([notifier]),
    }


def test_the_owner_of_an_overdue_finding_gets_a_mail_once_in_a_run_and_the_run_fails(
    world: World, catalog_dsn: str, mailbox: Any, tmp_path: Path
) -> None:
    world.owner.execute(
        """UPDATE lastgood.projects SET config = config
           || '{"finding_owner": "storage@example.com", "finding_deadline_seconds": 86400}'"""
    )
    world.commit(1)
    stray = tmp_path / "store" / "checkpoints" / PROJECT / "<b>stray"
    stray.write_bytes(b"12345")
    end = world.now()
    reconcile.run(
        world.catalog,
        world.stores,
        PROJECT,
        window=(end - timedelta(days=1), end),
        report_dir=tmp_path / "reports",
        actor="dag:test",
    )
    world.advance(timedelta(days=2))
    env = _airflow(catalog_dsn, tmp_path, mailbox.server_address[1])
    program = [sys.executable, "-c", PROGRAM, str(ROOT / "dags")]

    airflow = str(Path(sys.executable).parent / "airflow")
    subprocess.run([airflow, "db", "migrate"], env=env, check=True, capture_output=True)
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    marks = ("RUN", "TASK", "REFUSED")
    said = [line for line in done.stdout.splitlines() if line.startswith(marks)]
    state, run = said[0].split()[1:]
    assert state == "failed", said
    assert "TASK tell_owners success" in said
    assert "TASK check failed" in said
    (mail,) = [message_from_bytes(one) for one in mailbox.taken]
    assert (mail["To"], mail["From"]) == ("storage@example.com", "lastgood@example.com")
    assert mail["Subject"] == "lastgood: 1 overdue finding, 5 bytes"
    body = "".join(
        part.get_payload(decode=True).decode()
        for part in mail.walk()
        if part.get_content_type() == "text/html"
    )
    assert "untracked in local:checkpoints/vision" in body
    told = world.owner.execute(
        "SELECT run, notifier, owner, bytes FROM lastgood.finding_alerts ORDER BY recorded_at"
    ).fetchall()
    assert told == [
        (run, "log", "storage@example.com", 5),
        (run, "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "storage@example.com", 5),
        ("another", "log", "storage@example.com", 5),
    ]
    refused = [line for line in said if line.startswith("REFUSED")]
    assert "NotTold" in refused[0]
    assert "os.system is no notifier of Airflow" in refused[1]
