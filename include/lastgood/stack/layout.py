"""Where the embedded stack keeps what: one folder of state beside a checkout.

var/lock            held by the supervisor while the stack runs
var/stack.json      what runs now: phase, processes, ports
var/secrets.json    keys and passwords, readable by us alone
var/postgres/       the database server
var/airflow/        AIRFLOW_HOME
var/stores/         file stores of the demo
var/logs/           one log per component
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lastgood.stack.errors import StackError


@dataclass(frozen=True)
class StackLayout:
    """The checkout whose DAGs run, and the folder of its state."""

    checkout: Path
    var: Path
    on_s3: bool = False

    @classmethod
    def current(cls) -> StackLayout:
        """Return the layout of the checkout that this package is installed from.

        The environment variable LASTGOOD_VAR moves the state elsewhere; with LASTGOOD_STORE=s3 the
        demo's store is S3, and the stack one of its own, in `var-s3/`. Raises StackError when the
        package was not installed from a checkout.
        """
        checkout = Path(__file__).resolve().parents[3]
        if not (checkout / "airflow_settings.yaml").is_file():
            raise StackError(
                f"{checkout} is no checkout of lastgood (it has no airflow_settings.yaml); "
                "install it from one with `pip install -e`"
            )
        var = os.environ.get("LASTGOOD_VAR", "").strip()
        on_s3 = os.environ.get("LASTGOOD_STORE", "") == "s3"
        beside = checkout / ("var-s3" if on_s3 else "var")
        return cls(checkout, Path(var).absolute() if var else beside, on_s3)

    @property
    def state(self) -> Path:
        return self.var / "stack.json"

    @property
    def secrets(self) -> Path:
        return self.var / "secrets.json"

    @property
    def postgres(self) -> Path:
        return self.var / "postgres"

    @property
    def airflow_home(self) -> Path:
        return self.var / "airflow"

    @property
    def airflow_passwords(self) -> Path:
        return self.airflow_home / "passwords.json"

    @property
    def stores(self) -> Path:
        return self.var / "stores"

    @property
    def logs(self) -> Path:
        return self.var / "logs"

    def log_of(self, component: str) -> Path:
        """Return the log file of one component."""
        return self.logs / f"{component}.log"

    def create(self) -> None:
        """Make the folders of the state."""
        self.var.mkdir(parents=True, exist_ok=True)
        for folder in (self.airflow_home, self.stores, self.logs):
            folder.mkdir(exist_ok=True)
