"""The validation of level `checksum`: every byte of a copy against its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastgood import errors
from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.flows.validation.findings import Finding, absent_or_failed, unreadable
from lastgood.rules import canonical, layout
from lastgood.rules.manifest import Manifest
from lastgood.rules.quantities import counted
from lastgood.stores.base import Key, KeyMissing, Prefix, Store, StoreError
from lastgood.stores.hashing import ExpectedObject, Progress, VerifiedObject, verify_objects

VALIDATOR = "lastgood.checksum"


def check(
    store: Store,
    copy: Copy,
    manifest: bytes,
    objects: Sequence[CopyObject],
    progress: Progress | None = None,
) -> Finding:
    """Read a copy whole: the marker, the manifest as it lies there (`manifest` is what the catalog
    has), the count, the sizes and the SHA-256 of every object, from the bytes of the version that
    was committed and not from what the store attests. Never raises for what a store does: that is
    an inconclusive finding, as is what somebody hid under delete markers: restores still read it,
    but nobody knows for how long."""
    versions = {layout.object_key(copy.prefix, one.path): one.version_id for one in objects}
    try:
        covered = _covered(store, copy, versions)
        if covered:
            return _covered_finding(copy, covered)
        return _check(store, copy, manifest, versions, progress)
    except StoreError as error:
        return unreadable(error)


def _covered(store: Store, copy: Copy, versions: Mapping[str, str | None]) -> Sequence[Key]:
    """What of a present copy lies under a delete marker, and is read under its version. An object
    whose version nobody knows is gone for whoever restores."""
    if not store.profile.versioned:
        return ()
    beside = (layout.marker_key(copy.prefix), layout.manifest_key(copy.prefix))
    return [
        one.key
        for one in store.list(Prefix(copy.prefix))
        if one.hidden and (one.key in beside or versions.get(one.key) == one.version_id is not None)
    ]


def _covered_finding(copy: Copy, covered: Sequence[Key]) -> Finding:
    keys = counted(len(covered), "key")
    return Finding(
        "inconclusive",
        f"{keys} of it, such as {covered[0]!r}, under delete markers that lastgood did not put"
        " there: restores read them by version, until something removes that;"
        f" `lastgood quarantine undo {copy.checkpoint}` removes the markers",
    )


def _check(
    store: Store,
    copy: Copy,
    manifest: bytes,
    versions: Mapping[str, str | None],
    progress: Progress | None,
) -> Finding:
    try:
        parsed = _manifest(store, copy, manifest)
    except (KeyMissing, errors.InvalidInput) as error:
        return absent_or_failed(store, str(error), [], 0)
    expected = [
        ExpectedObject(key, one.size_bytes, one.sha256, version_id=versions.get(key))
        for one in parsed.objects
        for key in [Key(layout.object_key(copy.prefix, one.path))]
    ]
    verified = verify_objects(store, expected, reread=True, progress=progress)
    bytes_read = sum(one.bytes_read for one in verified)
    problems = [_problem(one) for one in verified if not one.ok]
    objects = counted(len(verified), "object")
    if problems:
        first = f"{problems[0]['problem']} of {problems[0]['path']}"
        reason = f"wrong: {len(problems)} of {objects}; the first: {first}"
        return absent_or_failed(store, reason, problems, bytes_read)
    return Finding("pass", f"{objects}, every byte read", bytes_read)


def _manifest(store: Store, copy: Copy, known: bytes) -> Manifest:
    """The manifest as the copy itself has it. Raises KeyMissing or InvalidInput (BadManifest)."""
    named = layout.parse_marker(store.read(Key(layout.marker_key(copy.prefix))))
    content = store.read(Key(layout.manifest_key(copy.prefix)))
    found = canonical.digest(content)
    if not found == named == copy.manifest:
        raise errors.BadManifest(
            where="$",
            reason=f"its digest is {found}, the marker names {named}, not {copy.manifest}",
        )
    if content != known:
        raise errors.BadManifest(where="$", reason="the catalog has other bytes of this digest")
    parsed = canonical.parse_canonical(content)
    if len(parsed.objects) != copy.object_count:
        raise errors.BadManifest(
            where="$.objects", reason=f"{len(parsed.objects)}, committed were {copy.object_count}"
        )
    return parsed


def _problem(one: VerifiedObject) -> Mapping[str, Any]:
    key = layout.parse_key(one.key)
    path = key.path if isinstance(key, layout.AttemptKey) else one.key
    return {
        "path": path,
        "problem": one.verdict.value,
        "expected": one.expected,
        "found": one.found,
    }
