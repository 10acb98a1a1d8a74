"""The validation of level `restore`: the contract's command takes the checkpoint one step further.

The checkpoint is downloaded and verified as any job would do it, the command runs in isolation at
the contract's world size, and its report is held against what the job recorded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.errors import InvalidInput
from lastgood.flows.settings.contracts import fixed_places
from lastgood.flows.validation import restore_verdict
from lastgood.flows.validation.findings import Finding, settled
from lastgood.flows.validation.local_files import download, scratch_folder
from lastgood.rules.contract import Contract
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import Store
from lastgood.validators import isolation
from lastgood.validators.formatting import read_written
from lastgood.validators.isolation import Limits

VALIDATOR = "lastgood.restore"
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
        return settled(str(error))
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
        report = self._reported()
        finding = restore_verdict.judged(contract, self._manifest, outcome, report)
        topology = {
            "executor": "processes",
            "contract": contract.name,
            "world_size": contract.world_size,
            "of_world_size": self._manifest.world_size,
            "seconds": {
                "download": round(self._download_seconds, 3),
                "restore": outcome.seconds,
                "reported": restore_verdict.reported_seconds(report),
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

    def _reported(self) -> bytes | None:
        return read_written(self._report, _REPORT_LIMIT_BYTES)
