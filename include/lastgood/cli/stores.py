"""Commands about one store."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lastgood.cli.opening import services
from lastgood.cli.output import Json, print_json, say
from lastgood.errors import CatalogSetup, InvalidInput

OWNER_VARIABLE = "LASTGOOD_STORE_OWNER"

store = typer.Typer(no_args_is_help=True, help="The places for bytes.")

StoreName = Annotated[str, typer.Argument(metavar="STORE", help="Its name, as in stores/.")]


@store.command("create-tables")
def create_tables(
    name: StoreName,
    role: Annotated[
        str, typer.Option(help="The role that the application connects as.")
    ] = "lastgood_app",
    json: Json = False,
) -> None:
    """Make the tables of a store of kind postgres, once, as who may create its schema.

    The database is that of the environment variable LASTGOOD_STORE_OWNER (a libpq connection
    string; kept out of the arguments, where every process of the machine could read it).
    """
    from lastgood.catalog import projects
    from lastgood.stores.postgres_database import create_tables as run

    dsn = os.environ.get(OWNER_VARIABLE, "").strip()
    if not dsn:
        reason = f"set {OWNER_VARIABLE} to the connection string of who may create the schema"
        raise CatalogSetup(reason=reason)
    with services() as opened, opened.catalog.transaction() as tx:
        row = projects.store(tx, name)
    if row.kind != "postgres":
        raise InvalidInput(where="STORE", reason=f"{name} is of kind {row.kind}, not postgres")
    run(dsn, row.config["root"], role=role)
    if json:
        print_json({"store": name, "schema": row.config["root"], "role": role})
    else:
        say(f"Schema {row.config['root']} has the tables of {name}; role {role} may use them.")
