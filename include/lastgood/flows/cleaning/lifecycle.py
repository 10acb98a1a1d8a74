"""The bucket's own rule against abandoned uploads: check it, propose it, apply it, read it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lastgood.catalog import history
from lastgood.catalog.cleaning import lifecycle_checks
from lastgood.catalog.cleaning.lifecycle_checks import LifecycleCheck
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.jobs import uploads
from lastgood.catalog.settings import projects
from lastgood.errors import CatalogSetup, InvalidInput, LastgoodError
from lastgood.flows.as_json import as_json
from lastgood.flows.policies import policy_of
from lastgood.rules.layout import CHECKPOINTS_PREFIX, CONTROL_PREFIX
from lastgood.rules.lifecycle import Assessment, LifecycleState, assess, destroying, our_rule
from lastgood.rules.upload_threshold import lifecycle_days, threshold
from lastgood.stores.base import AccessRefused, Store, StoreError
from lastgood.stores.keys import prefix_in_bucket
from lastgood.stores.lifecycle import HasLifecycle, Lifecycle, LifecycleRules, LifecycleUnsupported
from lastgood.stores.open import Stores

_LEAST_THRESHOLD = timedelta(0)


class RuleNotKept(LastgoodError):
    """Store {store}: the server took the rules, but reading them back shows others: {reason}.
    Nothing of what it shows now was changed again."""

    status = 502
    type = "lifecycle-not-kept"


@dataclass(frozen=True, slots=True)
class Ensured:
    """The bucket's rules as they stand, and whether they were changed for it."""

    store: str
    bucket: str
    applied: bool
    assessment: Assessment

    def to_json(self) -> dict[str, Any]:
        """All of it, for scripts."""
        document: dict[str, Any] = as_json(self.assessment)
        return {"store": self.store, "bucket": self.bucket, "applied": self.applied, **document}


def ensure(catalog: Catalog, stores: Stores, store: str, *, apply: bool, actor: str) -> Ensured:
    """Check the rule of a store's bucket, and with `apply` put it there if it is wanted; the rules
    of others go back as they were read.

    Raises NotFound, InvalidInput for a store without such rules, LifecycleUnsupported,
    AccessRefused, StoreError, and RuleNotKept where the server shows others than it was given.
    """
    opened = stores[store]
    rules = _rules_of(opened)
    found = rules.read()
    assessment = _assess(catalog, opened, rules, found)
    applied = apply and assessment.proposal is not None
    if applied:
        rules.write(Lifecycle(assessment.proposal or (), found.minimum_size))
        kept = rules.read()
        _require_kept(store, assessment, kept)
        assessment = _assess(catalog, opened, rules, kept)
    _record(catalog, store, assessment, actor)
    return Ensured(store, rules.bucket, applied, assessment)


def warnings(catalog: Catalog, stores: Stores, project: str, actor: str) -> list[str]:
    """Check the buckets of a project and say what is not as it should be. Never raises for what a
    server answers: it is one of the warnings."""
    with catalog.transaction() as tx:
        names = projects.stores_of(tx, project)
    said: list[str] = []
    for name in names:
        try:
            store = stores[name]
            if not isinstance(store, HasLifecycle):
                continue
            rules = store.lifecycle()
            assessment = _assess(catalog, store, rules, rules.read())
        except StoreError as error:
            assessment = _failed(error)
        _record(catalog, name, assessment, actor)
        said += [f"{name}: {text}" for text in _complaints(name, assessment)]
    return said


def alerts(tx: Transaction, project: str | None = None) -> Iterator[str]:
    """What the newest checks complain about, without asking any store."""
    wanted = None if project is None else set(projects.stores_of(tx, project))
    for store, said in complaints(tx).items():
        if wanted is None or store in wanted:
            yield f"{store}: {'; '.join(said)}; see `lastgood store ensure-lifecycle {store}`"


