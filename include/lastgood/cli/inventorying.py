"""Commands over inventories and accountings: inventory list, take, diff; accounting show, set."""

from __future__ import annotations

from typing import Annotated

import typer

from lastgood.catalog.reconciliation import inventories as catalog_inventories
from lastgood.catalog.settings import projects
from lastgood.cli.exits import end_in_part
from lastgood.cli.listing import ListByDefault
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say, steps
from lastgood.cli.typed import typed_instant
from lastgood.errors import InvalidInput
from lastgood.reports.words import human_bytes, instant

StoreName = Annotated[str, typer.Argument(metavar="STORE")]

inventory = typer.Typer(
    cls=ListByDefault, help="Inventories of stores: list (the default), take, diff."
)
accounting = typer.Typer(
    no_args_is_help=True, help="What backends account, from operators: show, set."
)


@inventory.command("list")
def list_inventories(
    store: Annotated[str | None, typer.Option(metavar="STORE", help="Only this store's.")] = None,
    json: Json = False,
) -> None:
    """Inventories that were not deleted, the newest first."""
    with services() as opened, opened.catalog.transaction() as tx:
        names = [one.name for one in projects.stores(tx)]
        if store is not None:
            names = [projects.store(tx, store).name]
        found = [one for name in names for one in catalog_inventories.of_store(tx, name)]
    if json:
        print_json({"inventories": found})
        return
    rows = [
        [
            one.inventory,
            one.store,
            one.state,
            one.facts.get("objects", ""),
            human_bytes(one.facts.get("bytes")),
            one.place,
            instant(one.started_at),
        ]
        for one in found
    ]
    headers = ["inventory", "store", "state", ">objects", ">size", "kept in", "began"]
    print_table(headers, rows, "No inventory yet: run `lastgood inventory take`.")


@inventory.command("take")
def take_inventory(
    store: StoreName,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Read this S3 Inventory report (its manifest.json, or the folder of reports) in"
            " place of listing.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Take an inventory of a store now, and delete those whose time is over."""
    from lastgood.flows.inventories import by_name as flow

    with services() as opened:
        with opened.catalog.transaction() as tx:
            names = projects.names(tx)
            here = [one for one in names if store in projects.stores_of(tx, one)]
        with steps() as shown:
            manifest = flow.take(
                opened.catalog,
                opened.stores,
                store,
                accounts_for=here,
                actor=actor(),
                report=report,
                progress=lambda phase, done: shown.reach(phase, done),
            )
        dropped = flow.drop_old(opened.catalog, opened.stores.__getitem__, store, actor=actor())
    told = {
        "inventory": manifest.inventory,
        "source": manifest.source,
        "objects": manifest.objects,
        "bytes": manifest.size_bytes,
        "uploads": manifest.uploads,
        "kept_bytes": manifest.kept_bytes,
        "dropped": dropped.inventories,
        "dropped_bytes": dropped.size_bytes,
        "not_deleted": list(dropped.failed),
    }
    if json:
        print_json(told)
    else:
        for name, value in told.items():
            say(f"{name.replace('_', ' ')}: {value}")
    end_in_part(dropped.failed)


@inventory.command("diff")
def diff_inventories(
    before: Annotated[str, typer.Argument(metavar="BEFORE")],
    after: Annotated[str, typer.Argument(metavar="AFTER")],
    json: Json = False,
) -> None:
    """What became new, gone and changed between two inventories of a store, by prefix."""
    from lastgood.flows.inventories import by_name as flow

    with services() as opened:
        found = flow.difference(opened.catalog, opened.stores, before, after)
    if json:
        print_json({"difference": found, "grown_bytes": found.grown_bytes})
        return
    rows = [
        [
            one.prefix or "all",
            one.new,
            human_bytes(one.new_bytes),
            one.gone,
            human_bytes(one.gone_bytes),
            one.changed,
            f"{one.changed_bytes:+,}",
        ]
        for one in (found.total, *found.by_prefix)
    ]
    headers = ["prefix", ">new", ">size", ">gone", ">size", ">changed", ">by bytes"]
    print_table(headers, rows, "")


@accounting.command("set")
def set_accounting(
    store: StoreName,
    size_bytes: Annotated[int, typer.Argument(metavar="BYTES")],
    as_of: Annotated[str, typer.Option(metavar="INSTANT", help="When the backend accounted so.")],
    because: Annotated[str, typer.Option(help="Where the number is from; recorded.")],
    cause: Annotated[
        str,
        typer.Option(help="What it is of: total, or one cause in it, such as snapshots."),
    ] = catalog_inventories.TOTAL,
    replicas: Annotated[
        int, typer.Option(help="So many times does the backend count each byte.")
    ] = 1,
    json: Json = False,
) -> None:
    """Say what a backend accounts for a store; the next inventory is held against it."""
    from lastgood.flows.inventories import accounting as flow

    at = typed_instant(as_of, "--as-of")
    if at is None:
        raise InvalidInput(where="--as-of", reason="say when the backend accounted so")
    with services() as opened:
        told = flow.set_number(
            opened.catalog,
            store,
            size_bytes,
            as_of=at,
            because=because,
            actor=actor(),
            cause=cause,
            replicas=replicas,
        )
    if json:
        print_json({"number": told})
    else:
        say(f"{told.cause} of {store}: {told.size_bytes} bytes at {instant(told.as_of)}")


@accounting.command("show")
def show_accounting(store: StoreName, json: Json = False) -> None:
    """The newest numbers that operators said of a store."""
    from lastgood.flows.inventories import accounting as flow

    with services() as opened:
        found = flow.numbers(opened.catalog, store)
    if json:
        print_json({"numbers": found})
        return
    rows = [
        [one.cause, f"{one.size_bytes:,}", one.replicas, instant(one.as_of), one.because, one.actor]
        for one in found
    ]
    headers = ["cause", ">bytes", ">replicas", "as of", "because", "who"]
    print_table(headers, rows, "No operator said what the backend accounts.")
