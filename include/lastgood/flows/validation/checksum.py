"""The validation of level `checksum`: every byte of a copy against its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastgood import errors
from lastgood.catalog.copies import Copy
from lastgood.flows.validation.findings import Finding, absent_or_failed, unreadable
from lastgood.rules import canonical, layout
from lastgood.rules.manifest import Manifest
from lastgood.rules.quantities import counted
from lastgood.stores.base import Key, KeyMissing, Store, StoreError
from lastgood.stores.hashing import ExpectedObject, Progress, VerifiedObject, verify_objects

VALIDATOR = "lastgood.checksum"


def check(store: Store, copy: Copy, manifest: bytes, progress: Progress | None = None) -> Finding:
    """Read a copy whole: the marker, the manifest as it lies there (`manifest` is what the catalog
    has), the count, the sizes and the SHA-256 of every object, from the bytes and not from what the
    store attests. Never raises for what a store does: that is an inconclusive finding."""
    try:
        return _check(store, copy, manifest, progress)
    except StoreError as error:
        return unreadable(error)


def _check(store: Store, copy: Copy, manifest: bytes, progress: Progress | None) -> Finding:
    try:
        parsed = _manifest(store, copy, manifest)
    except (KeyMissing, errors.InvalidInput) as error:
        return absent_or_failed(store, str(error), [], 0)
    expected = [
        ExpectedObject(Key(layout.object_key(copy.prefix, one.path)), one.size_bytes, one.sha256)
        for one in parsed.objects
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
