"""Why sealed attempts fail, and the error for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempt_objects, attempts, generations, stages
from lastgood.catalog.jobs.attempts import Attempt, State
from lastgood.errors import (
    Conflict,
    DigestMismatch,
    IntegrityFailure,
    LastgoodError,
    MissingObject,
    SizeMismatch,
)
from lastgood.flows.jobs import verify

INTEGRITY, FENCED, STALE, DEPENDENCY = "integrity", "fenced", "stale-sequence", "dependency-gone"
"""Why a sealed attempt failed: the reason of its transition."""

_NAMED_LIMIT = 1_000
_KINDS: Mapping[str, type[IntegrityFailure]] = {
    kind.type: kind for kind in (DigestMismatch, SizeMismatch, MissingObject)
}


def fail_integrity(
    catalog: Catalog, attempt: Attempt, known: verify.Verification
) -> tuple[Attempt, IntegrityFailure]:
    """Fail a sealed attempt whose bytes are not what its manifest says; answers it as it stands
    then, and the error. The bytes stay as evidence, and with them the room that they take. Raises
    AttemptState where it ended otherwise meanwhile."""
    with catalog.transaction() as tx:
        stages.locked(tx, attempt.project, attempt.stage_id)
        locks.attempt(tx, attempt.attempt_id)
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
        if now.state is State.SEALED:
            known.record(tx, now)
            declared = {item.path for item in attempt_objects.of(tx, now)}
            named = _named(known.problems)
            beside = [problem for problem in named if problem["path"] not in declared]
            facts = {"problems": len(named), "not_prepared": beside[:_NAMED_LIMIT]}
            attempts.transition(
                tx, now, State.FAILED, actor="system", reason=INTEGRITY, facts=facts
            )
        now = attempts.get(tx, attempt.project, attempt.attempt_id)
    attempts.require(now, State.FAILED, action="failing it")
    return now, _integrity_failure(now, _named(known.problems))


def error_of(catalog: Catalog, attempt: Attempt) -> LastgoodError:
    """Why an attempt failed, for whoever asks again."""
    with catalog.transaction() as tx:
        stage = stages.get(tx, attempt.project, attempt.stage_id)
        problems = {
            item.path: item.problem
            for item in attempt_objects.of(tx, attempt)
            if item.problem is not None
        }
        beside = attempts.failure_facts(tx, attempt).get("not_prepared", [])
        fenced = generations.fenced_reason(tx, stage, attempt.generation)
    if attempt.state_reason == FENCED and fenced is not None:
        return generations.fenced(stage, attempt.generation, fenced)
    if attempt.state_reason == INTEGRITY:
        return _integrity_failure(attempt, [*_named(problems), *beside])
    return Conflict(reason=f"attempt {attempt.attempt_id} failed: {attempt.state_reason}")


def _integrity_failure(attempt: Attempt, problems: Sequence[Mapping[str, Any]]) -> IntegrityFailure:
    """The error that names every bad object: `{path, problem, expected, found}` each."""
    kinds = {problem["problem"] for problem in problems}
    kind = _KINDS.get(kinds.pop(), IntegrityFailure) if len(kinds) == 1 else IntegrityFailure
    return kind(
        attempt=str(attempt.attempt_id),
        count=len(problems),
        first=problems[0]["path"] if problems else "unknown",
        objects=list(problems),
    )


def _named(problems: Mapping[str, verify.Problem]) -> Sequence[Mapping[str, Any]]:
    return [{"path": path, **problems[path]} for path in sorted(problems)]
