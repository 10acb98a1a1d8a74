"""Commands that set lastgood up: migrate, apply, serve, project-key, clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say
from lastgood.cli.typed import not_empty
from lastgood.errors import CatalogSetup, InvalidInput

OWNER_VARIABLE = "LASTGOOD_CATALOG_OWNER"

keys = typer.Typer(no_args_is_help=True, help="Keys by which jobs of a project acquire.")
clock = typer.Typer(no_args_is_help=True, help="Jumps of the catalog's clock.")


def migrate(
    app_role: Annotated[
        str, typer.Option(help="The role that the application connects as.")
    ] = "lastgood_app",
    json: Json = False,
) -> None:
    """Bring the catalog's schema to this version, as the owner of its tables.

    The database is that of the environment variable LASTGOOD_CATALOG_OWNER (a libpq connection
    string; kept out of the arguments, where every process of the machine could read it).
    """
    from lastgood.catalog.migrate import head
    from lastgood.catalog.migrate import migrate as run

    dsn = os.environ.get(OWNER_VARIABLE, "").strip()
    if not dsn:
        raise CatalogSetup(
            reason=f"set {OWNER_VARIABLE} to the connection string of the tables' owner"
        )
    run(dsn, app_role=app_role)
    if json:
        print_json({"revision": head(), "app_role": app_role})
    else:
        say(f"The catalog is at revision {head()}; role {app_role} has what it needs.")


def apply(
    folder: Annotated[
        Path, typer.Argument(help="The folder with stores/, projects/ and policies/.")
    ] = Path("include/config"),
    probe: Annotated[
        bool, typer.Option("--probe", help="Probe stores that were probed before, too.")
    ] = False,
    json: Json = False,
) -> None:
    """Write the configuration of a folder into the catalog: stores, projects, policies.

    A store that was never probed at its place is probed first, and refused if it is not fit.
    """
    from lastgood.flows.settings.apply import apply as run

    if not folder.is_dir():
        raise InvalidInput(where="FOLDER", reason=f"{folder} is not a folder of configuration")
    with services() as opened:
        changes = run(opened.catalog, folder, actor=actor(), probe=probe)
    if json:
        print_json({"changes": changes})
        return
    rows = [[one.what, one.name, one.how] for one in changes]
    print_table(["what", "name", "how"], rows, "Nothing changed.")
    for one in changes:
        for warning in one.warnings:
            say(f"warning: {one.name}: {warning}")


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8792,
) -> None:
    """Serve the coordinator alone, without Airflow.

    Operator routes and pages are there if LASTGOOD_OPERATOR_TOKEN_SHA256 holds the SHA-256 of the
    operator token. End TLS before it wherever it is not reached over loopback alone.
    """
    from lastgood.coordinator.serve import serve as run

    run(host, port)


@keys.command("create")
def create_key(
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    json: Json = False,
) -> None:
    """Give a project a key. It is shown this once and not kept."""
    from lastgood.catalog.settings.tokens import create_project_key
    from lastgood.rules.names import check_name

    check_name(name, "key name")
    with services() as opened, opened.catalog.transaction() as tx:
        token = create_project_key(tx, project, name)
    if json:
        print_json({"project": project, "name": name, "key": token})
    else:
        say(token)


@keys.command("revoke")
def revoke_key(
    project: Annotated[str, typer.Argument(metavar="PROJECT")],
    name: Annotated[str, typer.Argument(metavar="NAME")],
    json: Json = False,
) -> None:
    """End a project's key at once. Generations acquired with it go on."""
    from lastgood.catalog.settings.tokens import revoke_project_key

    with services() as opened, opened.catalog.transaction() as tx:
        revoke_project_key(tx, project, name)
    if json:
        print_json({"project": project, "name": name, "revoked": True})
    else:
        say(f"Key {name} of {project} is revoked.")


@clock.command("list")
def list_jumps(json: Json = False) -> None:
    """Jumps that nobody accepted; everything destructive waits for them."""
    from lastgood.catalog.clock import unaccepted

    with services() as opened, opened.catalog.transaction() as tx:
        found = unaccepted(tx)
    if json:
        print_json({"jumps": found})
        return
    rows = [[one.jump_id, f"{one.jump_seconds:+.0f} s", one.observed_at] for one in found]
    print_table([">jump", ">by", "observed"], rows, "No jump waits.")


@clock.command("accept")
def accept_jump(
    jump: Annotated[int, typer.Argument(help="Its number, as `clock list` shows it.")],
    because: Annotated[str, typer.Option(help="Why the clock is right again.", callback=not_empty)],
    json: Json = False,
) -> None:
    """Accept a jump of the clock, so that destructive work goes on."""
    from lastgood.catalog.clock import accept

    with services() as opened, opened.catalog.transaction() as tx:
        accept(tx, jump, accepted_by=actor(), because=because)
    if json:
        print_json({"jump": jump, "accepted": True})
    else:
        say(f"Jump {jump} is accepted.")
