"""Whether what a deletion's intent says of itself would still justify it.

The facts are judged by the gate's own function, and each digest that they name must be that of a
record which says what the fact claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from lastgood.rules.gate import GateFacts, Truth, judge
from lastgood.rules.names import CheckpointId
from lastgood.rules.policy import Policy
from lastgood.rules.retention_rules import Level

ASKED_SINCE = frozenset({"no_lock"})
"""Facts of the gate that the first version did not ask for."""
_BEFORE = {"truth": Truth.TRUE.value, "evidence": "not asked when this was recorded"}
REBUILD = "rebuild"
"""The reason of a tombstone that no gate allowed: the bytes were gone when a rebuild looked."""


@dataclass(frozen=True, slots=True)
class KnownReceipt:
    """What a receipt says."""

    level: str
    verdict: str
    manifest: str
    checkpoint: str
    number: int
    copy_id: int


@dataclass(frozen=True, slots=True)
class KnownMark:
    """What a mark is."""

    digest: str
    kind: str
    policy: str


@dataclass(frozen=True, slots=True)
class Known:
    """The records that an intent may name: manifests with the checkpoint of each, policies by
    digest, marks by number, receipts of the stage by name, incarnations that a rebuild made."""

    rebuilds: Set[int] = frozenset()
    manifests: dict[str, str] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    marks: dict[int, KnownMark] = field(default_factory=dict)
    receipts: dict[str, KnownReceipt] = field(default_factory=dict)


def unjustified(intent: Mapping[str, Any], known: Known) -> Iterator[str]:
    """Why a tombstone's document does not justify its deletion."""
    facts = intent["facts"]
    if intent["policy_digest"] not in known.policies:
        yield f"its policy {intent['policy_digest']} was never recorded"
    if intent["copy_id"] is None:
        if not facts.get("reason"):
            yield "it gives no reason for giving up the attempt"
    elif facts.get("reason") == REBUILD and intent["mark_id"] is None:
        if facts.get("incarnation") not in known.rebuilds:
            yield f"no rebuild made incarnation {facts.get('incarnation')}"
    elif not isinstance(facts.get("facts"), Mapping):
        yield "it has no facts of the gate"
    else:
        yield from _judged(facts["facts"])
        yield from _unproven(facts["facts"], facts.get("evidence", {}), intent, known)


def _judged(told: Mapping[str, Any]) -> Iterator[str]:
    """What today's gate says against the facts; one that nobody recorded is unknown. Intents of
    earlier versions could not name what is asked since."""
    told = dict.fromkeys(ASKED_SINCE, _BEFORE) | dict(told)
    names = [each.name for each in fields(GateFacts)]
    here = {name: told[name] for name in names if name in told}
    verdict = judge(GateFacts.from_json(here))
    for name in names:
        if name not in here:
            yield f"fact {name} is missing"
        elif here[name]["truth"] != Truth.TRUE:
            yield f"fact {name} is {here[name]['truth']}"
        elif not here[name]["evidence"]:
            yield f"fact {name} has no evidence"
    if not verdict.allowed and all(name in here for name in names):
        yield "the gate would not let it go"


def _unproven(
    told: Mapping[str, Any], evidence: Mapping[str, Any], intent: Mapping[str, Any], known: Known
) -> Iterator[str]:
    checkpoint, manifest = evidence.get("checkpoint", ""), evidence.get("manifest")
    if known.manifests.get(str(manifest)) != checkpoint or not checkpoint:
        yield f"manifest {manifest} of {checkpoint or 'no checkpoint'} is not among the records"
    yield from _marked(told, evidence, intent, known)
    yield from _newer(told, checkpoint, intent, known)
    yield from _receipts(told, evidence.get("receipts"), known)
    at = datetime.fromisoformat(intent["recorded_at"])
    for hold in evidence.get("holds", ()):
        ends = [hold[end] for end in ("released_at", "expires_at") if hold[end] is not None]
        if not any(datetime.fromisoformat(end) <= at for end in ends):
            yield f"hold {hold['hold']} stood when it was intended"
    if evidence.get("readers", {}).get("open"):
        yield f"{evidence['readers']['open']} readers had not ended when it was intended"


