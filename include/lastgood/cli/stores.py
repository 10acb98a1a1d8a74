"""Commands about stores: list, create-tables, unregister."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say
from lastgood.cli.typed import Because
from lastgood.errors import CatalogSetup, InvalidInput
from lastgood.reports.words import human_bytes, instant
from lastgood.rules.quantities import counted

if TYPE_CHECKING:
    from lastgood.flows.unregister import GivenUp

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
        gone = [
            [
                one.store,
                instant(one.recorded_at),
                f"{one.lost_copies:,}" if one.lost else "—",
                human_bytes(one.lost_bytes) if one.lost else "—",
                one.actor,
                one.because,
            ]
            for one in ended
        ]
        print_table(["unregistered", "at", ">lost", ">size", "by", "because"], gone, "")


@store.command("unregister")
def unregister_store(
    name: Annotated[str, typer.Argument(metavar="STORE", help="Its name, as its file named it.")],
    because: Because,
    lost: Annotated[
        bool, typer.Option("--lost", help="It died: give up what lies in it. Nothing undoes that.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of --lost: only say what would be lost.")
    ] = False,
    json: Json = False,
) -> None:
    """Unregister a store that nothing needs any more. Its inventories and control keys are deleted.

    Refused, with all that is in the way, while a project, a policy, a copy, an attempt, an upload,
    a finding or another store's inventories depend on it. Take its file out of the configuration
    first: `lastgood apply` registers what that names.

    With --lost, of one that died with copies in it: they are recorded as lost, attempts and uploads
    in it end, and each latest pointer goes to the newest checkpoint that is left. Refused while
    anything is configured to write to it, and if it answers and holds one of its copies.
    """
    from lastgood.flows.unregister import give_up, unregister

    if dry_run and not lost:
        raise InvalidInput(where="--dry-run", reason="it is of --lost: say that, too")
    with services() as opened:
        if lost:
            given_up = give_up(
                opened.catalog,
                opened.stores,
                name,
                because=because,
                actor=actor(),
                dry_run=dry_run,
            )
            print_json(given_up.to_json()) if json else _say_given_up(given_up)
            return
        gone = unregister(opened.catalog, opened.stores, name, because=because, actor=actor())
    if json:
        print_json(gone)
        return
    deleted = counted(gone.inventories, "inventory", "inventories")
    also = f", and {deleted} of it deleted" if gone.inventories else ""
    say(f"Store {name} is unregistered{also}.")
    for left in gone.left:
        say(f"left there: {left}")


def _say_given_up(found: GivenUp) -> None:
    loss = found.loss
    rows = [
        [
            one.stage,
            one.copies,
            human_bytes(one.size_bytes),
            one.latest or "none",
            "blocked" if one.blocked else one.becomes or "none",
        ]
        for one in loss.stages
    ]
    say(f"Store {found.store}: {found.seen}")
    headers = ["stage", ">lost", ">size", "latest was", "latest is"]
    print_table(headers, rows, "No copy of it is left to be lost.")
    lost = f"{counted(loss.copies, 'copy', 'copies')} ({human_bytes(loss.size_bytes)})"
    also = f"{counted(loss.attempts, 'attempt')} and {counted(loss.uploads, 'upload')} ended"
    if found.lost_before:
        before = counted(found.lost_before, "copy", "copies")
        say(f"Recorded as lost with it before: {before}.")
    if found.at is None:
        say(f"Nothing was changed: {lost} would be lost.")
        return
    say(f"Recorded as lost: {lost}; {also}.")
    say(f"Store {found.store} is unregistered.")
    for left in found.left:
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
