"""Commands about stores: list, create-tables, unregister."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say
from lastgood.cli.typed import Because
from lastgood.errors import CatalogSetup
from lastgood.reports.words import instant
from lastgood.rules.quantities import counted

OWNER_VARIABLE = "LASTGOOD_STORE_OWNER"

store = typer.Typer(no_args_is_help=True, help="The places for bytes.")


@store.command("list")
def list_stores(json: Json = False) -> None:
    """The registered stores, and those that were unregistered, by whom and why."""
    from lastgood.catalog.settings import projects, store_profiles, store_registrations

    with services() as opened, opened.catalog.transaction() as tx:
        found = [(row, store_profiles.newest(tx, row)) for row in projects.stores(tx)]
        ended = store_registrations.unregistered(tx)
    if json:
        registered = [
            {"store": row, "probed_at": kept.recorded_at if kept else None} for row, kept in found
        ]
        print_json({"stores": registered, "unregistered": ended})
        return
    rows = [
        [
            row.name,
            row.kind,
            row.failure_domain,
            row.tier,
            instant(kept.recorded_at) if kept else "never",
        ]
        for row, kept in found
    ]
    headers = ["store", "kind", "failure domain", "tier", "probed"]
    print_table(headers, rows, "No store is registered: run `lastgood apply`.")
    if ended:
        gone = [[one.store, instant(one.recorded_at), one.actor, one.because] for one in ended]
        print_table(["unregistered", "at", "by", "because"], gone, "")


@store.command("unregister")
def unregister_store(
    name: Annotated[str, typer.Argument(metavar="STORE", help="Its name, as its file named it.")],
    because: Because,
    json: Json = False,
) -> None:
    """Unregister a store that nothing needs any more. Its inventories and control keys are deleted.

    Refused, with all that is in the way, while a project, a policy, a copy, an attempt, an upload,
    a finding or another store's inventories depend on it. Take its file out of the configuration
    first: `lastgood apply` registers what that names.
    """
    from lastgood.flows.unregister import unregister

    with services() as opened:
        gone = unregister(opened.catalog, opened.stores, name, because=because, actor=actor())
    if json:
        print_json(gone)
        return
    deleted = counted(gone.inventories, "inventory", "inventories")
    also = f", and {deleted} of it deleted" if gone.inventories else ""
    say(f"Store {name} is unregistered{also}.")
    for left in gone.left:
        say(f"left there: {left}")


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
