"""The commands under one roof, and what becomes of their errors."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import psycopg
import psycopg_pool
import typer

from lastgood.cli import (
    auditing,
    capacity,
    drilling,
    following,
    inventorying,
    keeping,
    looking,
    policies,
    promoting,
    rebuilding,
    reporting,
    retiring,
    setup,
    store_profiles,
    stores,
    uploads,
    working,
)
from lastgood.cli.exits import BROKEN, INTERRUPTED, NOBODY_READS, USAGE, fail, let_go_of_output
from lastgood.cli.naming import name_as_typed
from lastgood.errors import CatalogSetup, InvalidInput, LastgoodError, Unavailable, WrongCommand

app = typer.Typer(
    name="lastgood",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Keeps the last good checkpoint of every training job recoverable, deletes the rest with"
        " proof, and explains every byte that is left.\n\n"
        "The catalog is found by the environment variable LASTGOOD_CATALOG (a libpq connection"
        " string), else by Airflow's connection lastgood_catalog. Changes are recorded under"
        " LASTGOOD_OPERATOR, else under the account that runs the command. With --json every"
        " command prints JSON, an error as a problem document.\n\n"
        "Exit codes: 0 done; 1 the answer is no, or a check failed; 2 the command or its input is"
        " wrong; 3 refused by the state; 4 not found; 5 not available, or behind its stores."
    ),
)
_COMMANDS: tuple[Callable[..., None], ...] = (
    setup.migrate,
    setup.apply,
    setup.serve,
    looking.status,
    looking.stages,
    looking.checkpoints,
    looking.show,
    looking.why,
    looking.receipts,
    uploads.uploads,
    looking.marks,
    capacity.capacity,
    keeping.hold,
    keeping.holds,
    keeping.release,
    working.verify,
    working.mark,
    working.sweep,
    working.cleanup,
    working.reconcile,
    rebuilding.rebuild,
    rebuilding.release_preview,
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(auditing.audit, name="audit")
app.add_typer(drilling.drill, name="drill")
app.add_typer(keeping.quarantine, name="quarantine")
app.add_typer(keeping.stage, name="stage")
app.add_typer(following.findings, name="findings")
app.add_typer(reporting.reports, name="reports")
app.add_typer(inventorying.inventory, name="inventory")
app.add_typer(inventorying.accounting, name="accounting")
policies.policy.command("record")(promoting.record)
policies.policy.command("diff")(promoting.diff)
policies.policy.command("promote")(promoting.promote)
policies.policy.command("rollback")(promoting.rollback)
policies.policy.command("approve")(promoting.approve)
policies.policy.command("promotions")(promoting.list_promotions)
app.add_typer(policies.policy, name="policy")
app.add_typer(retiring.retire, name="retire")
stores.store.command("probe")(store_profiles.probe)
stores.store.command("profile")(store_profiles.profile)
app.add_typer(stores.store, name="store")
app.add_typer(setup.keys, name="project-key")
app.add_typer(setup.clock, name="clock")


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its code; errors end as one line, or as a problem document."""
    given = sys.argv[1:] if arguments is None else arguments
    as_document = "--json" in given
    try:
        _require_unicode(given)
        code = _invoked(given)
        sys.stdout.flush()
    except typer.TyperException as error:
        if as_document:
            fail(_wrong_command(error), as_document=True)
        wrong: Any = error  # the class that shows itself is private to Typer
        wrong.show()
        raise SystemExit(USAGE) from None
    except LastgoodError as error:
        fail(error, as_document=as_document)
    except psycopg.DataError as error:
        reason = f"the catalog cannot hold a value: {str(error).splitlines()[0]}"
        fail(InvalidInput(where="the command", reason=reason), as_document=as_document)
    except psycopg.errors.InsufficientPrivilege as error:
        reason = f"{str(error).splitlines()[0]}; `lastgood migrate` grants what its role needs"
        fail(CatalogSetup(reason=reason), as_document=as_document)
    except BrokenPipeError:
        let_go_of_output()
        raise SystemExit(NOBODY_READS) from None
    except OSError as error:
        fail(_of_the_system(error), as_document=as_document)
    except (psycopg.OperationalError, psycopg_pool.PoolTimeout) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fail(Unavailable(what="the catalog", reason=reason), as_document=as_document)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(BROKEN) from None
    raise SystemExit(code)


def _invoked(given: list[str]) -> int:
    """Run a command; answers its exit code."""
    command = typer.main.get_command(app)
    name_as_typed(command)
    try:
        with command.make_context("lastgood", list(given)) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def _of_the_system(error: OSError) -> LastgoodError:
    reason = error.strerror or type(error).__name__
    if error.filename is None:
        return Unavailable(what="the output, or a connection,", reason=reason)
    return InvalidInput(where=str(error.filename), reason=reason)


def _wrong_command(error: typer.TyperException) -> WrongCommand:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "lastgood"
    return WrongCommand(command=command, reason=error.format_message())


def _require_unicode(given: list[str]) -> None:
    for number, argument in enumerate(given, start=1):
        if any("\ud800" <= char <= "\udfff" for char in argument):
            raise InvalidInput(where=f"argument {number}", reason="it is not UTF-8")
