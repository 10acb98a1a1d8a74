"""Runtime contracts: how a checkpoint is restored in a drill, and what makes the drill a pass.

An operator registers a contract with its command; a manifest names one and gives parameters. Each
parameter is declared with its type and bounds, and fills one place of one word of the command: a
job can bring neither a command nor an option.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from lastgood.errors import InvalidInput
from lastgood.rules.canonical import canonical_json
from lastgood.rules.contract_pod import Pod, parse_pod, require_no_worker
from lastgood.rules.document import Node
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import check_name
from lastgood.rules.quantities import read_duration, read_size

NEXT_LOSS = "restore/next_loss"
"""The metric by which a job tells the loss of the step after the checkpoint's: it computes it after
saving its state and before committing."""

FIXED_PLACES = ("python", "checkout")  # of a machine
PLACES = (*FIXED_PLACES, "checkpoint", "report", "scratch", "world_size", "step")
CORRUPT_CODE = 65  # sysexits' EX_DATAERR: by this code a command says that the checkpoint is bad
_PLACE = re.compile(r"\{([^{}]*)\}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT_LIMIT = 200
_Kind = Literal["integer", "number", "text", "flag"]

Verdict = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a manifest may say by one name. A text matches `pattern` as a whole."""

    kind: _Kind
    least: float = 0.0
    most: float = math.inf
    pattern: re.Pattern[str] | None = None

    def words(self, where: str, value: object) -> str:
        """The value as it stands in a command. Raises InvalidInput."""
        match self.kind, value:
            case "flag", bool():
                return "true" if value else "false"
            case ("integer", int()) | ("number", int() | float()) if type(value) is not bool:
                assert isinstance(value, int | float)
                word = repr(value)
                if self.least <= value <= self.most and not (word[0] == "-" and self.least >= 0):
                    return word
                reason = f"{value} is not from {self.least} to {self.most}"
                raise InvalidInput(where=where, reason=reason)
            case "text", str() if self.pattern is not None:
                return self._checked_text(where, value)
        raise InvalidInput(where=where, reason=f"{str(value)[:40]!r} is not of type {self.kind}")

    def _checked_text(self, where: str, value: str) -> str:
        assert self.pattern is not None
        if value.startswith("-") or not value.isprintable() or len(value) > _TEXT_LIMIT:
            raise InvalidInput(where=where, reason=f"{value[:40]!r} could be more than a value")
        if not self.pattern.fullmatch(value):
            raise InvalidInput(where=where, reason=f"{value[:40]!r} is not {self.pattern.pattern}")
        return value


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a report proves."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Contract:
    """One registered contract. `tolerance` is the relative difference allowed between the loss of
    the drill and the recorded one; 0 asks for equality."""

    name: str
    version: str
    command: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    world_size: int
    timeout: timedelta
    memory_bytes: int
    disk_bytes: int
    tasks: int
    tolerance: float
    environment: tuple[str, ...]
    reads: tuple[str, ...]
    corrupt_codes: tuple[int, ...]
    pod: Pod | None
    digest: str = field(repr=False)  # of the document as it was read

    @property
    def identity(self) -> str:
        """Changes with the version and with every change of the document."""
        return f"{self.version}-{self.digest[:12]}"

    def bind(self, manifest: Manifest) -> dict[str, str]:
        """The manifest's parameters as they stand in a command. Raises InvalidInput for one that
        is not declared, is missing, or is not as declared."""
        given = {} if manifest.restore is None else manifest.restore.parameters
        unknown = sorted(given.keys() - self.parameters.keys())
        missing = sorted(self.parameters.keys() - given.keys())
        if unknown or missing:
            what = f"does not declare {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"
            raise InvalidInput(where="restore.parameters", reason=f"contract {self.name} {what}")
        return {
            f"parameters.{name}": one.words(f"restore.parameters.{name}", given[name])
            for name, one in self.parameters.items()
        }

    def words(self, places: Mapping[str, str]) -> list[str]:
        """The command with every place filled; a value never becomes more than a part of its
        word."""
        return [_filled(word, places) for word in self.command]

    def read_paths(self, places: Mapping[str, str]) -> list[str]:
        """What the command may read beside the checkpoint."""
        return [_filled(path, places) for path in self.reads]

    def judge(self, manifest: Manifest, report: object) -> Judgement:
        """What the command's report says: the step after the checkpoint's, a finite loss, and that
        the loss is the recorded one."""
        if not isinstance(report, dict) or type(report.get("step")) is not int:
            return Judgement("inconclusive", "the report is not an object with a step")
        loss = report.get("loss")
        if type(loss) not in (int, float):
            return Judgement("inconclusive", "the report has no loss")
        assert isinstance(loss, int | float)
        if report["step"] != manifest.step + 1:
            reason = f"it went to step {report['step']}; after {manifest.step} comes the next"
            return Judgement("fail", reason)
        if not _is_finite(loss):
            return Judgement("fail", f"the loss of step {report['step']} is {str(loss)[:40]}")
        recorded = manifest.metrics.get(NEXT_LOSS)
        if recorded is None:
            return Judgement(
                "pass", f"step {report['step']} has loss {loss!r}; none was recorded to compare"
            )
        same = math.isclose(loss, recorded, rel_tol=self.tolerance)
        said = f"step {report['step']} has loss {loss!r}, recorded was {recorded!r}"
        within = f" (tolerance {self.tolerance:g})" if self.tolerance else ""
        return Judgement("pass" if same else "fail", said + within)


