"""Whether the records of a project, one after the other, prove its deletions.

Decided from the records alone, in the order in which an export writes them: what a stage's records
refer to comes before the stage. So whoever keeps an export, and a daily digest outside of it, can
decide it again without catalog, store or network. Memory grows with the names of one stage's
records and with the days, not with what they say.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from lastgood.errors import InvalidInput
from lastgood.rules import chain
from lastgood.rules.certificates import KeyDigest, identity
from lastgood.rules.chain import Link
from lastgood.rules.deletion_evidence import Known, KnownMark, KnownReceipt, unjustified
from lastgood.rules.names import CheckpointId
from lastgood.rules.policy import Policy
from lastgood.rules.quantities import counted

FORMAT = "lastgood-audit"
FORMAT_VERSION = 2
SEALED_FROM = 2
"""From this version on the last record of a file has the SHA-256 of all lines before it."""
# What a record can raise that is not of the form that its kind has.
_UNREADABLE = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    InvalidInput,
)
_TALLIED = ("stage", "receipt", "tombstone", "certificate", "digest")


@dataclass(frozen=True, slots=True)
class Break:
    """One record that is not as it was written, or contradicts another: `kind` and `name` say
    which."""

    kind: str
    name: str
    problem: str


@dataclass(slots=True)
class _Stage:
    """What was read of the stage at hand."""

    name: str = ""
    receipts: list[Link] = field(default_factory=list)
    tombstones: list[Link] = field(default_factory=list)
    certificates: list[Link] = field(default_factory=list)
    proven: dict[str, int] = field(default_factory=dict)  # the numbers of tombstones, by id
    intents: dict[str, str] = field(default_factory=dict)  # their digests
    answers: dict[str, KeyDigest] = field(default_factory=dict)


class Auditor:
    """Takes records and tells what is wrong with them. A record is one JSON object; what is not
    readable as such is a break, too, and never an error."""

    def __init__(self) -> None:
        self.project = ""
        self.format_version = FORMAT_VERSION
        self.counts: Counter[str] = Counter()
        self.open_tombstones = 0
        self.digests: dict[str, date] = {}
        self._rebuilds: set[int] = set()
        self._stages: set[str] = set()
        self._known = Known()
        self._stage = _Stage()
        self._heads: dict[date, dict[str, dict[str, Any]]] = {}
        self._last: Mapping[str, Any] | None = None  # the newest digest's body
        self._last_name: str | None = None
        self._ended = False
        self._take: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Break]]] = {
            "header": self._header,
            "policy": self._policy,
            "mark": self._mark,
            "manifest": self._manifest,
            "stage": self._next_stage,
            "receipt": self._receipt,
            "tombstone": self._tombstone,
            "answer": self._answer,
            "certificate": self._certificate,
            "digest": self._digest,
            "end": self._end,
        }

    def feed(self, record: Any) -> Iterator[Break]:
        """Take the next record."""
        self.counts["record"] += 1
        name = f"record {self.counts['record']}"
        try:
            kind = record["record"]
            if self._ended:
                yield Break("record", name, "it comes after the end")
            yield from self._take[kind](record)
        except _UNREADABLE as error:
            yield Break("record", name, f"it cannot be read: {type(error).__name__} {error}")
            return
        if kind in _TALLIED:
            self.counts[kind] += 1

    def finish(self, expect: str | None = None) -> Iterator[Break]:
        """What is wrong once nothing follows. `expect`: a daily digest that somebody kept
        elsewhere; everything up to its day must be what it was when it was made."""
        yield from self._close_stage()
        if not self._ended:
            yield Break("record", "end", "it is missing: the export was cut off")
        if expect is not None and expect not in self.digests:
            problem = "no day of this project has it: what it covered was changed or taken out"
            yield Break("digest", expect, problem)

    @property
    def covered_until(self) -> date | None:
        """The last day that a daily digest covers."""
        return max(self.digests.values(), default=None)

    def _header(self, record: Mapping[str, Any]) -> Iterator[Break]:
        known = range(1, FORMAT_VERSION + 1)
        if record["format"] != FORMAT or record["format_version"] not in known:
            problem = f"format {record['format']} {record['format_version']} is not known here"
            yield Break("record", "header", problem)
        else:
            self.format_version = record["format_version"]
        if self.counts["record"] != 1:
            yield Break("record", "header", "it is not the first record")
        self.project = record["project"]
        self._rebuilds = set(record["rebuilds"])
        self._known = Known(rebuilds=self._rebuilds)

    def _policy(self, record: Mapping[str, Any]) -> Iterator[Break]:
        digest, document = record["digest"], record["document"]
        if identity(document) != digest:
            yield Break("policy", digest, f"its content has digest {identity(document)}")
        self._known.policies[digest] = Policy.parse(document, where=f"policy {digest[:12]}")

    def _mark(self, record: Mapping[str, Any]) -> Iterator[Break]:
        self._known.marks[record["mark_id"]] = KnownMark(
            record["digest"], record["kind"], record["policy_digest"]
        )
        yield from ()

    def _manifest(self, record: Mapping[str, Any]) -> Iterator[Break]:
        body = record["body"].encode()
        found = hashlib.sha256(body).hexdigest()
        if found != record["digest"]:
            yield Break("manifest", record["digest"], f"its body has another SHA-256: {found}")
        told = json.loads(body)
        if told["project"] != self.project:
            yield Break("manifest", record["digest"], f"it is of project {told['project']}")
        stage = "/".join(told[part] for part in ("project", "workload", "stage"))
        name = f"{stage}/{told['generation']}.{told['sequence']}"
        self._known.manifests[record["digest"]] = name

    def _next_stage(self, record: Mapping[str, Any]) -> Iterator[Break]:
        yield from self._close_stage()
        self._stage = _Stage(record["stage"])
        self._known.receipts.clear()
        if not self._stage.name.startswith(f"{self.project}/"):
            yield Break("stage", self._stage.name, f"it is not of project {self.project}")
        if self._stage.name in self._stages:
            yield Break("stage", self._stage.name, "it is there twice")
        self._stages.add(self._stage.name)

    def _receipt(self, record: Mapping[str, Any]) -> Iterator[Break]:
        name, body = record["receipt"], record["body"]
        self._stage.receipts.append(Link(body["number"], name, body["previous"], identity(body)))
        self._known.receipts[name] = KnownReceipt(
            body["level"],
            body["verdict"],
            body["manifest"],
            body["checkpoint"],
            body["number"],
            body["copy"]["copy_id"],
        )
        if str(CheckpointId.parse(body["checkpoint"]).stage_id) != self._stage.name:
            yield self._break("receipt", body["number"], f"it is of {body['checkpoint']}")

    def _tombstone(self, record: Mapping[str, Any]) -> Iterator[Break]:
        digest, document = record["digest"], record["document"]
        link = Link(document["number"], digest, document["previous"], identity(document))
        self._stage.tombstones.append(link)
        tombstone = document["tombstone_id"]
        self._stage.intents[tombstone] = digest
        if record["proven"]:
            self._stage.proven[tombstone] = link.number
        else:
            self.open_tombstones += 1
        self._head(document["recorded_at"], "tombstones", link)
        for problem in unjustified(document, self._known):
            yield self._break("tombstone", link.number, problem)

    def _answer(self, record: Mapping[str, Any]) -> Iterator[Break]:
        answers = self._stage.answers.setdefault(record["tombstone_id"], KeyDigest())
        answers.add(record["answer"])
        yield from ()

    def _certificate(self, record: Mapping[str, Any]) -> Iterator[Break]:
        name, body = record["certificate"], record["body"]
        link = Link(body["number"], name, body["previous"], identity(body))
        self._stage.certificates.append(link)
        self._head(body["recorded_at"], "certificates", link)
        intent = body["intent"]
        self._stage.proven.pop(intent["tombstone_id"], None)
        for problem in self._wrong(body, intent):
            yield self._break("certificate", link.number, problem)

    def _wrong(self, body: Mapping[str, Any], intent: Mapping[str, Any]) -> Iterator[str]:
        tombstone = intent["tombstone_id"]
        if body["stage"] != self._stage.name:
            yield f"it is of stage {body['stage']}"
        if not self._stage.intents.get(tombstone) == body["intent_digest"] == identity(intent):
            yield f"tombstone {tombstone} is missing or another one than was certified"
        answers = self._stage.answers.pop(tombstone, KeyDigest())
        if answers.to_json() != body["keys"]:
            yield "what the store answered for its keys is not what was certified"
        if answers.refused:
            yield f"the store refused {counted(len(answers.refused), 'key')} to the end"
        proof = body["proof"]
        if proof.get("listing") != "complete" or proof.get("keys_left") != 0:
            yield "its proof does not say that nothing was left"
        if _instant(body["recorded_at"]) <= _instant(intent["recorded_at"]):
            yield "it is not later than the intent"

    def _digest(self, record: Mapping[str, Any]) -> Iterator[Break]:
        yield from self._close_stage()
        self._stage = _Stage()
        name, body = record["digest"], record["body"]
        day = date.fromisoformat(body["day"])
        label = f"{self.project} {day}"
        found = identity(body)
        if found != name:
            yield Break("digest", label, f"its content has digest {found}, not {name}")
        for problem in self._out_of_place(body, day):
            yield Break("digest", label, problem)
        heads = self._heads.pop(day, {})
        for stage in sorted({*heads, *body["stages"]}):
            said, here = body["stages"].get(stage), heads.get(stage)
            if said != here:
                problem = f"the records of {stage} end with {_told(here)}, it says {_told(said)}"
                yield Break("digest", label, problem)
        self.digests[name] = day
        self._last, self._last_name = body, name

    def _out_of_place(self, body: Mapping[str, Any], day: date) -> Iterator[str]:
        """A chain may only go on from elsewhere where a later incarnation of the catalog began."""
        if body["project"] != self.project:
            yield f"it is of project {body['project']}"
        last, name = self._last, self._last_name
        before = None if last is None else date.fromisoformat(last["day"])
        continued = body["continues"]
        if continued is not None:
            known = 0 if last is None else last["incarnation"]
            if not known <= continued["incarnation"] < body["incarnation"]:
                yield "it goes on from an incarnation that is not before its own"
            if last is not None and continued["number"] <= last["number"]:
                yield f"it goes on from number {continued['number']}, which is known here"
            number, name = continued["number"], continued["digest"]
            before = date.fromisoformat(continued["day"])
            for lost in [each for each in self._heads if each <= before]:
                del self._heads[lost]  # their digest went with the other incarnation
        else:
            number = 0 if last is None else last["number"]
        if body["number"] != number + 1:
            yield f"it has number {body['number']} after {number}: some are missing"
        if body["previous"] != name:
            yield f"its predecessor has digest {name}, it names {body['previous']}"
        if before is not None and day != before + timedelta(days=1):
            yield f"it follows the day {before}"
        for missed in sorted(each for each in self._heads if each < day):
            yield f"deletions of {missed} have no digest"

    def _end(self, record: Mapping[str, Any]) -> Iterator[Break]:
        self._ended = True
        if record["records"] != self.counts["record"]:
            problem = f"{record['records']} records were written, {self.counts['record']} are here"
            yield Break("record", "end", problem)

    def _close_stage(self) -> Iterator[Break]:
        stage = self._stage
        for kind in ("receipt", "tombstone", "certificate"):
            for number, problem in chain.broken(getattr(stage, f"{kind}s")):
                yield self._break(kind, number, problem)
        for number in stage.proven.values():
            yield self._break("tombstone", number, "its bytes are proven gone, uncertified")
        stage.proven.clear()
        for kind in ("receipt", "tombstone", "certificate"):
            getattr(stage, f"{kind}s").clear()

    def _break(self, kind: str, number: int, problem: str) -> Break:
        return Break(kind, f"{self._stage.name} {kind} {number}", problem)

    def _head(self, recorded_at: str, chained: str, link: Link) -> None:
        day = _instant(recorded_at).date()
        heads = self._heads.setdefault(day, {}).setdefault(self._stage.name, {})
        heads[chained] = [link.number, link.digest]


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _told(heads: Mapping[str, Any] | None) -> str:
    if not heads:
        return "nothing"
    return ", ".join(f"{kind} {number} {name[:12]}" for kind, (number, name) in heads.items())
