"""The command line as a script would run it: another process, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.retention.world import World, opened


@dataclass(frozen=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs `lastgood` against one catalog."""

    environment: dict[str, str]
    folder: Path
    before: str = ""  # what its process does first

    def __call__(self, *arguments: object, **environment: str) -> Told:
        program = f"{self.before}\nfrom lastgood.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**self.environment, **environment},
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Told(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def lastgood(catalog_dsn: str, tmp_path: Path) -> CommandLine:
    environment = {
        **os.environ,
        "LASTGOOD_CATALOG": catalog_dsn,
        "LASTGOOD_VAR": str(tmp_path / "var"),
        "LASTGOOD_OPERATOR": "ann",
    }
    return CommandLine(environment, tmp_path)
