"""Is what lies below a prefix a whole checkpoint? Found out from the store alone, by reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.errors import InvalidInput
from lastgood.flows.rebuilding.scan import NAMED_LIMIT, FoundPrefix
from lastgood.rules import canonical, layout
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import ManifestDigest
from lastgood.rules.quantities import counted
from lastgood.stores.base import ForeignEntry, Key, KeyMissing, Store
from lastgood.stores.hashing import ExpectedObject, Progress, VerifiedObject, verify_objects


class NotWhole(Exception):
    """What lies there is no checkpoint. `objects` are the bad ones, one each, if it comes to
    them."""

    def __init__(self, reason: str, objects: Sequence[Mapping[str, Any]] = ()) -> None:
        self.reason = reason
        self.objects = objects
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Said:
    """What marker and manifest say, as far as it is needed before the objects are read."""

    found: FoundPrefix
    digest: ManifestDigest
    dependencies: tuple[ManifestDigest, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Whole:
    """A verified checkpoint: every size and every SHA-256 was read. `versions` has the version of
    each object, where the store has any."""

    found: FoundPrefix
    manifest: Manifest
    content: bytes
    digest: ManifestDigest
    versions: Mapping[str, str | None]


def read_manifest(store: Store, found: FoundPrefix, known: str | None = None) -> Said:
    """Read the completion marker and the manifest that it names; `known` is the digest that a
    catalog has of a commit whose marker is still to be written. Raises NotWhole, and StoreError
    where the store does not tell."""
    manifest, _, digest = _manifest(store, found, known)
    return Said(found, digest, manifest.dependencies, manifest.size_bytes)


def verify(store: Store, said: Said, progress: Progress | None = None) -> Whole:
    """Read every object. Raises NotWhole that names each bad one, and StoreError."""
    found = said.found
    manifest, content, digest = _manifest(store, found, said.digest)
    expected = [
        ExpectedObject(Key(layout.object_key(found.prefix, one.path)), one.size_bytes, one.sha256)
        for one in manifest.objects
    ]
    verified = verify_objects(store, expected, reread=True, progress=progress)
    bad = [one for one in verified if not one.ok]
    if bad:
        named = [_problem(found, one) for one in bad[:NAMED_LIMIT]]
        first = f"{named[0]['problem']} of {named[0]['path']}"
        of_all = counted(len(verified), "object")
        reason = f"wrong: {len(bad)} of {of_all}; the first: {first}"
        raise NotWhole(reason, named)
    versions: dict[str, str | None] = {one.path: None for one in manifest.objects}
    if store.profile.versioned:
        for path in versions:
            there = store.stat(Key(layout.object_key(found.prefix, path)))
            versions[path] = None if there is None else there.version_id
    return Whole(found, manifest, content, digest, versions)


def _manifest(
    store: Store, found: FoundPrefix, known: str | None
) -> tuple[Manifest, bytes, ManifestDigest]:
    try:
        named = known or layout.parse_marker(store.read(Key(layout.marker_key(found.prefix))))
        content = store.read(Key(layout.manifest_key(found.prefix)))
        digest = canonical.digest(content)
        if digest != named:
            raise NotWhole(f"the manifest's digest is {digest}, the marker names {named}")
        manifest = canonical.parse_canonical(content)
    except (KeyMissing, ForeignEntry, InvalidInput) as error:
        raise NotWhole(str(error)) from error
    if manifest.checkpoint != found.checkpoint:
        raise NotWhole(f"the manifest is that of {manifest.checkpoint}")
    return manifest, content, digest


def _problem(found: FoundPrefix, one: VerifiedObject) -> Mapping[str, Any]:
    path = one.key.removeprefix(layout.object_key(found.prefix, ""))
    return {
        "path": path,
        "problem": one.verdict.value,
        "expected": one.expected,
        "found": one.found,
    }
