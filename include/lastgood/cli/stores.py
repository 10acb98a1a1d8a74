"""Commands about one store."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lastgood.cli.output import Json, print_json, say
from lastgood.errors import CatalogSetup

OWNER_VARIABLE = "LASTGOOD_STORE_OWNER"

store = typer.Typer(no_args_is_help=True, help="The places for bytes.")


@store.command("create-tables")
def create_tables(
    schema: Annotated[
        str, typer.Argument(metavar="SCHEMA", help="The store's schema, as its file names it.")
    ],
    role: Annotated[
        str, typer.Option(help="The role that the application connects as.")
    ] = "lastgood_app",
    json: Json = False,
) -> None:
    """Make the tables of a store of kind postgres, before it is applied.

    It is done once, as somebody who may create the schema. The database is that of the environment
    variable LASTGOOD_STORE_OWNER (a libpq connection string; kept out of the arguments, where every
    process of the machine could read it).
    """
    from lastgood.rules.names import check_schema
    from lastgood.stores.postgres_database import create_tables as run

    dsn = os.environ.get(OWNER_VARIABLE, "").strip()
    if not dsn:
        reason = f"set {OWNER_VARIABLE} to the connection string of who may create the schema"
        raise CatalogSetup(reason=reason)
    run(dsn, check_schema(schema, "SCHEMA"), role=role)
    if json:
        print_json({"schema": schema, "role": role})
    else:
        say(f"Schema {schema} has the tables of a store; role {role} may use them.")
