"""The JSON of the runner API: what several routes answer alike, and how requests are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from lastgood.catalog.jobs.checkpoints import Checkpoint
from lastgood.errors import InvalidInput
from lastgood.rules.names import GENERATION_LIMIT, SEQUENCE_LIMIT, shown
from lastgood.rules.paths import EXACT_INTEGER_LIMIT


class Request(BaseModel):
    """A request's body: unknown keys are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


# Names, paths and sizes are checked by the rules, which name what is wrong with each.
Name = Annotated[Any, WithJsonSchema({"type": "string"})]
ObjectPath = Annotated[Any, WithJsonSchema({"type": "string"})]
Size = Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0})]
Digest = Annotated[Any, WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{64}$"})]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character")
    return text


Word = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_nul)]
GenerationNumber = Annotated[int, Field(ge=0, le=GENERATION_LIMIT)]
SequenceNumber = Annotated[int, Field(ge=0, le=SEQUENCE_LIMIT)]
Step = Annotated[int, Field(ge=0, le=EXACT_INTEGER_LIMIT)]


def instant(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.astimezone(UTC).isoformat()


def checkpoint_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """A committed checkpoint."""
    return {
        "id": str(checkpoint.id),
        "workload": checkpoint.workload,
        "stage": checkpoint.stage,
        "generation": checkpoint.generation,
        "sequence": checkpoint.sequence,
        "step": checkpoint.step,
        "committed_at": instant(checkpoint.recorded_at),
        "bytes": checkpoint.total_bytes,
        "manifest_digest": checkpoint.manifest,
        "metrics": dict(checkpoint.metrics),
        "final": checkpoint.final,
    }


def read_uuid(text: str, where: str) -> UUID:
    """A UUID from a request's body. Raises InvalidInput."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(where=where, reason=f"{shown(text)!r} is not a UUID") from None
