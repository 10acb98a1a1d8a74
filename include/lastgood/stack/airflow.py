"""Airflow's part of the stack: its components, and the configuration that they share."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from lastgood.stack.layout import StackLayout
from lastgood.stack.object_store import ObjectStore
from lastgood.stack.ports import LOOPBACK
from lastgood.stack.secrets import SecretFile, write_private

# The environment of each process of a stack names it, so that even one whose parents are gone is
# known to belong to it.
STACK_TAG = "LASTGOOD_STACK"
USERS = ("admin", "op", "viewer")


@dataclass(frozen=True)
class Addresses:
    """Where the parts of one running stack listen, and the URLs of its databases."""

    airflow_port: int
    execution_port: int
    postgres_port: int
    airflow_database: str
    catalog: str

    @property
    def airflow_url(self) -> str:
        """The address of Airflow's pages and of the coordinator below them, without a last /."""
        return f"http://{LOOPBACK}:{self.airflow_port}"


@dataclass(frozen=True)
class Component:
    """One long-running process of Airflow, and how long its end may take."""

    name: str
    arguments: tuple[str, ...]
    stop_seconds: float

    def command(self) -> list[str]:
        """Return the command line that runs it in the foreground."""
        return [sys.executable, "-m", "airflow", *self.arguments]


def components(addresses: Addresses) -> tuple[Component, ...]:
    """Return the components in the order of their start.

    Tasks heartbeat at the execution API, which is a process of its own, so that bytes moving
    through the coordinator cannot make them look dead.
    """
    return (
        Component("execution-api", _api_server("execution", addresses.execution_port), 10),
        Component("api-server", _api_server("core", addresses.airflow_port), 10),
        Component("dag-processor", ("dag-processor",), 6),
        Component("scheduler", ("scheduler", "--skip-serve-logs"), 16),
        Component("triggerer", ("triggerer", "--skip-serve-logs"), 6),
    )


def _api_server(apps: str, port: int) -> tuple[str, ...]:
    return ("api-server", "--apps", apps, "--host", LOOPBACK, "--port", str(port))


def environment(layout: StackLayout, addresses: Addresses) -> dict[str, str]:
    """Return the whole environment of a process of this stack.

    Airflow and PostgreSQL settings of the caller are dropped: they belong to another Airflow.
    """
    foreign = ("AIRFLOW_", "AIRFLOW__", "PG", "LASTGOOD_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    ours = {**settings(layout, addresses), STACK_TAG: str(layout.var)}
    # Airflow's own processes find the catalog as they do in production: by their connection.
    del ours["LASTGOOD_CATALOG"]
    return {**inherited, **ours}


def settings(layout: StackLayout, addresses: Addresses) -> dict[str, str]:
    """Return what a shell needs in its environment to use this stack's Airflow and catalog."""
    secrets = SecretFile(layout.secrets)
    store = ObjectStore.of(layout)
    options = {
        **_core(layout, addresses, secrets),
        **_pace(),
    }
    return {
        "AIRFLOW_HOME": str(layout.airflow_home),
        **{f"AIRFLOW__{name.upper()}": value for name, value in options.items()},
        "LASTGOOD_CATALOG": addresses.catalog,
        "LASTGOOD_VAR": str(layout.var),
        "LASTGOOD_URL": f"{addresses.airflow_url}/lastgood",
        "GX_ANALYTICS_ENABLED": "false",
        # Airflow reads its own files by the locale's encoding, and they are UTF-8.
        "PYTHONUTF8": "1",
        # Airflow's processes rename themselves; without this, that overwrites the environment
        # which the kernel shows, and with it the tag.
        "SPT_NOENV": "1",
        **({} if store is None else store.environment),
    }


def _core(layout: StackLayout, addresses: Addresses, secrets: SecretFile) -> Mapping[str, str]:
    execution_api = f"http://{LOOPBACK}:{addresses.execution_port}/execution/"
    return {
        "core__dags_folder": str(layout.checkout / "dags"),
        "core__plugins_folder": str(layout.checkout / "plugins"),
        "core__load_examples": "False",
        "core__dags_are_paused_at_creation": "False",
        "core__executor": "LocalExecutor",
        "core__execution_api_server_url": execution_api,
        "core__fernet_key": _fernet_key(secrets.ensure("fernet")),
        "core__simple_auth_manager_users": ",".join(f"{user}:{user}" for user in USERS),
        "core__simple_auth_manager_passwords_file": str(layout.airflow_passwords),
        "database__sql_alchemy_conn": addresses.airflow_database,
        "database__load_default_connections": "False",
        "api__base_url": addresses.airflow_url,
        "api__host": LOOPBACK,
        "api__port": str(addresses.airflow_port),
        "api__secret_key": secrets.ensure("api"),
        "api_auth__jwt_secret": secrets.ensure("jwt"),
        "logging__colored_console_log": "False",
    }


def _pace() -> Mapping[str, str]:
    """Return the settings that fit a machine of two cores and let a triggered run start at once."""
    return {
        "core__parallelism": "4",
        "core__max_active_tasks_per_dag": "4",
        "scheduler__scheduler_heartbeat_sec": "1",
        "scheduler__scheduler_idle_sleep_time": "0.5",
        "dag_processor__parsing_processes": "1",
        "dag_processor__min_file_process_interval": "60",
        "dag_processor__refresh_interval": "30",
        # A loaded laptop parses slowly; the default of 50 s would drop a whole DAG for that.
        "dag_processor__dag_file_processor_timeout": "180",
    }


def _fernet_key(secret: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).decode()


def write_passwords(layout: StackLayout) -> Mapping[str, str]:
    """Give each user of Airflow a generated password, and return them by user.

    Airflow would otherwise generate them itself and print them to its log.
    """
    secrets = SecretFile(layout.secrets)
    passwords = {user: secrets.ensure(f"user {user}")[:20] for user in USERS}
    write_private(layout.airflow_passwords, json.dumps(passwords) + "\n")
    return passwords
