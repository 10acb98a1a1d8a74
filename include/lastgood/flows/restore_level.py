"""The validation of level `restore`: the contract's command takes the checkpoint one step further.

The checkpoint is downloaded and verified as any job would do it, the command runs in isolation at
the contract's world size, and its report is held against what the job recorded.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from lastgood.catalog.copies import Copy, CopyObject
from lastgood.errors import InvalidInput
from lastgood.flows.contracts import fixed_places
from lastgood.flows.findings import Finding, absent_or_failed
from lastgood.flows.local_files import Differs, NoRoom, download, scratch_folder
from lastgood.rules.contract import Contract
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import KeyMissing, Store, StoreError
from lastgood.validators import isolation
from lastgood.validators.formatting import read_written
from lastgood.validators.isolation import Limits, Outcome

VALIDATOR = "lastgood.restore"
_REPORT_LIMIT_BYTES = 64 << 10


def check(
    store: Store,
    copy: Copy,
    manifest: Manifest,
    objects: list[CopyObject],
    contract: Contract,
) -> Finding:
    """Restore a copy by its contract. Never raises for what the store, the command or the
    manifest's parameters do."""
    try:
        parameters = contract.bind(manifest)
    except InvalidInput as error:
        return Finding("inconclusive", str(error))
    with scratch_folder() as scratch:
        root, work = scratch / "checkpoint", scratch / "work"
        root.mkdir()
        work.mkdir()
        begin = time.monotonic()
        try:
            bytes_read = download(store, copy, objects, root)
        except NoRoom as error:
            return Finding("inconclusive", str(error))
        except Differs as error:
            return absent_or_failed(store, f"{error.facts['path']} differs", [error.facts], 0)
        except KeyMissing as error:
            return absent_or_failed(store, str(error), [], 0)
        except StoreError as error:
            return Finding("inconclusive", f"the store could not be read: {error}")
        downloaded_seconds = time.monotonic() - begin
        drill = _Drill(contract, manifest, root, work)
        return drill.run(parameters, bytes_read, downloaded_seconds)


class _Drill:
    """One run of a contract's command over a downloaded checkpoint."""

    def __init__(self, contract: Contract, manifest: Manifest, root: Path, work: Path) -> None:
        self._contract, self._manifest, self._root, self._work = contract, manifest, root, work
        self._report = work / "report.json"

    def run(
        self, parameters: dict[str, str], bytes_read: int, downloaded_seconds: float
    ) -> Finding:
        """Run the command and judge its report."""
        contract = self._contract
        places = {**self._places(), **parameters}
        limits = Limits(
            contract.timeout,
            contract.timeout * contract.tasks,
            contract.memory_bytes,
            contract.disk_bytes,
            contract.tasks,
        )
        inherited = {name: os.environ[name] for name in contract.environment if name in os.environ}
        reads = [Path(path.format(**fixed_places())) for path in contract.reads]
        outcome = isolation.run(
            contract.words(places),
            self._work,
            limits,
            reads=[self._root, *reads],
            environment=inherited,
        )
        finding = self._judge(outcome, bytes_read)
        topology = {
            "executor": "kubernetes" if contract.pod else "processes",
            "contract": contract.name,
            "world_size": contract.world_size,
            "of_world_size": self._manifest.world_size,
            "seconds": {
                "download": round(downloaded_seconds, 3),
                "restore": outcome.seconds,
                "reported": self._reported_seconds(),
            },
            "limits": limits.to_json(),
            "outcome": outcome.summary(),
        }
        return finding.with_process(topology, outcome.last_lines)

    def _places(self) -> dict[str, str]:
        return {
            **fixed_places(),
            "checkpoint": str(self._root),
            "report": str(self._report),
            "scratch": str(self._work),
            "world_size": str(self._contract.world_size),
            "step": str(self._manifest.step),
        }

    def _judge(self, outcome: Outcome, bytes_read: int) -> Finding:
        if outcome.ended == "exit" and outcome.code in self._contract.corrupt_codes:
            said = outcome.last_lines[-1] if outcome.last_lines else "without a word"
            reason = f"the restore command found the checkpoint bad: {said}"
            return Finding("fail", reason, bytes_read, [_problem(reason)])
        if not outcome.succeeded:
            return Finding("inconclusive", f"the restore command {outcome}", bytes_read)
        judged = self._contract.judge(self._manifest, self._reported())
        problems = [_problem(judged.reason)] if judged.verdict == "fail" else []
        return Finding(judged.verdict, judged.reason, bytes_read, problems)

    def _reported(self) -> Any:
        content = read_written(self._report, _REPORT_LIMIT_BYTES)
        try:
            return json.loads(content or b"null")
        except (ValueError, RecursionError):
            return None

    def _reported_seconds(self) -> float | None:
        report = self._reported()
        seconds = report.get("seconds") if isinstance(report, dict) else None
        if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
            return float(seconds)
        return None


def _problem(problem: str) -> dict[str, Any]:
    return {"path": None, "tensor": None, "problem": problem}
