"""The validation of level `format`: every tensor of a copy is loaded, in isolation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.flows.validation.findings import SETTLED, Finding, absent_or_failed
from lastgood.flows.validation.local_files import download, in_place, scratch_folder
from lastgood.rules.manifest import Manifest
from lastgood.rules.policy_sections import ValidationPolicy
from lastgood.stores.base import Store
from lastgood.validators.formatting import check_format
from lastgood.validators.isolation import Limits

VALIDATOR = "lastgood.format"
_MEMORY_BYTES, _DISK_BYTES, _TASKS = 2 << 30, 64 << 20, 32
_LEAST_TIME, _SLOWEST_BYTES_PER_SECOND = timedelta(minutes=5), 20_000_000


def limits_for(size_bytes: int) -> Limits:
    """What the probe of a checkpoint of this size may use: a slow disk is no reason to stop it."""
    time = _LEAST_TIME + timedelta(seconds=size_bytes / _SLOWEST_BYTES_PER_SECOND)
    return Limits(time, time, _MEMORY_BYTES, _DISK_BYTES, _TASKS)


def check(
    store: Store,
    copy: Copy,
    manifest: Manifest,
    objects: Sequence[CopyObject],
    policy: ValidationPolicy,
) -> Finding:
    """Load every tensor of a copy, in its store's own folder where it has one. Never raises for
    what the store or the files do."""
    with scratch_folder() as scratch:
        root = in_place(store, copy)
        if root is None:
            root = scratch / "checkpoint"
            instead = download(store, copy, objects, root)
            if instead is not None:
                return instead
        return _probe(store, manifest, root, scratch, policy)


def _probe(
    store: Store, manifest: Manifest, root: Path, scratch: Path, policy: ValidationPolicy
) -> Finding:
    work = scratch / "work"
    work.mkdir()
    limits = limits_for(manifest.size_bytes)
    found = check_format(
        root,
        manifest,
        work,
        limits,
        non_finite=policy.non_finite,
        unknown_formats=policy.unknown_formats,
        pickle_globals=policy.pickle_globals,
    )
    finding = Finding(found.verdict, found.reason, found.bytes_read, found.problems)
    if found.verdict == "fail":
        finding = absent_or_failed(store, found.reason, found.problems, found.bytes_read)
    topology = {"processes": 1, "limits": limits.to_json(), "outcome": found.outcome.summary()}
    if found.settled:
        topology[SETTLED] = True
    return finding.with_process(topology, found.outcome.last_lines)
