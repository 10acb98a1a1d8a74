"""Bring the catalog to the configuration that operators keep in git."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lastgood.catalog import locks
from lastgood.catalog.db import Catalog, Transaction
from lastgood.catalog.rebuilding import rebuilds
from lastgood.catalog.settings import policy_versions, projects, store_profiles, store_registrations
from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.errors import Conflict, ForeignCatalog
from lastgood.flows import control_keys, store_profile
from lastgood.flows.services import stores_of
from lastgood.flows.settings.configuration import Configuration, read_configuration
from lastgood.flows.settings.registering import publish_history
from lastgood.rules import policy_text
from lastgood.rules.policy import Policy
from lastgood.rules.store_profile import FoundProfile
from lastgood.stores.open import folder_of


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that `apply` changed: `what` is store, project or policy, `how` added, changed,
    probed, or recorded: a policy that takes force only once it is promoted; it waits while it was
    recorded before, and applied again where a promotion is no more required.
    `warnings` are what an operator has to know about a policy."""

    what: str
    name: str
    how: str
    warnings: tuple[str, ...] = ()


def apply(catalog: Catalog, folder: Path, *, actor: str, probe: bool = False) -> list[Change]:
    """Read the configuration below `folder` and write what differs; repeating it changes nothing.

    A new file store's folder is made, and every store is claimed for this catalog. A store that was
    never probed at its place is probed, and one that comes back after it was unregistered; with
    `probe` all are. What the folder does not name stays as it is. Raises InvalidConfig before
    anything is written, StoreUnfit for a store that cannot hold checkpoints, StoreError for one
    that cannot be reached, ForeignCatalog or CatalogBehind for one that is not ours, Conflict for a
    change that would lose bytes. A catalog without a history has everything written by then, so
    that a rebuild knows what it is to take over.
    """
    configuration = read_configuration(folder)
    changes = [
        *_apply_stores(catalog, configuration, actor, probe=probe),
        *_apply_projects(catalog, configuration, actor),
    ]
    stores = stores_of(catalog)
    added = {one.name for one in changes if (one.what, one.how) == ("store", "added")}
    for row in configuration.stores:
        publish_history(catalog, stores[row.name], anew=row.name in added)
        control_keys.claim(catalog, stores[row.name])
    return changes


def _apply_stores(
    catalog: Catalog, configuration: Configuration, actor: str, *, probe: bool
) -> Iterator[Change]:
    for wanted in configuration.stores:
        with catalog.transaction() as tx:
            known = projects.find_store(tx, wanted.name)
            moved = known is not None and _place(known) != _place(wanted)
            if moved:
                _require_unused(tx, wanted.name)
        if wanted.kind == "file" and (known is None or moved):
            folder_of(wanted.config["root"]).mkdir(parents=True, exist_ok=True)
        found = _fitting(catalog, wanted, again=probe or known is None)
        with catalog.transaction() as tx:
            if known != wanted:
                projects.put_store(tx, wanted)
                store_registrations.register_anew(tx, wanted.name, actor=actor)
            if found is not None:
                store_profiles.record(tx, wanted, found, recorded_by=actor)
        if known != wanted:
            yield Change("store", wanted.name, "added" if known is None else "changed")
        elif found is not None:
            yield Change("store", wanted.name, "probed")


def _fitting(catalog: Catalog, wanted: StoreRow, *, again: bool) -> FoundProfile | None:
    """As `store_profile.fit`; None also for another catalog's store where ours is empty: it is not
    probed before a rebuild took it over, and claiming it is refused."""
    try:
        return store_profile.fit(catalog, wanted, again=again)
    except ForeignCatalog:
        with catalog.transaction() as tx:
            if rebuilds.has_history(tx):
                raise
        return None


def _apply_projects(catalog: Catalog, configuration: Configuration, actor: str) -> Iterator[Change]:
    for wanted in configuration.projects:
        policy = configuration.policies[wanted.policy]
        with catalog.transaction() as tx:
            locks.project_exclusive(tx, wanted.name)
            known = projects.find(tx, wanted.name)
            changed = known is None or replace(known, last_mark_at=None) != wanted
            if changed:
                projects.put(tx, wanted)
            policy_change = _put_policy(tx, wanted, known, policy, actor)
        if changed:
            yield Change("project", wanted.name, "added" if known is None else "changed")
        if policy_change is not None:
            yield policy_change


def _put_policy(
    tx: Transaction, wanted: Project, known: Project | None, policy: Policy, actor: str
) -> Change | None:
    """Put the policy in force, or only record it where a promotion is required: before or after
    this change of the project, so that no one change lifts the rule and uses that. A project's
    first policy takes force at once."""
    document, warnings = policy.to_json(), policy_text.warnings(policy)
    settings = {one.config.get("promotion") for one in (wanted, known) if one is not None}
    if "required" in settings and policy_versions.times_in_force(tx, wanted.name):
        version, added = policy_versions.record(
            tx, wanted.name, policy.name, policy.digest, document, recorded_by=actor
        )
        name = f"{wanted.name}/{version.name}"
        return Change("policy", name, "recorded", warnings) if added else None
    waiting = policy_versions.waiting(tx, wanted.name, policy.name, policy.digest)
    if waiting is not None:  # what one apply did not put in force, its repetition must not either
        way_out = (
            "it is not in force:"
            f" `lastgood policy promote {waiting.name} -p {wanted.name} --because WHY`"
        )
        return Change("policy", f"{wanted.name}/{waiting.name}", "waits", (*warnings, way_out))
    promoted = policy_versions.promote(
        tx, wanted.name, policy.name, policy.digest, document, recorded_by=actor
    )
    if promoted is None:
        return None
    how = "added" if promoted.version == 1 else "changed"
    return Change("policy", f"{wanted.name}/{policy.name}", how, warnings)


def _place(row: StoreRow) -> tuple[object, ...]:
    return row.kind, row.config["root"], row.config.get("prefix")


def _require_unused(tx: Transaction, store: str) -> None:
    if projects.is_used(tx, store):
        raise Conflict(
            reason=f"store {store} holds checkpoints, so its place stays; name the new place"
            " otherwise and move the projects to it"
        )
