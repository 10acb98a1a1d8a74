"""Where everything lies in a store. Keys are built and read here and nowhere else.

    checkpoints/<project>/<workload>/<stage>/<generation>.<sequence>/<attempt>/objects/<path>
                                                                              /manifest.json
                                                                              /COMMITTED
    control/catalog.json                                    which catalog owns the store
    control/incarnation/<n>                                 write-once counters, highest wins
    control/stages/<project>/<workload>/<stage>/generation/<n>
    control/stages/<project>/<workload>/<stage>/event/<n>
    control/digests/<project>/<n>                           a day's digest over its deletions
    control/inventories/<store>/<inventory>/<file>          kept inventories of any store

Numbers are padded so that a listing in key order is a listing in their order. `parse_key` is the
exact inverse of the builders: whatever it does not know is not ours.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from lastgood.errors import InvalidInput
from lastgood.rules.names import (
    AttemptId,
    CheckpointId,
    ManifestDigest,
    ProjectName,
    StageId,
    check_attempt_id,
    check_digest,
    check_name,
)
from lastgood.rules.paths import check_object_path

CHECKPOINTS_PREFIX = "checkpoints/"
CONTROL_PREFIX = "control/"
CATALOG_KEY = "control/catalog.json"
INCARNATION_PREFIX = "control/incarnation/"
INVENTORIES_PREFIX = "control/inventories/"
DIGESTS_PREFIX = "control/digests/"
MANIFEST_NAME = "manifest.json"
MARKER_NAME = "COMMITTED"
OBJECTS_NAME = "objects/"

_STAGE = r"(?P<project>[^/]+)/(?P<workload>[^/]+)/(?P<stage>[^/]+)"
_ATTEMPT_KEY = re.compile(
    rf"checkpoints/{_STAGE}/(?P<generation>[0-9]{{8}})\.(?P<sequence>[0-9]{{12}})"
    r"/(?P<attempt>[^/]+)/(?:objects/(?P<path>.+)|(?P<name>manifest\.json|COMMITTED))"
)
_CONTROL_KEY = re.compile(
    rf"control/(?:catalog\.json|(?:(?P<incarnation>incarnation)|digests/(?P<digested>[^/]+)"
    rf"|stages/{_STAGE}/(?P<counter>generation|event))/(?P<number>[0-9]{{20}})"
    r"|inventories/(?P<kept>[a-z0-9][a-z0-9._-]{0,62}/[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}"
    r"/[a-z0-9-]+\.(?:parquet|json)))"
)
_MARKER_VERSION = 1


class AttemptPart(StrEnum):
    """What a key below an attempt's prefix holds."""

    OBJECT = "object"
    MANIFEST = "manifest"
    MARKER = "marker"


class ControlKind(StrEnum):
    """What a control key proves."""

    CATALOG = "catalog"
    INCARNATION = "incarnation"
    GENERATION = "generation"
    EVENT = "event"
    DIGEST = "digest"
    INVENTORY = "inventory"


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """A key below an attempt's prefix; `path` is the object's, None for manifest and marker."""

    checkpoint: CheckpointId
    attempt: AttemptId
    part: AttemptPart
    path: str | None = None

    @property
    def prefix(self) -> str:
        return attempt_prefix(self.checkpoint, self.attempt)

    def __str__(self) -> str:
        match self.part:
            case AttemptPart.MANIFEST:
                return manifest_key(self.prefix)
            case AttemptPart.MARKER:
                return marker_key(self.prefix)
            case AttemptPart.OBJECT:
                return object_key(self.prefix, self.path or "")


@dataclass(frozen=True, slots=True)
class ControlKey:
    """A control key; `stage` only for generations and events, `project` only for digests,
    `kept` (store, inventory and file) only for inventories, `number` for all others but the
    catalog's."""

    kind: ControlKind
    stage: StageId | None = None
    number: int | None = None
    project: str | None = None
    kept: str | None = None

    def __str__(self) -> str:
        if self.kind is ControlKind.CATALOG:
            return CATALOG_KEY
        if self.kind is ControlKind.INVENTORY:
            return f"{INVENTORIES_PREFIX}{self.kept}"
        folder = INCARNATION_PREFIX
        if self.project is not None:
            folder = digests_prefix(self.project)
        elif self.stage is not None:
            folder = control_prefix(self.stage) + f"{self.kind}/"
        return f"{folder}{self.number:020d}"


def project_prefix(project: ProjectName) -> str:
    """Everything that a project has written."""
    return f"{CHECKPOINTS_PREFIX}{project}/"


def stage_prefix(stage: StageId) -> str:
    """Every attempt of a stage."""
    return f"{CHECKPOINTS_PREFIX}{stage}/"


