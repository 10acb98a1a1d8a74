"""The validation DAG restores a checkpoint in a pod: real DAG and operator, a stand-in cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.coordinator.conftest import Server
from tests.ladder.cluster import Cluster
from tests.ladder.conftest import PROGRAM, commit_restorable, receipts_of
from tests.ladder.test_pods import CONTRACT, connection_of
from tests.retention.world import opened

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
RUN = """
from airflow.dag_processing.dagbag import DagBag
bag = DagBag({dags!r})
assert not bag.import_errors, bag.import_errors
run = bag.dags["validate_restores"].test()
states = {{f"{{ti.task_id}}[{{ti.map_index}}]": ti.state for ti in run.get_task_instances()}}
print("RUN", run.state, states)
"""


def airflow(environment: Mapping[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_dag_takes_a_training_step_in_a_pod(
    catalog_dsn: str, owner_dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "restore.py").write_text(PROGRAM)
    contracts = tmp_path / "config" / "contracts"
    contracts.mkdir(parents=True)
    cluster = Cluster(tmp_path / "nodes")
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as world, Server(catalog_dsn) as url:
        world.promote({"validate": {"checksum": "every", "format": "every", "restore": "daily"}})
        text = CONTRACT.format(program=tmp_path / "restore.py", url=url, startup="60s")
        (contracts / "tiny.yaml").write_text(text)
        copy = commit_restorable(world, 1)
        home = tmp_path / "airflow"
        environment = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW_CONN_CLUSTER": connection_of(cluster.kubeconfig()),
            "LASTGOOD_CATALOG": catalog_dsn,
            "LASTGOOD_CONFIG": str(contracts.parent),
        }
        home.mkdir()
        airflow(environment, "-m", "airflow", "db", "migrate")
        airflow(environment, "-m", "airflow", "dags", "reserialize")

        said = airflow(environment, "-c", RUN.format(dags=str(ROOT / "dags")))

        found = [(one.level, one.verdict) for one in receipts_of(world, copy)]
        restored = receipts_of(world, copy)[-1].body["topology"]
        cluster.close()
    assert "RUN success" in said, said[-3000:]
    assert "'restore_in_pod[0]': 'success'" in said
    assert found == [("checksum", "pass"), ("format", "pass"), ("restore", "pass")]
    assert restored["executor"] == "kubernetes"
    assert restored["pod"]["name"] in cluster.deleted
    assert cluster.pods == {}