def _marked(
    told: Mapping[str, Any], evidence: Mapping[str, Any], intent: Mapping[str, Any], known: Known
) -> Iterator[str]:
    mark = known.marks.get(intent["mark_id"])
    digests = _digests(told, "marked")
    if mark is None:
        yield f"its mark {intent['mark_id']} is not among the records"
        return
    if mark.kind != "live":
        yield f"its mark {intent['mark_id']} is a {mark.kind} one"
    if not digests.get("mark") == evidence.get("mark", {}).get("digest") == mark.digest:
        yield f"its mark {intent['mark_id']} has another digest than was certified"
    if not digests.get("policy") == mark.policy == intent["policy_digest"]:
        yield f"its mark {intent['mark_id']} was made under another policy"


def _newer(
    told: Mapping[str, Any], checkpoint: str, intent: Mapping[str, Any], known: Known
) -> Iterator[str]:
    """A newer checkpoint of the stage has the receipt that is named, and that manifest is there:
    unless the stage had reached its end of life."""
    passed, present = _digests(told, "newer_passed"), _digests(told, "newer_present")
    if passed.get("retirement") and passed.get("retirement") == present.get("retirement"):
        return
    receipt = known.receipts.get(passed.get("receipt", ""))
    if receipt is None:
        yield f"receipt {passed.get('receipt')} of the newer checkpoint is not among the records"
        return
    level = _gate_level(CheckpointId.parse(checkpoint), intent["policy_digest"], known)
    if receipt.verdict != "pass" or receipt.level not in level.at_least:
        yield f"receipt {passed['receipt']} is a {receipt.level} {receipt.verdict}, no {level} pass"
    if not passed.get("manifest") == present.get("manifest") == receipt.manifest:
        yield f"receipt {passed['receipt']} is of manifest {receipt.manifest}"
    if known.manifests.get(receipt.manifest) != receipt.checkpoint:
        yield f"manifest {receipt.manifest} of {receipt.checkpoint} is not among the records"
    if not _is_newer(receipt.checkpoint, checkpoint):
        yield f"{receipt.checkpoint} is not newer than {checkpoint}"


def _receipts(
    told: Mapping[str, Any], newest: tuple[int, str] | None, known: Known
) -> Iterator[str]:
    """The stage's chain goes at least as far as the intent saw it, and nothing in it up to there
    speaks against the receipt that is named. Intents of earlier versions name no such head."""
    if newest is None:
        return
    number, name = newest
    head = known.receipts.get(name)
    if head is None or head.number != number:
        yield f"receipt {number}, the newest when it was intended, is not among the records"
    passed = known.receipts.get(_digests(told, "newer_passed").get("receipt", ""))
    if passed is None:
        return
    later = [
        one
        for one in known.receipts.values()
        if one.copy_id == passed.copy_id
        and one.verdict != "inconclusive"
        and passed.number < one.number <= number
    ]
    last = max(later, key=lambda one: one.number, default=passed)
    if last.verdict == "fail":
        yield f"receipt {last.number} failed on {passed.checkpoint}, and was newer than its pass"


def _gate_level(checkpoint: CheckpointId, policy_digest: str, known: Known) -> Level:
    policy = known.policies.get(policy_digest)
    if policy is None:
        return Level.RESTORE
    return policy.for_stage(checkpoint.workload, checkpoint.stage).gate.level


def _digests(told: Mapping[str, Any], name: str) -> Mapping[str, str]:
    digests: Mapping[str, str] = told.get(name, {}).get("digests", {})
    return digests


def _is_newer(one: str, other: str) -> bool:
    newer, older = CheckpointId.parse(one), CheckpointId.parse(other)
    return newer.stage_id == older.stage_id and newer.position > older.position
