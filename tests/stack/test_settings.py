"""`airflow_settings.yaml` as the embedded stack reads it, and what it lays over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.stack.errors import StackError
from lastgood.stack.seeding import AirflowSettings

ROOT = Path(__file__).parents[2]


def test_the_checkouts_file_names_what_the_dags_use() -> None:
    settings = AirflowSettings.read(ROOT / "airflow_settings.yaml")
    pools = {pool["pool_name"] for pool in settings.pools}
    used = {
        word.split('"')[1]
        for dag in (ROOT / "dags").glob("*.py")
        for word in dag.read_text().split("pool=")[1:]
    }
    assert used <= pools
    assert {c["conn_id"] for c in settings.connections} == {"lastgood_catalog", "lastgood_s3"}


def test_overlay_replaces_single_values_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "airflow:\n"
        "  connections:\n"
        "    - {conn_id: one, conn_type: postgres, conn_host: far, conn_port: 5432}\n"
        "    - {conn_id: two, conn_type: aws}\n"
    )
    laid = AirflowSettings.read(path).with_connections({"one": {"conn_host": "near"}})
    assert [dict(connection) for connection in laid.connections] == [
        {"conn_id": "one", "conn_type": "postgres", "conn_host": "near", "conn_port": 5432},
        {"conn_id": "two", "conn_type": "aws"},
    ]


def test_overlay_of_an_unknown_connection_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("airflow:\n  connections:\n    - {conn_id: one, conn_type: postgres}\n")
    with pytest.raises(StackError, match="no connection other"):
        AirflowSettings.read(path).with_connections({"other": {}})


def test_entries_without_any_value_are_skipped_as_astro_does(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("airflow:\n  pools:\n    - {pool_name: , pool_slot: , pool_description: }\n")
    assert AirflowSettings.read(path) == AirflowSettings([], [], [])


def test_entry_without_a_name_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("airflow:\n  pools:\n    - {pool_name: a}\n    - {pool_slot: 3}\n")
    with pytest.raises(StackError, match="entry 2 of pools has no pool_name"):
        AirflowSettings.read(path)
