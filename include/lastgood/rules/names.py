"""The names that identify projects, workloads, stages, checkpoints, manifests and attempts.

Order of checkpoints is (generation, sequence) as integers, never their text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from lastgood.errors import InvalidInput, InvalidName

ProjectName = NewType("ProjectName", str)
WorkloadName = NewType("WorkloadName", str)
StageName = NewType("StageName", str)
ManifestDigest = NewType("ManifestDigest", str)  # 64 lower-case hex digits of a SHA-256
AttemptId = NewType("AttemptId", str)  # the lower-case text of a UUID

GENERATION_LIMIT = 99_999_999
SEQUENCE_LIMIT = 999_999_999_999
PREFIX_BYTES = 240  # of the 1,024 that S3 gives a key; the longest of ours below it takes 783

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SCHEMA = re.compile(r"(?!pg_)[a-z][a-z0-9_]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POSITION = re.compile(r"(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})")
_SHOWN = 80


def check_name(value: object, where: str) -> str:
    """Return `value` if it is a name (project, workload, stage …), else InvalidName."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise InvalidName(where=where, name=shown(value))


def check_schema(value: object, where: str) -> str:
    """Return `value` if it may name a store's schema in a database, else InvalidInput."""
    if isinstance(value, str) and _SCHEMA.fullmatch(value) and value not in ("lastgood", "public"):
        return value
    reason = (
        f"{shown(value)!r} is no schema for a store: a-z, 0-9 and _, at most 63, beginning with a"
        " letter, and neither lastgood nor public, nor beginning with pg_"
    )
    raise InvalidInput(where=where, reason=reason)


def check_key_prefix(value: object, where: str) -> str:
    """Return `value` if the keys of a bucket may all begin with it, else InvalidInput."""
    if isinstance(value, str) and value.isprintable():
        short = len(value.encode(errors="replace")) <= PREFIX_BYTES
        if short and not {".", ".."} & set(value.split("/")):
            return value
    reason = (
        f"{shown(value)!r} is no prefix for keys: at most {PREFIX_BYTES} bytes, without control"
        " characters, and no . or .. between slashes, which clients take out of a URL"
    )
    raise InvalidInput(where=where, reason=reason)


def check_digest(value: object, where: str) -> ManifestDigest:
    """Return `value` if it is the lower-case hex of a SHA-256, else InvalidInput."""
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return ManifestDigest(value)
    raise InvalidInput(
        where=where, reason=f"{shown(value)!r} is not a SHA-256; give 64 lower-case hex digits"
    )


def check_attempt_id(value: object, where: str) -> AttemptId:
    """Return `value` if it is the lower-case text of a UUID, else InvalidInput."""
    if isinstance(value, str) and _UUID.fullmatch(value):
        return AttemptId(value)
    raise InvalidInput(
        where=where, reason=f"{shown(value)!r} is not an attempt id; give a lower-case UUID"
    )


def check_generation(value: object, where: str) -> int:
    """Return `value` if it is a generation (1 to GENERATION_LIMIT), else InvalidInput."""
    return _whole(value, 1, GENERATION_LIMIT, where)


def check_sequence(value: object, where: str) -> int:
    """Return `value` if it is a sequence (0 to SEQUENCE_LIMIT), else InvalidInput."""
    return _whole(value, 0, SEQUENCE_LIMIT, where)


@dataclass(frozen=True, slots=True, order=True)
class StageId:
    """One phase of a training job. The constructor trusts its names; `parse` checks them."""

    project: ProjectName
    workload: WorkloadName
    stage: StageName

    @classmethod
    def parse(cls, text: str, *, project: str | None = None) -> StageId:
        """Read `project/workload/stage`, or `workload/stage` where `project` is given.

        Raises InvalidInput or InvalidName.
        """
        owner, workload, stage = _split(text, 2, project, "workload/stage")
        return cls.of(owner, workload, stage)

    @classmethod
    def of(cls, project: object, workload: object, stage: object) -> StageId:
        """Build it from unchecked values. Raises InvalidName."""
        return cls(
            ProjectName(check_name(project, "project")),
            WorkloadName(check_name(workload, "workload")),
            StageName(check_name(stage, "stage")),
        )

    def __str__(self) -> str:
        return f"{self.project}/{self.workload}/{self.stage}"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointId:
    """The recoverable unit. The constructor trusts its values; `parse` checks them."""

    project: ProjectName
    workload: WorkloadName
    stage: StageName
    generation: int
    sequence: int

    @classmethod
    def parse(cls, text: str, *, project: str | None = None) -> CheckpointId:
        """Read `project/workload/stage/3.14`, or `workload/stage/3.14` where `project` is given.

        The exact inverse of `str()`: leading zeros are refused. Raises InvalidInput or InvalidName.
        """
        *names, position = _split(text, 3, project, "workload/stage/generation.sequence")
        found = _POSITION.fullmatch(position)
        if found is None:
            raise InvalidInput(
                where="checkpoint",
                reason=f"{shown(position)!r} is not generation.sequence, as in 3.14",
            )
        return cls.of(StageId.of(*names), int(found[1]), int(found[2]))

    @classmethod
    def of(cls, stage: StageId, generation: object, sequence: object) -> CheckpointId:
        """The checkpoint at this place of the stage. Raises InvalidInput beyond the limits."""
        return cls(
            stage.project,
            stage.workload,
            stage.stage,
            check_generation(generation, "generation"),
            check_sequence(sequence, "sequence"),
        )

    @property
    def stage_id(self) -> StageId:
        return StageId(self.project, self.workload, self.stage)

    @property
    def position(self) -> tuple[int, int]:
        """(generation, sequence): the order of history within the stage."""
        return self.generation, self.sequence

    def __str__(self) -> str:
        return f"{self.stage_id}/{self.generation}.{self.sequence}"


def _split(text: str, count: int, project: str | None, form: str) -> list[str]:
    """The project and the `count` pieces after it; the text may leave a given project out."""
    pieces = text.split("/")
    if len(pieces) == count and project is not None:
        return [project, *pieces]
    if len(pieces) == count + 1 and project in (None, pieces[0]):
        return pieces
    raise InvalidInput(
        where="name", reason=f"{shown(text)!r} does not read {project or 'project'}/{form}"
    )


def _whole(value: object, least: int, most: int, where: str) -> int:
    if type(value) is int and least <= value <= most:
        return value
    raise InvalidInput(
        where=where, reason=f"{shown(value)!r} is not a whole number from {least} to {most}"
    )


def shown(value: object) -> object:
    """What an error shows of a refused value: itself, but never megabytes of it, and nothing that
    cannot be sent or printed."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        return text.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"
    return value if value is None or isinstance(value, int | float) else type(value).__name__
