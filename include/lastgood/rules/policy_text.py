"""A policy in the sentences of an operator, and what is dangerous about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import combinations

from lastgood.rules.policy import Override, Policy, Role, never_selects
from lastgood.rules.policy_sections import Cadence
from lastgood.rules.quantities import duration_text, share_text, size_text
from lastgood.rules.retention_rules import Every, Level

_LEAVING = {
    "none": "",
    "newer_restored": "; one leaves when a newer one has passed at the gate's level",
    "anchor_verified": "; one leaves when the stage has a verified anchor",
    "age_met": "; one leaves when it is older than that",
}


def sentences(policy: Policy) -> str:
    """The policy in plain words, one sentence a line; then each override, indented."""
    return "\n".join([*_sentences(policy), *_override_sentences(policy)])


def warnings(policy: Policy) -> tuple[str, ...]:
    """One sentence for each thing that an operator must know before the policy is applied."""
    own = list(_warnings(policy))
    overridden = (
        f"For {override}: {warning}"
        for override, rules in zip(policy.overrides, policy.overridden, strict=True)
        for warning in _warnings(rules)
        if warning not in own
    )
    return (*own, *overridden)


def _sentences(policy: Policy) -> Iterator[str]:
    quarantine = policy.quarantine
    yield f"Policy {policy.name}, by the calendar of {policy.timezone}."
    yield from _roles(policy)
    yield (
        "Always keep the newest checkpoint, whatever is held, read, resumed from or depended on,"
        " and the newest copy that passed a validation."
    )
    if not policy.lineage:
        yield from _lineage(policy)
    yield from _gate(policy)
    approval = quarantine.approve_above
    yield (
        f"It waits {duration_text(quarantine.grace)} in quarantine"
        + (f"; more than {size_text(approval)} at once needs approval." if approval else ".")
    )
    yield (
        f"A sweep stops if it would take more than {share_text(quarantine.share_guard)} of a"
        f" project's copies and more than {quarantine.share_guard_min} of them."
    )
    yield (
        "What is retired gives up its last copy, too,"
        + (" once a second operator approved it and" if policy.retire.approve else " once")
        + f" nobody undid it for {duration_text(policy.retire.grace)}."
    )
    for section in (_uploads, _evidence, _validate, _objectives):
        yield from section(policy)
    yield (
        f"Collection begins at {policy.capacity.soft} of the store; nothing new is admitted above"
        f" {policy.capacity.hard}."
    )


def _override_sentences(policy: Policy) -> Iterator[str]:
    for number, (override, rules) in enumerate(
        zip(policy.overrides, policy.overridden, strict=True)
    ):
        yield f"Override {number}, for {override}:"
        for name in override.changes():
            yield from (f"  {sentence}" for sentence in _OVERRIDDEN[name](rules))
    for one, other in _overlaps(policy):
        yield (f"Overrides {one} and {other} overlap: for what both match, override {one} holds.")


def _overlaps(policy: Policy) -> Iterator[tuple[int, int]]:
    numbered: list[tuple[int, Override]] = list(enumerate(policy.overrides))
    for (one, first), (other, second) in combinations(numbered, 2):
        if first.meets(second):
            yield one, other


def _roles(rules: Policy) -> Iterator[str]:
    yield from map(_role_sentence, rules.roles)


def _role_sentence(role: Role) -> str:
    tier = f" (tier {role.tier})" if role.tier else ""
    return f"As {role.name}{tier}, keep {role.rule}{_LEAVING[role.leaves_when]}."


def _lineage(rules: Policy) -> Iterator[str]:
    what = "stays" if rules.lineage else "may go"
    yield f"What kept checkpoints were resumed from {what}."


def _gate(rules: Policy) -> Iterator[str]:
    yield (
        f"A copy goes only if a newer one passed at level {rules.gate.level} in the last"
        f" {duration_text(rules.gate.receipt_max_age)}."
    )


def _grace(rules: Policy) -> Iterator[str]:
    yield f"A copy waits {duration_text(rules.quarantine.grace)} in quarantine."


def _uploads(rules: Policy) -> Iterator[str]:
    after = duration_text(rules.uploads.abort_after)
    yield f"Incomplete uploads go after {after} without a live lease."


def _evidence(rules: Policy) -> Iterator[str]:
    period = duration_text(rules.forensic_retention)
    yield f"Failed attempts, and copies that fail a validation, stay as evidence for {period}."


def _validate(rules: Policy) -> Iterator[str]:
    told = ", ".join(f"{level} {_when(rules.validate.cadence(level))}" for level in Level)
    again = duration_text(rules.validate.reread_all_within)
    yield f"Validation: {told}; every byte is read again within {again}."


def _when(cadence: Cadence) -> str:
    if cadence.every_commit:
        return "of every commit"
    if cadence.interval is None:
        return "never"
    return f"of the newest every {duration_text(cadence.interval)}"


def _objectives(rules: Policy) -> Iterator[str]:
    aims = rules.objectives
    yield (
        f"A job may lose {duration_text(aims.rpo)} of work, must run again within"
        f" {duration_text(aims.rto)}, and may give {share_text(aims.max_overhead)} of its time to"
        " checkpoints."
    )


_OVERRIDDEN: Mapping[str, Callable[[Policy], Iterator[str]]] = {
    "roles": _roles,
    "lineage": _lineage,
    "forensic_retention": _evidence,
    "gate": _gate,
    "quarantine": _grace,
    "uploads": _uploads,
    "validate": _validate,
    "objectives": _objectives,
}


def _warnings(rules: Policy) -> Iterator[str]:
    gate, quarantine = rules.gate, rules.quarantine
    cadence = rules.validate.cadence(gate.level)
    if gate.level is not Level.RESTORE:
        yield (
            f"THE GATE IS WEAKER THAN RESTORE: copies are deleted on the word of a {gate.level}"
            " receipt. Nothing proves that what is left can be restored."
        )
    if cadence.never:
        yield (
            f"NOTHING WILL EVER BE DELETED: the gate asks for {gate.level} receipts, and"
            f" validate.{gate.level} is never."
        )
    if cadence.interval is not None and cadence.interval >= gate.receipt_max_age:
        yield (
            f"Collection will stall: {gate.level} receipts come every"
            f" {duration_text(cadence.interval)} and count for"
            f" {duration_text(gate.receipt_max_age)} only."
        )
    for role in rules.roles:
        if never_selects(role, rules):
            yield f"Role {role.name} keeps nothing: no receipt that it asks for is ever made."
        yield from _too_short(role)
    if not any(isinstance(role.rule, Every) for role in rules.roles):
        yield "No role keeps by time: a burst of commits pushes every older checkpoint out."
    if quarantine.grace < timedelta(hours=1):
        yield (
            f"Quarantine lasts {duration_text(quarantine.grace)}: nobody will notice a wrong"
            " deletion in time to undo it."
        )
    if not rules.retire.approve:
        yield "One operator alone can retire a stage, and so give up its last copy."
    if quarantine.share_guard == 1:
        yield "The share guard is off: one sweep may take everything that a wrong mark names."
    if not rules.lineage:
        yield "Checkpoints that runs were resumed from may go: a run that diverges cannot go back."


def _too_short(role: Role) -> Iterator[str]:
    """A span in which no second bucket can end."""
    rule = role.rule
    if not isinstance(rule, Every) or rule.within is None or rule.within > rule.interval:
        return
    none = rule.within < rule.interval
    yield (
        f"Role {role.name} never keeps more than one checkpoint"
        + (", and none for a part of each interval" if none else "")
        + f": it keeps one of each {duration_text(rule.interval)}, for"
        f" {duration_text(rule.within)}."
    )
