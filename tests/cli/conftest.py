"""The command line as a script would run it: another process, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lastgood.cli import main
from tests.forking import FORKED
from tests.retention.world import World, opened


@dataclass(frozen=True)
class Told:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        assert self.out.startswith(("{", "[")), self
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs `lastgood` against one catalog."""

    environment: dict[str, str]
    folder: Path
    before: str = ""  # what its process does first; it is a fresh one then, else a forked one

    def __call__(self, *arguments: object, **environment: str) -> Told:
        run = self._fresh if self.before else self._forked
        told = run([str(one) for one in arguments], {**self.environment, **environment})
        assert "Traceback" not in told.err, told.err
        return told

    def _fresh(self, arguments: list[str], environment: dict[str, str]) -> Told:
        program = f"{self.before}\nfrom lastgood.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=environment,
        )
        return Told(done.returncode, done.stdout, done.stderr)

    def _forked(self, arguments: list[str], environment: dict[str, str]) -> Told:
        with tempfile.TemporaryDirectory() as said:
            out, err = Path(said) / "out", Path(said) / "err"
            process = FORKED.Process(
                target=_command, args=(arguments, environment, self.folder, out, err)
            )
            process.start()
            process.join()
            assert process.exitcode is not None
            return Told(process.exitcode, out.read_text(), err.read_text())


def _command(
    arguments: list[str], environment: dict[str, str], folder: Path, out: Path, err: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((out, 1), (err, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), stream)
    sys.argv = ["lastgood", *arguments]
    main()


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
