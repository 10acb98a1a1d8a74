"""The validation of level `restore` in a pod: the contract's command, on the topology that its
operator chose.

The pod fetches the checkpoint from the coordinator under the validator's own reader lease. What the
command reports is judged here, by the same rule as that of a command on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.errors import InvalidInput
from lastgood.flows.validation import checksum, restore_verdict
from lastgood.flows.validation.findings import Finding, settled
from lastgood.flows.validation.pod_document import (
    CHECKPOINT,
    FETCH_CORRUPT,
    MESSAGE,
    SCRATCH,
    PodPlan,
    pod_plan,
)
from lastgood.flows.validation.pod_outcome import PodEnd, PodRun, told_by
from lastgood.flows.validation.reading import Lent
from lastgood.rules.contract import Contract
from lastgood.rules.contract_pod import Pod
from lastgood.rules.manifest import Manifest
from lastgood.stores.base import Store

COORDINATOR = "LASTGOOD_URL"


class Pods(Protocol):
    """What can run a pod. `run` waits for its end, leaves nothing of it behind, and answers
    whatever came of it: it raises for nothing that a cluster does."""

    def run(self, plan: PodPlan) -> PodRun: ...


def check(
    store: Store,
    copy: Copy,
    manifest: Manifest,
    body: bytes,
    objects: Sequence[CopyObject],
    contract: Contract,
    lent: Lent,
    pods: Pods | None,
) -> Finding:
    """Restore a leased copy in a pod. `body` is its manifest as the catalog has it. Never raises
    for what the cluster, the command or the manifest's parameters do."""
    pod = contract.pod
    assert pod is not None
    url = pod.coordinator or os.environ.get(COORDINATOR, "").strip()
    if pods is None:
        reason = (
            f"contract {contract.name} runs in a pod, which the DAG validate_restores starts where"
            " Airflow has the Kubernetes provider"
        )
        return Finding("inconclusive", reason)
    if not url:
        reason = f"contract {contract.name} has no pod.coordinator and {COORDINATOR} is not set"
        return Finding("inconclusive", reason)
    try:
        parameters = contract.bind(manifest)
    except InvalidInput as error:
        return settled(str(error))
    places = {**_places(contract, pod, manifest), **parameters}
    plan = pod_plan(contract, pod, copy, contract.words(places), lent, url)
    run = pods.run(plan)
    end = told_by(run)
    if end.fetched == FETCH_CORRUPT and end.outcome.ended == "not-started":
        finding = _reread(store, copy, body, objects, end)
    else:
        finding = _judged(manifest, contract, end)
    return finding.with_process(_topology(contract, manifest, plan, run, end), run.last_lines)


def _places(contract: Contract, pod: Pod, manifest: Manifest) -> dict[str, str]:
    return {
        "python": pod.python,
        "checkpoint": CHECKPOINT,
        "report": MESSAGE,
        "scratch": SCRATCH,
        "world_size": str(contract.world_size),
        "step": str(manifest.step),
    }


def _judged(manifest: Manifest, contract: Contract, end: PodEnd) -> Finding:
    if end.fetched not in (None, 0) and end.outcome.ended == "not-started":
        return Finding("inconclusive", f"the pod could not fetch it: {end.fetch_message}")
    return restore_verdict.judged(contract, manifest, end.outcome, end.report.encode())


def _reread(
    store: Store, copy: Copy, body: bytes, objects: Sequence[CopyObject], end: PodEnd
) -> Finding:
    """The pod received other bytes than were committed: from the store, or from what lies between.
    The store itself is asked."""
    found = checksum.check(store, copy, body, objects)
    if found.verdict == "pass":
        reason = f"the pod received other bytes than the store has: {end.fetch_message}"
        return Finding("inconclusive", reason, found.bytes_read)
    return found


def _topology(
    contract: Contract, manifest: Manifest, plan: PodPlan, run: PodRun, end: PodEnd
) -> dict[str, Any]:
    return {
        "executor": "kubernetes",
        "contract": contract.name,
        "world_size": contract.world_size,
        "of_world_size": manifest.world_size,
        "pod": {"name": run.name, "node": run.node, "image": plan.pod.image},
        "seconds": {
            "download": end.fetch_seconds,
            "restore": end.outcome.seconds,
            "reported": restore_verdict.reported_seconds(end.report.encode()),
        },
        "limits": {
            "seconds": plan.deadline.total_seconds(),
            "memory_bytes": contract.memory_bytes,
            "disk_bytes": contract.disk_bytes,
        },
        "outcome": {
            "ended": end.outcome.ended,
            "code": end.outcome.code,
            "signal": end.outcome.signal,
            "seconds": end.outcome.seconds,
            "confinement": {"processes": "pod", "network": "the cluster's", "files": "pod"},
        },
    }
