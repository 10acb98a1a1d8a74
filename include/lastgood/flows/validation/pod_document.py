"""The pod of one drill: a first container fetches the checkpoint, the second is the contract's
command and nothing else.

The command has no token of ours, no service account and no shell; the checkpoint is read-only for
it. Its report is its termination message, which the kubelet keeps in the pod's status (4 KiB): no
second container, no shell in the image and no log line is needed to get it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.validation.reading import Lent
from lastgood.rules.contract import Contract
from lastgood.rules.contract_pod import COMMAND, DRILL, FETCH, Pod

FETCH_CORRUPT = 65  # by this code lastgood.runner.fetch says that it got other bytes
DATA, SCRATCH, MESSAGE = "/lastgood/data", "/lastgood/work", "/dev/termination-log"
CHECKPOINT = f"{DATA}/checkpoint"
FETCHING = timedelta(minutes=5)
"""What fetching may take beside its bytes."""
_SLOWEST_BYTES_PER_SECOND = 20_000_000
_FETCH_MEMORY_BYTES, _DISK_SLACK_BYTES = 512 << 20, 256 << 20


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod to be run: where, what, and for how long at most from its start."""

    pod: Pod
    name: str
    labels: Mapping[str, str]
    document: Mapping[str, Any] = field(repr=False)
    deadline: timedelta
    secret: str = field(repr=False)  # that stands in the document


def pod_plan(
    contract: Contract,
    pod: Pod,
    copy: Copy,
    words: Sequence[str],
    lent: Lent,
    url: str,
) -> PodPlan:
    """The pod that runs a contract's command, its places filled, over a leased copy."""
    fetching = FETCHING + timedelta(seconds=copy.total_bytes / _SLOWEST_BYTES_PER_SECOND)
    deadline = pod.startup + fetching + contract.timeout
    drill = hashlib.sha256(f"{copy.manifest}/{copy.store}/{copy.prefix}".encode()).hexdigest()
    labels = {DRILL: drill[:40], "lastgood-lease": str(lent.lease_id)}
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": int(deadline.total_seconds()),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "initContainers": [_fetching(pod, lent, url)],
        "containers": [_running(contract, pod, copy, words)],
        "volumes": [
            {"name": "lastgood-data", "emptyDir": {}},
            {"name": "lastgood-work", "emptyDir": {"sizeLimit": str(contract.disk_bytes)}},
        ],
    }
    name = f"lastgood-{contract.name}"[:40].rstrip("-._").replace("_", "-").lower()
    metadata = {"name": name, "labels": labels}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return PodPlan(pod, name, labels, document, deadline, lent.token)


def literal(word: str) -> str:
    """A word that Kubernetes leaves as it is: it would fill `$(NAME)` from the environment."""
    return word.replace("$", "$$")


def _fetching(pod: Pod, lent: Lent, url: str) -> dict[str, Any]:
    module = [pod.python, "-m", "lastgood.runner.fetch", CHECKPOINT, MESSAGE]
    given = {
        "LASTGOOD_URL": url,
        "LASTGOOD_LEASE": str(lent.lease_id),
        "LASTGOOD_READER_TOKEN": lent.token,
    }
    memory = {"memory": str(_FETCH_MEMORY_BYTES)}
    return {
        "name": FETCH,
        "image": pod.fetch_image,
        "command": [literal(word) for word in module],
        "env": [{"name": name, "value": literal(value)} for name, value in given.items()],
        "resources": {"requests": memory, "limits": memory},
        "volumeMounts": [{"name": "lastgood-data", "mountPath": DATA}],
        **_COMMON,
    }


def _running(contract: Contract, pod: Pod, copy: Copy, words: Sequence[str]) -> dict[str, Any]:
    disk_bytes = copy.total_bytes + contract.disk_bytes + _DISK_SLACK_BYTES
    resources = {
        **pod.resources,
        "memory": str(contract.memory_bytes),
        "ephemeral-storage": str(disk_bytes),
    }
    return {
        "name": COMMAND,
        "image": pod.image,
        "command": [literal(word) for word in words],
        "workingDir": SCRATCH,
        "env": [{"name": name, "value": SCRATCH} for name in ("HOME", "TMPDIR")],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [
            {"name": "lastgood-data", "mountPath": DATA, "readOnly": True},
            {"name": "lastgood-work", "mountPath": SCRATCH},
        ],
        **_COMMON,
    }


_COMMON: Mapping[str, Any] = {
    "terminationMessagePath": MESSAGE,
    "terminationMessagePolicy": "File",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
