"""A world whose checkpoints can be looked into and restored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lastgood.catalog.jobs.copies import Copy
from lastgood.catalog.validation.receipts import Receipt
from lastgood.rules.contract import NEXT_LOSS
from lastgood.rules.manifest import RestoreContract
from tests.retention.world import World, opened

# What a restore command may do, well or badly; the checkpoint's `mode` parameter says which.
PROGRAM = """
import json, math, os, sys, time
mode, checkpoint, report, step, world_size = sys.argv[1:]
loss = float(open(os.path.join(checkpoint, "loss.txt")).read())
told = {"step": int(step) + 1, "loss": loss, "seconds": 0.5, "world": int(world_size)}
print("mode", mode)
if mode == "other-step": told["step"] += 1
if mode == "other-loss": told["loss"] *= 1.25
if mode == "near-loss": told["loss"] *= 1 + 1e-9
if mode == "nan": told["loss"] = math.nan
if mode == "beyond-floats": told["loss"] = 10**400
if mode == "no-loss": del told["loss"]
if mode == "corrupt": print("the optimizer is of another model"); sys.exit(65)
if mode == "crash": raise RuntimeError("no such module")
if mode == "hang": time.sleep(1000)
if mode == "fork":
    while True:
        try: os.fork()
        except OSError: pass  # a line for each refusal would push out the first one
if mode == "memory":
    held = []
    while True: held.append(bytearray(8 << 20))
if mode == "disk":
    with open("big", "wb") as file:
        while True: file.write(bytes(1 << 20))
if mode == "escape": open(os.path.join(checkpoint, "loss.txt"), "w").write("0")
if mode == "secrets": print(sorted(os.environ))
if mode == "link": os.symlink("/etc/passwd", report); sys.exit(0)
if mode != "silent": open(report, "w").write(json.dumps(told))
"""
CONTRACT = """\
name: {name}
version: "{version}"
command: ["{{python}}", -Iu, {program}, "{{parameters.mode}}", "{{checkpoint}}", "{{report}}",
          "{{step}}", "{{world_size}}"]
parameters:
  mode: {{type: text, pattern: "[a-z-]+"}}
world_size: 2
timeout: {timeout}
memory: 200MB
disk: 8MB
processes: 12
tolerance: {tolerance}
environment: [MODEL_FAMILY]
reads: [{folder}]
"""
LOSS = 0.6931471805599453


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    """A project without checkpoints."""
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("LASTGOOD_SCRATCH", str(tmp_path / "scratch"))


class Contracts:
    """The contracts that are registered on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "config"
        self._programs = folder / "programs"
        self._programs.mkdir()
        (self._folder / "contracts").mkdir(parents=True)
        (self._programs / "restore.py").write_text(PROGRAM)

    @property
    def config(self) -> Path:
        return self._folder

    def register(
        self,
        name: str = "tiny",
        *,
        version: str = "1",
        tolerance: str = "0",
        timeout: str = "2m",
        more: str = "",
    ) -> None:
        text = CONTRACT.format(
            name=name,
            version=version,
            tolerance=tolerance,
            timeout=timeout,
            program=self._programs / "restore.py",
            folder=self._programs,
        )
        (self._folder / "contracts" / f"{name}.yaml").write_text(text + more)


@pytest.fixture
def contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contracts:
    """The contract `tiny` alone."""
    made = Contracts(tmp_path)
    made.register()
    monkeypatch.setenv("LASTGOOD_CONFIG", str(made.config))
    return made


def commit_restorable(
    world: World,
    sequence: int,
    mode: str = "well",
    *,
    recorded: float | None = LOSS,
    contract: str = "tiny",
    parameters: Mapping[str, Any] | None = None,
) -> Copy:
    """A checkpoint that names a contract; what its drill does is the mode."""
    given = {"mode": mode} if parameters is None else parameters
    return world.commit(
        sequence,
        {"loss.txt": repr(LOSS).encode(), "state.json": json.dumps({"mode": mode}).encode()},
        receipt=None,
        metrics={} if recorded is None else {NEXT_LOSS: recorded},
        declares={"restore": RestoreContract(contract, given), "world_size": 8},
    )


def receipts_of(world: World, copy: Copy) -> list[Receipt]:
    from lastgood.catalog.validation import receipts

    with world.catalog.transaction() as tx:
        return receipts.of_copy(tx, copy.project, copy.copy_id)
