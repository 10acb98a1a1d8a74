"""A policy in the sentences of an operator, and what is dangerous about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from lastgood.rules.quantities import duration_text, share_text, size_text
from lastgood.rules.retention_rules import Every, Level

if TYPE_CHECKING:
    from lastgood.rules.policy import Policy, Role

_LEAVING = {
    "none": "",
    "newer_restored": "; one leaves when a newer one has passed at the gate's level",
    "anchor_verified": "; one leaves when the stage has a verified anchor",
    "age_met": "; one leaves when it is older than that",
}


def sentences(policy: Policy) -> str:
    """The policy in plain words, one sentence a line."""
    return "\n".join(_sentences(policy))


def _sentences(policy: Policy) -> Iterator[str]:
    gate, quarantine, uploads = policy.gate, policy.quarantine, policy.uploads
    yield f"Policy {policy.name}, by the calendar of {policy.timezone}."
    yield from map(_role_sentence, policy.roles)
    yield (
        "Always keep the newest checkpoint, whatever is held, read, resumed from or depended on,"
        " and the newest copy that passed a validation."
    )
    if not policy.lineage:
        yield "What kept checkpoints were resumed from may go."
    yield (
        f"A copy goes only if a newer one passed at level {gate.level} in the last"
        f" {duration_text(gate.receipt_max_age)}."
    )
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
    yield f"Incomplete uploads go after {duration_text(uploads.abort_after)} without a live lease."
    yield f"Failed attempts stay as evidence for {duration_text(policy.forensic_retention)}."
    yield (
        f"Collection begins at {policy.capacity.soft} of the store; nothing new is admitted above"
        f" {policy.capacity.hard}."
    )


def _role_sentence(role: Role) -> str:
    tier = f" (tier {role.tier})" if role.tier else ""
    return f"As {role.name}{tier}, keep {role.rule}{_LEAVING[role.leaves_when]}."


def warnings(policy: Policy) -> tuple[str, ...]:
    """One sentence for each thing that an operator must know before the policy is applied."""
    return tuple(_warnings(policy))


def _warnings(policy: Policy) -> Iterator[str]:
    gate, quarantine = policy.gate, policy.quarantine
    cadence = policy.validate.cadence(gate.level)
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
    if not any(isinstance(role.rule, Every) for role in policy.roles):
        yield "No role keeps by time: a burst of commits pushes every older checkpoint out."
    if quarantine.grace < timedelta(hours=1):
        yield (
            f"Quarantine lasts {duration_text(quarantine.grace)}: nobody will notice a wrong"
            " deletion in time to undo it."
        )
    if not policy.retire.approve:
        yield "One operator alone can retire a stage, and so give up its last copy."
    if quarantine.share_guard == 1:
        yield "The share guard is off: one sweep may take everything that a wrong mark names."
    if not policy.lineage:
        yield "Checkpoints that runs were resumed from may go: a run that diverges cannot go back."
