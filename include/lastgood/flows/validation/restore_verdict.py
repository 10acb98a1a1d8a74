"""What a restore command's end and report prove, wherever it ran."""

from __future__ import annotations

import json
from typing import Any

from lastgood.flows.validation.findings import Finding
from lastgood.rules.contract import Contract
from lastgood.rules.manifest import Manifest
from lastgood.validators.isolation import Outcome


def judged(
    contract: Contract, manifest: Manifest, outcome: Outcome, content: bytes | None
) -> Finding:
    """The finding on a command that ended so and left this report."""
    bytes_read = manifest.size_bytes
    if outcome.ended == "exit" and outcome.code in contract.corrupt_codes:
        said = outcome.last_lines[-1] if outcome.last_lines else "without a word"
        reason = f"the restore command found the checkpoint bad: {said}"
        return Finding("fail", reason, bytes_read, [_problem(reason)])
    if not outcome.succeeded:
        return Finding("inconclusive", f"the restore command {outcome}", bytes_read)
    result = contract.judge(manifest, _parsed(content))
    problems = [_problem(result.reason)] if result.verdict == "fail" else []
    return Finding(result.verdict, result.reason, bytes_read, problems)


def reported_seconds(content: bytes | None) -> float | None:
    """How long the command itself says that it took; None if it says nothing sensible."""
    report = _parsed(content)
    seconds = report.get("seconds") if isinstance(report, dict) else None
    if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
        return float(seconds)
    return None


def _parsed(content: bytes | None) -> Any:
    try:
        return json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None


def _problem(problem: str) -> dict[str, Any]:
    return {"path": None, "tensor": None, "problem": problem}