def complaints(tx: Transaction) -> dict[str, list[str]]:
    """What is not as it should be in the bucket of each store, by the newest check of it."""
    found: dict[str, list[str]] = {}
    prefixes = {one.name: str(one.config.get("prefix") or "") for one in projects.stores(tx)}
    for store, check in lifecycle_checks.newest(tx).items():
        said = [] if check.state == LifecycleState.KEPT else [check.says]
        said += destroying(check.rules, _needed_prefixes(prefix_in_bucket(prefixes[store])))
        if said:
            found[store] = said
    return found


def _complaints(store: str, found: Assessment) -> Sequence[str]:
    if found.state is LifecycleState.KEPT:
        return list(found.warnings)
    return [f"{found.says}; see `lastgood store ensure-lifecycle {store}`", *found.warnings]


def _rules_of(store: Store) -> LifecycleRules:
    if not isinstance(store, HasLifecycle):
        reason = (
            f"{store.name} is a {store.profile.kind} store, whose server ends no uploads by itself;"
            " the clean-up ends them there"
        )
        raise InvalidInput(where="the store", reason=reason)
    return store.lifecycle()


def _assess(catalog: Catalog, store: Store, rules: LifecycleRules, found: Lifecycle) -> Assessment:
    needed_days, longest = _needed(catalog, store.name)
    return assess(
        found.rules,
        store=store.name,
        prefix=rules.prefix + CHECKPOINTS_PREFIX,
        needed=_needed_prefixes(rules.prefix),
        needed_days=needed_days,
        longest=longest,
    )


def _needed_prefixes(prefix: str) -> tuple[str, ...]:
    return prefix + CHECKPOINTS_PREFIX, prefix + CONTROL_PREFIX


def _needed(catalog: Catalog, store: str) -> tuple[int, timedelta]:
    """The days of our rule, and the largest threshold of whoever may upload to the store."""
    days, longest = 1, _LEAST_THRESHOLD
    with catalog.transaction() as tx:
        for project in projects.names(tx):
            if store not in projects.stores_of(tx, project):
                continue
            try:
                policy = policy_of(tx, project)
            except CatalogSetup:  # nobody can upload without a policy
                continue
            measured = uploads.measured(tx, project)
            ages = [policy.uploads.abort_after]
            for workload, stage, name in uploads.classes(tx, project):
                rules = policy.for_stage(workload, stage).uploads
                ages.append(threshold(rules, name, measured.get(name)).age)
            days, longest = max(days, policy.uploads.lifecycle_days), max(longest, *ages)
    return lifecycle_days(days, longest), longest


def _require_kept(store: str, asked: Assessment, kept: Lifecycle) -> None:
    others = [rule for rule in asked.rules if rule.get("ID") != asked.ours["ID"]]
    for rule in others:
        if rule not in kept.rules:
            raise RuleNotKept(store=store, reason=f"rule {rule.get('ID')!r} is not as it was")
    again = assess(
        kept.rules,
        store=store,
        prefix=asked.ours["Filter"]["Prefix"],
        needed=(),
        needed_days=asked.needed_days,
        longest=_LEAST_THRESHOLD,
    )
    if again.proposal is not None:
        raise RuleNotKept(store=store, reason=f"rule {asked.ours['ID']!r} is not there")


def _failed(error: StoreError) -> Assessment:
    if isinstance(error, LifecycleUnsupported):
        state = LifecycleState.UNSUPPORTED
    elif isinstance(error, AccessRefused):
        state = LifecycleState.REFUSED
    else:
        state = LifecycleState.UNREADABLE
    return Assessment(state, str(error), None, 1, (), (), our_rule("", "", 1), None)


def _record(catalog: Catalog, store: str, found: Assessment, actor: str) -> None:
    with catalog.transaction() as tx:
        lifecycle_checks.record(
            tx,
            LifecycleCheck(
                store=store,
                state=found.state.value,
                says=found.says,
                days=found.days,
                needed_days=found.needed_days,
                rules=as_json(found.rules),
                actor=actor,
                recorded_at=history.now(tx),
            ),
        )
