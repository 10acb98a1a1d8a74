"""Real services for the tests: one PostgreSQL server per run, one database per test, three S3
servers (Ceph's in `tests/ceph`, LocalStack's in `tests/localstack`, and moto's)."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import psutil
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql

from lastgood.stack import children, control
from lastgood.stack.airflow import Addresses, write_passwords
from lastgood.stack.airflow_api import AirflowApi
from lastgood.stack.errors import DataDirInUse
from lastgood.stack.layout import StackLayout
from lastgood.stack.ports import LOOPBACK
from lastgood.stack.postgres import SUPERUSER, EmbeddedPostgres, remove
from tests.ceph.fixtures import (  # noqa: F401 - tests find fixtures by their names
    attesting,
    ceph,
    ceph_bucket,
    ceph_client,
    ceph_locked_bucket,
    ceph_versioned_bucket,
    make_ceph_bucket,
)
from tests.localstack.fixtures import (  # noqa: F401 - tests find fixtures by their names
    localstack,
    localstack_client,
    make_localstack_bucket,
)
from tests.slowest import pytest_terminal_summary  # noqa: F401 - pytest finds it by its name

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

# A shell may know another catalog, Airflow or cloud, and a proxy that knows no loopback.
_FOREIGN = ("AIRFLOW_", "AWS_", "LASTGOOD_", "PG")
_OURS = (
    "LASTGOOD_BACKFILL_HOURS",
    "LASTGOOD_REQUIRE_CEPH",
    "LASTGOOD_REQUIRE_LOCALSTACK",
    "LASTGOOD_SOAK",
)
for _name in list(os.environ):
    if (_name.startswith(_FOREIGN) and _name not in _OURS) or _name.lower().endswith("_proxy"):
        del os.environ[_name]

# Importing Airflow makes a home; not that of whoever runs the tests.
os.environ["AIRFLOW_HOME"] = str(
    Path(tempfile.gettempdir()) / f"lastgood-test-airflow-{os.geteuid()}"
)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

# The same examples each time, however busy the machine is; `make soak` looks for others.
_SOAKS = bool(os.environ.get("LASTGOOD_SOAK"))
settings.register_profile(
    "lastgood",
    derandomize=not _SOAKS,
    max_examples=1000 if _SOAKS else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lastgood")

APP_ROLE = "lastgood_app"
OWNER_ROLE = "lastgood_owner"
TEMPLATE_DATABASE = "lastgood_template"
# Not below pytest's own folders, which are closed to the server's account.
_SERVER_FOLDERS = "lastgood-test-postgres-"
# A folder in memory where there is one: a copy of the template is some 350 files, and takes a
# journalling file system eight times as long.
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2 * 2**30
_SLOW_SECONDS = 1800
_CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1600",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests the time that they take where others work beside them."""
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


class CatalogDatabase(NamedTuple):
    """One migrated database of one test, and who may do what in it."""

    owner_dsn: str
    app_dsn: str


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One embedded server for the whole run, not durable."""
    _remove_servers_of_killed_runs()
    mine = f"{_SERVER_FOLDERS}{os.getpid()}-"
    data_dir = Path(tempfile.mkdtemp(prefix=mine, dir=_folder_of_servers()))
    with EmbeddedPostgres.start(data_dir, durable=False) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as superuser:
            superuser.execute("ALTER SYSTEM SET max_wal_size = '256MB'")
            superuser.execute("SELECT pg_reload_conf()")
            # Generated passwords need no stretching, and each of many sessions would pay for it.
            superuser.execute("ALTER ROLE postgres SET scram_iterations = 1")
        server.create_role(SUPERUSER)
        yield server
    remove(data_dir)


@pytest.fixture(scope="session")
def template_catalog(postgres: EmbeddedPostgres) -> str:
    """The name of a database that is migrated once and copied for each test."""
    from lastgood.catalog.migrate import migrate

    postgres.create_role(APP_ROLE)
    postgres.create_role(OWNER_ROLE)
    postgres.create_database(TEMPLATE_DATABASE, owner=OWNER_ROLE)
    migrate(postgres.dsn(TEMPLATE_DATABASE, OWNER_ROLE), app_role=APP_ROLE)
    return TEMPLATE_DATABASE


@pytest.fixture
def catalog_database(
    postgres: EmbeddedPostgres, template_catalog: str
) -> Iterator[CatalogDatabase]:
    """A fresh migrated database, dropped afterwards with whatever sessions it still has."""
    name = f"catalog_{secrets.token_hex(6)}"
    postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
    yield CatalogDatabase(postgres.dsn(name, OWNER_ROLE), postgres.dsn(name, APP_ROLE))
    postgres.drop_database(name)


@pytest.fixture
def catalog_dsn(catalog_database: CatalogDatabase) -> str:
    """The application role's URL of this test's catalog."""
    return catalog_database.app_dsn


@pytest.fixture
def owner_dsn(catalog_database: CatalogDatabase) -> str:
    """The URL of who owns this test's tables (no superuser); the database of `catalog_dsn`."""
    return catalog_database.owner_dsn