def _is_finite(number: int | float) -> bool:
    """JSON may hold a whole number that no float can."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _filled(word: str, places: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: places[place[1]], word)


_REQUIRED = ("name", "version", "command", "world_size", "timeout", "memory")
_OPTIONAL = (
    "parameters", "disk", "processes", "tolerance", "environment", "reads", "corrupt_codes",
    "executor", "pod",
)  # fmt: skip
_DISK_BYTES, _TASKS = 1 << 30, 64


def parse_contract(root: Node) -> Contract:
    """Read a contract strictly. Raises the document's own error."""
    read = root.fields(_REQUIRED, _OPTIONAL)
    parameters = _parameters(read["parameters"]) if "parameters" in read else {}
    executor = read["executor"].one_of(("processes", "kubernetes")) if "executor" in read else ""
    if (executor == "kubernetes") != ("pod" in read):
        raise root.error("executor kubernetes and pod are given together or not at all")
    command = _command(read["command"], parameters)
    if "pod" in read:
        require_no_worker(read, command)
    return Contract(
        name=read["name"].checked(check_name),
        version=read["version"].text(40),
        command=command,
        parameters=parameters,
        world_size=read["world_size"].integer(1, 100_000),
        timeout=read_duration(read["timeout"]),
        memory_bytes=read_size(read["memory"]),
        disk_bytes=read_size(read["disk"]) if "disk" in read else _DISK_BYTES,
        tasks=read["processes"].integer(1, 100_000) if "processes" in read else _TASKS,
        tolerance=_tolerance(read["tolerance"]) if "tolerance" in read else 0.0,
        environment=_words(read.get("environment"), _ENVIRONMENT_NAME),
        reads=_reads(read.get("reads")),
        corrupt_codes=_codes(read["corrupt_codes"]) if "corrupt_codes" in read else (CORRUPT_CODE,),
        pod=parse_pod(read["pod"]) if "pod" in read else None,
        digest=hashlib.sha256(canonical_json(root.free(8, 1 << 16))).hexdigest(),
    )


def _parameters(node: Node) -> dict[str, Parameter]:
    return {name: _parameter(one) for name, one in node.members()}


def _parameter(node: Node) -> Parameter:
    read = node.fields(("type",), ("least", "most", "pattern"))
    kind: Any = read["type"].one_of(("integer", "number", "text", "flag"))
    if (kind == "text") != ("pattern" in read):
        raise node.error("a text, and nothing else, has a pattern")
    if kind in ("text", "flag") and ("least" in read or "most" in read):
        raise node.error(f"a {kind} has no least and most")
    return Parameter(
        kind,
        # Without a word for it no number is negative: `-5` could be an option of the command.
        float(read["least"].number()) if "least" in read else 0.0,
        float(read["most"].number()) if "most" in read else math.inf,
        _pattern(read["pattern"]) if "pattern" in read else None,
    )


def _pattern(node: Node) -> re.Pattern[str]:
    try:
        return re.compile(node.text(), re.ASCII)
    except re.error as error:
        raise node.error(f"not a regular expression: {error}") from None


def _command(node: Node, parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    known = {*PLACES, *(f"parameters.{name}" for name in parameters)}
    words = [(item, item.text()) for item in node.items(1000)]
    if not words or not words[0][1].startswith(("/", "{python}", "{checkout}/")):
        raise node.error("the command begins with an absolute path, {python} or {checkout}/…")
    for item, word in words:
        unknown = [place for place in _PLACE.findall(word) if place not in known]
        if unknown:
            raise item.error(f"{{{unknown[0]}}} is unknown; known are {', '.join(sorted(known))}")
    return tuple(word for _, word in words)


def _words(node: Node | None, pattern: re.Pattern[str] | None = None) -> tuple[str, ...]:
    found = [] if node is None else [(item, item.text()) for item in node.items(100)]
    for item, word in found:
        if pattern is not None and not pattern.fullmatch(word):
            raise item.error(f"{word[:40]!r} is not a name")
    return tuple(word for _, word in found)


def _reads(node: Node | None) -> tuple[str, ...]:
    for item in [] if node is None else node.items(100):
        unknown = [place for place in _PLACE.findall(item.text()) if place not in FIXED_PLACES]
        if unknown:
            raise item.error(f"{{{unknown[0]}}} is unknown; known are {', '.join(FIXED_PLACES)}")
    return _words(node)


def _tolerance(node: Node) -> float:
    tolerance = float(node.number())
    if not 0 <= tolerance <= 1:
        raise node.error("give a relative tolerance from 0 to 1")
    return tolerance


def _codes(node: Node) -> tuple[int, ...]:
    return tuple(item.integer(1, 255) for item in node.items(255))
