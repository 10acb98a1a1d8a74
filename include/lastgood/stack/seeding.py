"""Fill Airflow's metadata from `airflow_settings.yaml`, the file that an Astro project uses.

It runs as its own process (`python -m lastgood.stack.seeding`) with a stack's environment, because
importing Airflow binds it to one configuration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lastgood.stack.errors import StackError

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class AirflowSettings:
    """The connections, pools and variables of one settings file."""

    connections: Sequence[Entry]
    pools: Sequence[Entry]
    variables: Sequence[Entry]

    @classmethod
    def read(cls, path: Path) -> AirflowSettings:
        """Read the file. Raises StackError naming the entry that has no name."""
        content = yaml.safe_load(path.read_text()) or {}
        airflow = content.get("airflow") or {}
        return cls(
            _named(path, airflow, "connections", "conn_id"),
            _named(path, airflow, "pools", "pool_name"),
            _named(path, airflow, "variables", "variable_name"),
        )

    def with_connections(self, overlay: Mapping[str, Entry]) -> AirflowSettings:
        """Lay other values over the connections that the overlay names.

        Raises StackError for a name that the file does not have: the two would silently differ.
        """
        unknown = overlay.keys() - {connection["conn_id"] for connection in self.connections}
        if unknown:
            raise StackError(
                f"airflow_settings.yaml has no connection {', '.join(sorted(unknown))}"
            )
        laid = [{**known, **overlay.get(known["conn_id"], {})} for known in self.connections]
        return AirflowSettings(laid, self.pools, self.variables)


def _named(path: Path, airflow: Entry, section: str, key: str) -> Sequence[Entry]:
    entries: list[Entry] = [entry for entry in airflow.get(section) or [] if any(entry.values())]
    for number, entry in enumerate(entries, 1):
        if not entry.get(key):
            raise StackError(f"{path}: entry {number} of {section} has no {key}")
    return entries


def seed(settings: AirflowSettings) -> None:
    """Migrate Airflow's metadata database and write the settings into it, replacing older ones."""
    from airflow.utils import db
    from airflow.utils.session import create_session

    db.upgradedb()
    with create_session() as session:
        for connection in settings.connections:
            _write_connection(connection, session)
        for pool in settings.pools:
            _write_pool(pool, session)
        for variable in settings.variables:
            _write_variable(variable, session)


def _write_connection(entry: Entry, session: Any) -> None:
    from airflow.models.connection import Connection

    extra = entry.get("conn_extra") or None
    session.query(Connection).filter(Connection.conn_id == entry["conn_id"]).delete()
    session.add(
        Connection(
            conn_id=entry["conn_id"],
            conn_type=entry.get("conn_type"),
            host=entry.get("conn_host") or None,
            schema=entry.get("conn_schema") or None,
            login=entry.get("conn_login") or None,
            password=entry.get("conn_password") or None,
            port=entry.get("conn_port") or None,
            extra=extra if extra is None or isinstance(extra, str) else json.dumps(extra),
        )
    )


def _write_pool(entry: Entry, session: Any) -> None:
    from airflow.models.pool import Pool

    Pool.create_or_update_pool(
        name=entry["pool_name"],
        slots=int(entry.get("pool_slot") or 1),
        description=entry.get("pool_description") or "",
        include_deferred=False,
        session=session,
    )


def _write_variable(entry: Entry, session: Any) -> None:
    from airflow.models.variable import Variable

    Variable.set(key=entry["variable_name"], value=str(entry["variable_value"]), session=session)


def main() -> None:
    """Read the settings' path from the arguments and the overlay as JSON from standard input."""
    settings = AirflowSettings.read(Path(sys.argv[1]))
    seed(settings.with_connections(json.load(sys.stdin)))


if __name__ == "__main__":
    main()