def attempt_prefix(checkpoint: CheckpointId, attempt: AttemptId) -> str:
    """The prefix that one attempt owns."""
    position = f"{checkpoint.generation:08d}.{checkpoint.sequence:012d}"
    return f"{stage_prefix(checkpoint.stage_id)}{position}/{attempt}/"


def object_key(prefix: str, path: str) -> str:
    """The key of an object; `prefix` is its attempt's and `path` was checked."""
    return f"{prefix}{OBJECTS_NAME}{path}"


def manifest_key(prefix: str) -> str:
    """The key of the manifest below an attempt's prefix."""
    return f"{prefix}{MANIFEST_NAME}"


def marker_key(prefix: str) -> str:
    """The key of the completion marker below an attempt's prefix."""
    return f"{prefix}{MARKER_NAME}"


def control_prefix(stage: StageId) -> str:
    """The control keys of a stage."""
    return f"{CONTROL_PREFIX}stages/{stage}/"


def incarnation_key(number: int) -> str:
    """Write-once proof that the catalog reached this incarnation."""
    return str(ControlKey(ControlKind.INCARNATION, None, number))


def generation_key(stage: StageId, number: int) -> str:
    """Write-once proof that the stage reached this generation."""
    return str(ControlKey(ControlKind.GENERATION, stage, number))


def event_key(stage: StageId, number: int) -> str:
    """Write-once proof that the stage's history reached this event."""
    return str(ControlKey(ControlKind.EVENT, stage, number))


def digests_prefix(project: str) -> str:
    """The control keys of a project's daily digests."""
    return f"{DIGESTS_PREFIX}{project}/"


def digest_key(project: str, number: int) -> str:
    """Write-once witness of a project's daily digest with this number."""
    return str(ControlKey(ControlKind.DIGEST, None, number, project))


def inventory_prefix(store: str, inventory: str) -> str:
    """Everything that one inventory of `store` keeps."""
    return f"{INVENTORIES_PREFIX}{store}/{inventory}/"


def kept_inventory(key: str) -> tuple[str, str] | None:
    """Of which store and inventory a key is a file; None for every other key."""
    found = parse_key(key)
    if not isinstance(found, ControlKey) or found.kept is None:
        return None
    store, inventory, _ = found.kept.split("/")
    return store, inventory


def parse_key(key: str) -> AttemptKey | ControlKey | None:
    """What `key` holds, or None for every key that the builders above could not have made.

    Never raises: a listing may hold anything.
    """
    try:
        return _attempt_key(key) or _control_key(key)
    except InvalidInput:
        return None


def _attempt_key(key: str) -> AttemptKey | None:
    found = _ATTEMPT_KEY.fullmatch(key)
    if found is None:
        return None
    checkpoint = CheckpointId.of(_stage(found), int(found["generation"]), int(found["sequence"]))
    attempt = check_attempt_id(found["attempt"], "attempt")
    if found["path"] is not None:
        path = check_object_path(found["path"], "key")
        return AttemptKey(checkpoint, attempt, AttemptPart.OBJECT, path)
    is_manifest = found["name"] == MANIFEST_NAME
    return AttemptKey(
        checkpoint, attempt, AttemptPart.MANIFEST if is_manifest else AttemptPart.MARKER
    )


def _control_key(key: str) -> ControlKey | None:
    found = _CONTROL_KEY.fullmatch(key)
    if found is None:
        return None
    if found["kept"] is not None:
        return ControlKey(ControlKind.INVENTORY, kept=found["kept"])
    if found["number"] is None:
        return ControlKey(ControlKind.CATALOG)
    number = int(found["number"])
    if found["incarnation"]:
        return ControlKey(ControlKind.INCARNATION, None, number)
    if found["digested"]:
        return ControlKey(ControlKind.DIGEST, None, number, check_name(found["digested"], "key"))
    return ControlKey(ControlKind(found["counter"]), _stage(found), number)


def _stage(found: re.Match[str]) -> StageId:
    return StageId.of(found["project"], found["workload"], found["stage"])


def marker_bytes(manifest: ManifestDigest) -> bytes:
    """The content of the completion marker of the copy with this manifest."""
    return json.dumps({"format_version": _MARKER_VERSION, "manifest": manifest}).encode()


def parse_marker(content: bytes) -> ManifestDigest:
    """The manifest that a completion marker names. Raises InvalidInput for any other content."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format_version") != _MARKER_VERSION:
        raise InvalidInput(where=MARKER_NAME, reason="the content is not a completion marker")
    return check_digest(document.get("manifest"), MARKER_NAME)
