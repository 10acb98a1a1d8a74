"""The validation of level `format`: a probe in isolation, and what its report proves."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from lastgood.rules.manifest import Manifest
from lastgood.rules.quantities import counted
from lastgood.validators import isolation
from lastgood.validators.formats.base import installed
from lastgood.validators.isolation import Limits, Outcome

Verdict = Literal["pass", "fail", "inconclusive"]
_REPORT_LIMIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FormatFinding:
    """What the probe proved. `problems` has those that fail and those that only warn. `settled`:
    another try of the same validator finds the same."""

    verdict: Verdict
    reason: str
    outcome: Outcome
    bytes_read: int = 0
    problems: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    settled: bool = False


def version() -> str:
    """Changes when any format of this environment changes: receipts are then taken again."""
    formats = "+".join(f"{one.name}.{one.version}" for one in installed())
    return f"{metadata.version('lastgood')}/{formats}"


def check_format(
    root: Path,
    manifest: Manifest,
    scratch: Path,
    limits: Limits,
    *,
    non_finite: str = "fail",
    unknown_formats: str = "warn",
    pickle_globals: Sequence[str] = (),
) -> FormatFinding:
    """Load every tensor of the checkpoint whose objects lie below `root`. `scratch` is an empty
    folder for the probe. Never raises for what the files hold or do to the probe."""
    request, report = scratch / "request.json", scratch / "report.jsonl"
    request.write_text(
        json.dumps(
            {
                "root": str(root.resolve()),
                "objects": [[one.path, one.size_bytes, one.rank] for one in manifest.objects],
                "step": manifest.step,
                "world_size": manifest.world_size,
                "whole": not manifest.dependencies,  # else shards may lie in what it depends on
                "sharding": dict(manifest.sharding),
                "non_finite": non_finite,
                "pickle_globals": list(pickle_globals),
            }
        )
    )
    command = [*isolation.interpreter(), "lastgood.validators.probe", str(request), str(report)]
    outcome = isolation.run(command, scratch, limits, reads=[root])
    return _judge(outcome, _read_lines(report), unknown_formats)


def _judge(
    outcome: Outcome, lines: Sequence[Mapping[str, Any]], unknown_formats: str
) -> FormatFinding:
    problems = [_without_event(line) for line in lines if line["event"] == "problem"]
    gaps = [line for line in lines if line["event"] == "gap"]
    done = next((line for line in lines if line["event"] == "done"), None)
    unknown = done["unknown"] if done else []
    if unknown_formats != "ignore":
        problems += [_of_unknown_format(path, unknown_formats) for path in unknown]
    bytes_read = done["bytes_read"] if done else 0
    failures = [one for one in problems if one["severity"] == "fail"]
    if failures:
        number = counted(len(failures), "problem")
        reason = f"{number}; the first: {shown(failures[0])}"
        return FormatFinding("fail", reason, outcome, bytes_read, tuple(problems))
    if not outcome.succeeded or done is None:
        begun = [line["path"] for line in lines if line["event"] == "begin"]
        reason = f"the probe {outcome}" + (f", at {begun[-1]}" if begun else "")
    elif gaps:
        reason = f"not all could be read: {gaps[0]['path'] or 'all'}: {gaps[0]['reason']}"
    elif not done["files"] and unknown_formats != "ignore":
        reason = "no file is of a format that is known here"
        return FormatFinding(
            "inconclusive", reason, outcome, bytes_read, tuple(problems), settled=True
        )
    else:
        more = f"; {counted(len(unknown), 'file')} of no known format" if unknown else ""
        tensors, files = counted(done["tensors"], "tensor"), counted(done["files"], "file")
        reason = f"{tensors} in {files}, every value read{more}"
        return FormatFinding("pass", reason, outcome, bytes_read, tuple(problems))
    return FormatFinding("inconclusive", reason, outcome, bytes_read, tuple(problems))


def _of_unknown_format(path: str, severity: str) -> dict[str, Any]:
    said = "it is of no format that is known here"
    return {"path": path, "tensor": None, "problem": said, "severity": severity}


def shown(problem: Mapping[str, Any]) -> str:
    """A problem in words: the file, the tensor, and what is wrong."""
    tensor = "" if problem["tensor"] is None else f", tensor {problem['tensor']}"
    return f"{problem['path']}{tensor}: {problem['problem']}"


def _without_event(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "event"}


def _read_lines(report: Path) -> list[dict[str, Any]]:
    """The report as far as it was written; the last line may be cut."""
    content = read_written(report, _REPORT_LIMIT_BYTES)
    lines = []
    for line in (content or b"").split(b"\n"):
        try:
            parsed = json.loads(line)
        except ValueError:
            continue
        if isinstance(parsed, dict) and "event" in parsed:
            lines.append(parsed)
    return lines


def read_written(path: Path, limit_bytes: int) -> bytes | None:
    """What an isolated program wrote to a file, up to a limit; None if it is no regular file: it
    may be a link to what only we can read, or a pipe that never ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(limit_bytes)
