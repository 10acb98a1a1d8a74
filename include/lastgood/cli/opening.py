"""What commands work with: the catalog, its stores, and the name under which changes are
recorded."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastgood.catalog.connect import open_catalog
from lastgood.catalog.db import Transaction
from lastgood.catalog.settings import projects
from lastgood.errors import InvalidInput
from lastgood.flows.services import Services

OPERATOR_VARIABLE = "LASTGOOD_OPERATOR"


@contextmanager
def services() -> Iterator[Services]:
    """The catalog that LASTGOOD_CATALOG or Airflow's connection names, with its stores."""
    with open_catalog(max_size=4) as catalog:
        yield Services.of(catalog)


def require_known(tx: Transaction, project: str | None) -> None:
    """Raise NotFound for a project that is not there: nothing found of a mistyped one would read
    as good news. None is all of them."""
    if project is not None:
        projects.get(tx, project)


def operator() -> str:
    """Who gives the command: LASTGOOD_OPERATOR, else the account that runs it."""
    return os.environ.get(OPERATOR_VARIABLE, "").strip() or getpass.getuser()


def actor() -> str:
    """The name under which history records the command."""
    return f"operator:{operator()}"


def report_folder(typed: Path | None) -> Path:
    """Where reports are written: into what was typed, which is made if it is not there, else where
    the scheduled ones go. Raises InvalidInput, before there is a report, if it cannot be made."""
    from lastgood.flows.scheduled import report_folder as scheduled

    if typed is None:
        return scheduled()
    try:
        typed.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(where="--folder", reason=f"{typed}: {error.strerror}") from error
    return typed
