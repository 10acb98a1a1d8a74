"""What the demo reaches in a running stack, each by the way that its users have."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from lastgood.catalog.db import Catalog
from lastgood.flows.services import Services
from lastgood.stack.airflow import STACK_TAG, Addresses, settings, write_passwords
from lastgood.stack.airflow_api import AirflowApi
from lastgood.stack.demo.bucket import Bucket
from lastgood.stack.demo.disk import Disk, Outside
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.object_store import ObjectStore
from lastgood.stores.open import folder_of

PROJECT = "demo"
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Place:
    """A running stack. `folder` is removed at the end."""

    layout: StackLayout
    addresses: Addresses
    airflow: AirflowApi
    services: Services
    folder: Path

    @property
    def url(self) -> str:
        """Where jobs find the coordinator."""
        return self.addresses.airflow_url

    @property
    def store(self) -> str:
        """The name of the demo's store."""
        return "local" if ObjectStore.of(self.layout) is None else "s3"

    @property
    def outside(self) -> Outside:
        """The demo's store, seen without the library."""
        found = ObjectStore.of(self.layout)
        if found is not None:
            return Bucket(found.client(), found.bucket)
        with self.services.catalog.transaction() as tx:
            from lastgood.catalog.settings import projects

            return Disk(folder_of(str(projects.store(tx, self.store).config["root"])))

    def operator(self, path: str, **parameters: Any) -> Any:
        """What an operator's route of the coordinator answers."""
        return self.airflow.get(f"/lastgood/v1/{path}", **parameters)

    def lastgood(self, *arguments: str) -> Any:
        """Run the operator's command line and return its JSON. Raises StackError."""
        done = subprocess.run(
            [sys.executable, "-m", "lastgood.cli", *arguments, "--json"],
            env={
                **os.environ,
                **settings(self.layout, self.addresses),
                "LASTGOOD_OPERATOR": PROJECT,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"lastgood {' '.join(arguments)}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def job_environment(self, key: str) -> Mapping[str, str]:
        """What a training job gets: its project's key, and nothing of the catalog or of Airflow."""
        ours = ("LASTGOOD_", "AIRFLOW")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        return {
            **inherited,
            "LASTGOOD_PROJECT_KEY": key,
            "TMPDIR": str(self.folder),  # so that a killed job leaves nothing anywhere else
            STACK_TAG: str(self.layout.var),
        }


@contextmanager
def reached(layout: StackLayout, addresses: Addresses) -> Iterator[Place]:
    """The place of a stack that is ready."""
    with ExitStack() as opened:
        password = write_passwords(layout)["admin"]
        airflow = opened.enter_context(AirflowApi(addresses.airflow_url, "admin", password))
        catalog = opened.enter_context(Catalog(addresses.catalog, max_size=2))
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="lastgood-demo-"))
        yield Place(layout, addresses, airflow, Services.of(catalog), Path(folder))


@contextmanager
def project_key(place: Place) -> Iterator[str]:
    """A key of the project for as long as the demo runs."""
    name = f"make-run-{secrets.token_hex(4)}"
    key: str = place.lastgood("project-key", "create", PROJECT, name)["key"]
    try:
        yield key
    finally:
        place.lastgood("project-key", "revoke", PROJECT, name)


@contextmanager
def reading(place: Place, key: str, workload: str, stage: str, checkpoint: str) -> Iterator[None]:
    """A reader's lease on a checkpoint, as a slow evaluation job would have, until the block
    ends."""
    url = f"{place.url}/lastgood/v1/runner/"
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        asked = {
            "workload": workload,
            "stage": stage,
            "checkpoint": checkpoint.partition("/")[2],
            "reader": "make-run-reader",
        }
        answer = client.post("readers", json=asked, headers=_bearing(key)).raise_for_status()
        lease = answer.json()
        try:
            yield
        finally:
            ended = client.delete(f"readers/{lease['lease']}", headers=_bearing(lease["token"]))
            ended.raise_for_status()


def _bearing(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def wait_until(what: str, is_so: Callable[[], bool], within: timedelta) -> None:
    """Wait for a condition. Raises StackError, naming it, when it does not come."""
    deadline = time.monotonic() + within.total_seconds()
    while not is_so():
        if time.monotonic() > deadline:
            raise StackError(f"{what}: not within {within}")
        time.sleep(_LOOK_SECONDS)
