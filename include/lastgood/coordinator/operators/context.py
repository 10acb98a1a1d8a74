"""What operator routes share: their guards, the parts of their paths, and their answers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from fastapi.responses import JSONResponse
from pydantic import StringConstraints

from lastgood.coordinator.operators.auth import Operator, changing, reading
from lastgood.errors import InvalidInput, NotFound
from lastgood.flows.as_json import as_json
from lastgood.rules.names import CheckpointId, StageId

Reader = Annotated[Operator, Depends(reading)]
Changer = Annotated[Operator, Depends(changing)]
ProjectFilter = Annotated[str | None, Query(max_length=63)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Because = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


def answer(document: Any, status_code: int = 200) -> JSONResponse:
    """A JSON answer made of values of the catalog."""
    return JSONResponse(as_json(document), status_code=status_code)


def checkpoint_named(project: str, workload: str, stage: str, position: str) -> CheckpointId:
    """The checkpoint that a path names. A path that names none is as unknown as any: NotFound."""
    text = f"{project}/{workload}/{stage}/{position}"
    try:
        return CheckpointId.parse(text)
    except InvalidInput:
        raise NotFound(what="checkpoint", name=text) from None


def stage_named(project: str, workload: str, stage: str) -> StageId:
    """The stage that a path names. A path that names none is as unknown as any: NotFound."""
    text = f"{project}/{workload}/{stage}"
    try:
        return StageId.parse(text)
    except InvalidInput:
        raise NotFound(what="stage", name=text) from None


CheckpointPath = Annotated[CheckpointId, Depends(checkpoint_named)]
StagePath = Annotated[StageId, Depends(stage_named)]
