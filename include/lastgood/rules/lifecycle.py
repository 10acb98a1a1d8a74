"""A bucket's own rule against uploads that nobody ends: whether it is there, whether it leaves
uploads the time that they need, and what an operator has to put there.

It is the later safety net of the clean-up: it counts whole days from when an upload was begun, and
asks nobody whether a lease is live. So it must always allow more than the threshold does. The rules
of others are told about, and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

Rule = Mapping[str, Any]
ABORT = "AbortIncompleteMultipartUpload"
_DAY = timedelta(days=1)
_DELETES = {
    "Expiration": "deletes objects",
    "NoncurrentVersionExpiration": "deletes noncurrent versions",
    "Transitions": "moves objects to another storage class",
    "NoncurrentVersionTransitions": "moves noncurrent versions to another storage class",
}

_LONE_MARKERS = {"ExpiredObjectDeleteMarker": True}  # which hide nothing


class LifecycleState(StrEnum):
    KEPT = "kept"
    ABSENT = "absent"
    TOO_SHORT = "too-short"
    UNSUPPORTED = "unsupported"  # the server has no such rules
    REFUSED = "refused"  # these credentials may not read or write them
    UNREADABLE = "unreadable"  # the server failed


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was found. `days` are those of the rule that reaches our uploads first; `proposal` are
    all rules as they should be, None where nothing is to be changed or could be."""

    state: LifecycleState
    says: str
    days: int | None
    needed_days: int
    warnings: Sequence[str]
    rules: Sequence[Rule]
    ours: Rule
    proposal: Sequence[Rule] | None


def rule_id(store: str) -> str:
    """The name of our rule in a bucket that several stores may share."""
    return f"lastgood-{store}-abort-incomplete-uploads"


def our_rule(store: str, prefix: str, days: int) -> Rule:
    """The rule for a store's uploads below `prefix`, the bucket's own."""
    return {
        "ID": rule_id(store),
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        ABORT: {"DaysAfterInitiation": days},
    }


def assess(
    rules: Sequence[Rule],
    *,
    store: str,
    prefix: str,
    needed: Sequence[str],
    needed_days: int,
    longest: timedelta,
) -> Assessment:
    """Judge the rules of a bucket. `prefix` is that of the uploads, nothing below `needed` may go
    by a rule, `needed_days` are what ours is to say, `longest` is the largest threshold of the
    projects that use the store."""
    wanted = our_rule(store, prefix, needed_days)
    mine = next((rule for rule in rules if rule.get("ID") == wanted["ID"]), None)
    others = [rule for rule in rules if rule is not mine]
    reaching = [rule for rule in rules if _is_on(rule) and ABORT in rule and _meets(rule, prefix)]
    days = min((_days(rule) for rule in reaching), default=None)
    early = [rule for rule in reaching if _days(rule) * _DAY <= longest]
    covering = [rule for rule in reaching if _covers(rule, prefix)]
    if early:
        state, says = LifecycleState.TOO_SHORT, _too_early(early, longest)
    elif covering:
        named = min(covering, key=_days)
        state = LifecycleState.KEPT
        says = f"rule {_name(named)} aborts incomplete uploads after {_days_text(_days(named))}"
    else:
        state = LifecycleState.ABSENT
        says = f"no rule aborts incomplete uploads below {prefix!r}"
    by_others = [rule for rule in covering if rule is not mine and rule not in early]
    is_right = mine is not None and _is_same(mine, wanted)
    wants_ours = not is_right and (mine is not None or not by_others)
    return Assessment(
        state=state,
        says=says,
        days=days,
        needed_days=needed_days,
        warnings=(
            *(
                f"rule {_name(rule)} is not ours: change it yourself, or its prefix"
                for rule in others
                if rule in early
            ),
            *destroying(others, needed),
        ),
        rules=rules,
        ours=wanted,
        proposal=[*others, wanted] if wants_ours else None,
    )


def _too_early(early: Sequence[Rule], longest: timedelta) -> str:
    named = min(early, key=_days)
    return (
        f"rule {_name(named)} aborts uploads after {_days_text(_days(named))}, which is not longer"
        f" than the threshold of {longest}: uploads that are still being sent would be cut off"
    )


def destroying(rules: Sequence[Rule], needed: Sequence[str]) -> Iterator[str]:
    """Which rules delete or move what lies below one of the prefixes that are needed."""
    for rule in rules:
        met = next((prefix for prefix in needed if _meets(rule, prefix)), None)
        if not _is_on(rule) or met is None:
            continue
        for action, does in _DELETES.items():
            if rule.get(action) and rule[action] != _LONE_MARKERS:
                yield f"rule {_name(rule)} {does} below {met!r}: no checkpoint is safe from it"


def _is_on(rule: Rule) -> bool:
    return rule.get("Status") == "Enabled"


def _days(rule: Rule) -> int:
    return int(rule[ABORT].get("DaysAfterInitiation", 0))


def _days_text(days: int) -> str:
    return f"{days} day" if days == 1 else f"{days} days"


def _name(rule: Rule) -> str:
    return repr(rule.get("ID") or "without a name")


def prefix_of(rule: Rule) -> str:
    """What keys a rule is for, whichever of its three forms says so."""
    filtered = rule.get("Filter") or {}
    return str(
        rule.get("Prefix")
        or filtered.get("Prefix")
        or (filtered.get("And") or {}).get("Prefix")
        or ""
    )


def _is_narrowed(rule: Rule) -> bool:
    """Whether the rule holds for some of its prefix's objects only, by tag or size."""
    return bool(set(rule.get("Filter") or {}) - {"Prefix"})


def _covers(rule: Rule, prefix: str) -> bool:
    return prefix.startswith(prefix_of(rule)) and not _is_narrowed(rule)


def _meets(rule: Rule, prefix: str) -> bool:
    return prefix.startswith(prefix_of(rule)) or prefix_of(rule).startswith(prefix)


def _is_same(rule: Rule, wanted: Rule) -> bool:
    return (
        _is_on(rule)
        and prefix_of(rule) == prefix_of(wanted)
        and not _is_narrowed(rule)
        and rule.get(ABORT) == wanted[ABORT]
        and not any(rule.get(action) for action in _DELETES)
    )