class MoveClock(Protocol):
    """Moves the catalog's clock of one test further; moves add up."""

    def __call__(self, by: timedelta, *, explained: bool = True) -> None:
        """`explained=False` leaves the readings that make a jump of the clock noticed."""


@pytest.fixture
def move_clock(owner_dsn: str) -> MoveClock:
    """Let time pass in the catalog without waiting for it."""
    moved = timedelta()

    def move(by: timedelta, *, explained: bool = True) -> None:
        nonlocal moved
        moved += by
        body = f"SELECT clock_timestamp() + interval '{moved.total_seconds():.6f} s'"
        with psycopg.connect(owner_dsn) as connection:
            connection.execute(
                sql.SQL(
                    "CREATE OR REPLACE FUNCTION lastgood.catalog_clock() RETURNS timestamptz"
                    " LANGUAGE sql VOLATILE AS {}"
                ).format(sql.Literal(body))
            )
            if explained:
                connection.execute(
                    "UPDATE lastgood.clock_readings SET catalog_at = catalog_at + %s", (by,)
                )

    return move


@dataclass(frozen=True)
class RunningStack:
    """A whole stack: PostgreSQL, Airflow's components, the coordinator in the api-server."""

    layout: StackLayout
    addresses: Addresses

    @property
    def url(self) -> str:
        """Airflow's address; the coordinator is below it under /lastgood."""
        return self.addresses.airflow_url

    @property
    def catalog_dsn(self) -> str:
        """The application role's URL of its catalog."""
        return self.addresses.catalog

    @property
    def passwords(self) -> Mapping[str, str]:
        """The passwords of Airflow's users admin, op and viewer."""
        return write_passwords(self.layout)

    def airflow(self, user: str = "admin") -> AirflowApi:
        """Airflow's REST API as that user."""
        return AirflowApi(self.url, user, self.passwords[user])


@pytest.fixture(scope="session")
def airflow_stack() -> Iterator[RunningStack]:
    """One stack for the whole run; it takes half a minute to start, so mark its tests `slow`."""
    with stack_in_temporary_folder() as layout:
        state = control.up(layout, tell=print)
        assert state.addresses is not None
        yield RunningStack(layout, state.addresses)


@contextmanager
def stack_in_temporary_folder() -> Iterator[StackLayout]:
    """The layout of a stack of this checkout that may be started, and is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="lastgood-test-stack-"))
    folder.chmod(0o711)
    layout = StackLayout(StackLayout.current().checkout, folder / "var")
    try:
        yield layout
    finally:
        control.clean(layout)
        folder.rmdir()
        assert children.strays(layout.var) == frozenset()


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[str]:
    """The endpoint URL of an S3 server of moto; buckets are shared by the run, so name your own."""
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        server = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[WebDriver]:
    """A real, headless browser with an empty profile; the test is skipped where there is none."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs Chromium and chromedriver on the PATH")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser
    for flag in (*_CHROMIUM_FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


def _folder_of_servers() -> Path:
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES
    return _MEMORY if roomy else Path(tempfile.gettempdir())


def _remove_servers_of_killed_runs() -> None:
    parents = (Path(tempfile.gettempdir()), _MEMORY)
    for folder in (found for parent in parents for found in parent.glob(f"{_SERVER_FOLDERS}*")):
        # One that is just being made is not locked yet; another run may remove one meanwhile.
        with suppress(FileNotFoundError, DataDirInUse):
            if folder.stat().st_uid == os.geteuid() and not _lives(folder):
                remove(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _lives(folder: Path) -> bool:
    """Whether the run lives whose server has this folder; its name begins with the run's id."""
    run = folder.name.removeprefix(_SERVER_FOLDERS).partition("-")[0]
    return run.isdecimal() and psutil.pid_exists(int(run))
