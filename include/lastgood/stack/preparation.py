"""What a stack needs before Airflow can start: a server, two databases, schemas, settings."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from lastgood.stack import object_store
from lastgood.stack.airflow import Addresses, environment, settings, write_passwords
from lastgood.stack.children import tail
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.ports import chosen_port
from lastgood.stack.postgres import EmbeddedPostgres

_log = logging.getLogger(__name__)

AIRFLOW_ROLE, AIRFLOW_DATABASE = "airflow", "airflow"
OWNER_ROLE, APP_ROLE, CATALOG_DATABASE = "lastgood_owner", "lastgood_app", "lastgood"


def start_server(
    layout: StackLayout, former: Addresses | None, ports: ExitStack
) -> EmbeddedPostgres:
    """Start the database server, on its former port if that is free; `ports` holds it."""
    port = ports.enter_context(
        chosen_port("LASTGOOD_POSTGRES_PORT", former.postgres_port if former else None)
    )
    return EmbeddedPostgres.start(layout.postgres, port=port)


def open_databases(
    server: EmbeddedPostgres, former: Addresses | None, ports: ExitStack
) -> Addresses:
    """Make the roles and databases that are missing, and choose where Airflow listens: it takes
    many seconds to come there, and `ports` holds the place."""
    for role in (AIRFLOW_ROLE, OWNER_ROLE, APP_ROLE):
        server.create_role(role)
    for database, owner in ((AIRFLOW_DATABASE, AIRFLOW_ROLE), (CATALOG_DATABASE, OWNER_ROLE)):
        if not server.has_database(database):
            server.create_database(database, owner=owner)
    airflow_dsn = server.dsn(AIRFLOW_DATABASE, AIRFLOW_ROLE)
    airflow_port = ports.enter_context(
        chosen_port("LASTGOOD_AIRFLOW_PORT", former.airflow_port if former else None)
    )
    execution_port = ports.enter_context(
        chosen_port("LASTGOOD_EXECUTION_PORT", former.execution_port if former else None)
    )
    return Addresses(
        airflow_port=airflow_port,
        execution_port=execution_port,
        postgres_port=server.port,
        airflow_database=airflow_dsn.replace("postgresql://", "postgresql+psycopg2://"),
        catalog=server.dsn(CATALOG_DATABASE, APP_ROLE),
    )


class AirflowSeeding:
    """The process that migrates Airflow's metadata and writes the settings into it."""

    def __init__(self, layout: StackLayout, addresses: Addresses) -> None:
        """Start it; it takes seconds, so the caller goes on with other work meanwhile."""
        write_passwords(layout)
        self._log = layout.log_of("seeding")
        seeds = layout.checkout / "airflow_settings.yaml"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lastgood.stack.seeding", str(seeds)],
                cwd=layout.airflow_home,
                env=environment(layout, addresses),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with self._process.stdin as request:
            json.dump(_embedded_connections(addresses), request)

    def finish(self) -> None:
        """Wait for its end. Raises StackError with the end of its log."""
        if self._process.wait() != 0:
            raise StackError(f"Airflow's metadata cannot be prepared:\n{tail(self._log)}")


def _embedded_connections(addresses: Addresses) -> Mapping[str, Mapping[str, Any]]:
    catalog = conninfo_to_dict(addresses.catalog)
    return {
        "lastgood_catalog": {
            "conn_host": catalog["host"],
            "conn_port": catalog["port"],
            "conn_login": catalog["user"],
            "conn_password": catalog["password"],
            "conn_schema": catalog["dbname"],
        }
    }


def prepare_catalog(layout: StackLayout, server: EmbeddedPostgres, addresses: Addresses) -> None:
    """Migrate the catalog and apply the configuration of the checkout to it."""
    from lastgood.catalog.db import Catalog
    from lastgood.catalog.migrate import migrate
    from lastgood.flows.settings.apply import apply
    from lastgood.flows.settings.configuration import read_configuration
    from lastgood.stores.postgres_database import create_tables

    config = object_store.configuration(layout)
    owner = server.dsn(CATALOG_DATABASE, OWNER_ROLE)
    migrate(owner, app_role=APP_ROLE)
    for store in read_configuration(config).stores:
        if store.kind == "postgres" and not store.config["connection"]:
            create_tables(owner, store.config["root"], role=APP_ROLE)
    # Relative roots of file stores are below LASTGOOD_VAR; S3 is found by Airflow's connection.
    os.environ |= settings(layout, addresses)
    with Catalog(addresses.catalog) as catalog:
        for change in apply(catalog, config, actor="system"):
            _log.info("applied: %s", change)
