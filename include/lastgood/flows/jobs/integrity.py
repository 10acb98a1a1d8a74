"""The error for bytes that are not what a manifest says, as exact as all bad objects allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastgood.catalog.jobs.attempts import Attempt
from lastgood.errors import DigestMismatch, IntegrityFailure, MissingObject, SizeMismatch

_KINDS: Mapping[str, type[IntegrityFailure]] = {
    kind.type: kind for kind in (DigestMismatch, SizeMismatch, MissingObject)
}


def integrity_failure(attempt: Attempt, problems: Sequence[Mapping[str, Any]]) -> IntegrityFailure:
    """The error that names every bad object: `{path, problem, expected, found}` each."""
    kinds = {problem["problem"] for problem in problems}
    kind = _KINDS.get(kinds.pop(), IntegrityFailure) if len(kinds) == 1 else IntegrityFailure
    return kind(
        attempt=str(attempt.attempt_id),
        count=len(problems),
        first=problems[0]["path"] if problems else "unknown",
        objects=list(problems),
    )
