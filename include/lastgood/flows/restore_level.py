"""The validation of level `restore`: the contract's command takes the checkpoint one step further.

The checkpoint is downloaded and verified as any job would do it, the command runs in isolation at
the contract's world size, and its report is held against what the job recorded.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastgood.catalog.copies import Copy, CopyObject
from lastgood.errors import InvalidInput
from lastgood.flows.contracts import fixed_places
from lastgood.flows.findings import Finding
from lastgood.flows.local_files import download, scratch_folder
from lastgood.rules.contract import Contract
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import Store
from lastgood.validators import isolation
from lastgood.validators.formatting import read_written
from lastgood.validators.isolation import Limits, Outcome

VALIDATOR = "lastgood.restore"
EXECUTOR = "LASTGOOD_EXECUTOR"
"""Set where something else than this process' own machine was chosen to run contracts."""
_REPORT_LIMIT_BYTES = 64 << 10


def check(
    store: Store,
    copy: Copy,
    manifest: Manifest,
    objects: Sequence[CopyObject],
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
        work.mkdir()
        begin = time.monotonic()
        instead = download(store, copy, objects, root)
        if instead is not None:
            return instead
        drill = _Drill(contract, manifest, root, work, time.monotonic() - begin)
        return drill.run(parameters)


class _Drill:
    """One run of a contract's command over a downloaded checkpoint."""

    def __init__(
        self,
        contract: Contract,
        manifest: Manifest,
        root: Path,
        work: Path,
        download_seconds: float,
    ) -> None:
        self._contract, self._manifest, self._root, self._work = contract, manifest, root, work
        self._report = work / "report.json"
        self._download_seconds = download_seconds

    def run(self, parameters: dict[str, str]) -> Finding:
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
        reads = [Path(path) for path in contract.read_paths(places)]
        outcome = isolation.run(
            contract.words(places),
            self._work,
            limits,
            reads=[self._root, *reads],
            environment=inherited,
        )
        finding = self._judge(outcome)
        topology = {
            "executor": os.environ.get(EXECUTOR, "processes"),
            "contract": contract.name,
            "world_size": contract.world_size,
            "of_world_size": self._manifest.world_size,
            "seconds": {
                "download": round(self._download_seconds, 3),
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

    def _judge(self, outcome: Outcome) -> Finding:
        bytes_read = self._manifest.size_bytes
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
