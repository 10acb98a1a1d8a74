"""What operators keep in git: stores, projects and policies, read strictly from YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from lastgood.catalog.settings.projects import Project, StoreRow
from lastgood.errors import InvalidConfig, InvalidInput, InvalidPolicy
from lastgood.flows.settings.contracts import registered
from lastgood.flows.settings.documents import ConfigDocument, read_file, read_folder
from lastgood.reports.checks import STORE, SUITES
from lastgood.rules.contract import Contract
from lastgood.rules.document import Node
from lastgood.rules.finding_owners import OwnerRule
from lastgood.rules.names import check_key_prefix, check_name, check_schema
from lastgood.rules.policy import Policy
from lastgood.rules.quantities import read_duration
from lastgood.rules.store_profile import ACCEPTABLE

T = TypeVar("T")
_FINDING_DEADLINE = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole, consistent configuration; policies and contracts by name."""

    stores: tuple[StoreRow, ...]
    projects: tuple[Project, ...]
    policies: Mapping[str, Policy]
    contracts: Mapping[str, Contract]


def read_configuration(folder: Path) -> Configuration:
    """Read `stores/`, `projects/`, `policies/` and `contracts/` below the folder. Raises
    InvalidConfig with file, line and key, also for a project that names a store or policy which is
    not there."""
    if not (folder / "stores").is_dir():
        reason = "no such folder: a configuration has stores/, projects/ and policies/"
        raise InvalidConfig(file=str(folder / "stores"), line=1, key="-", reason=reason)
    stores: dict[str, StoreRow] = {}
    for document in read_folder(folder / "stores"):
        row = _refused_here(_store, document)
        _require_own_place(document, row, stores.values())
        stores[row.name] = row
    for store in stores.values():
        place = store.config.get("inventories", {}).get("place")
        if place is not None and place not in stores:
            file = str(folder / "stores" / f"{store.name}.yaml")
            reason = f"stores/{place}.yaml is not there"
            raise InvalidConfig(file=file, line=1, key="inventories.place", reason=reason)
    policies = {
        document.value["name"]: _policy(document, stores)
        for document in read_folder(folder / "policies")
    }
    projects = []
    for document in read_folder(folder / "projects"):
        project = _refused_here(_project, document)
        if project.store not in stores:
            raise document.refuse("store", f"stores/{project.store}.yaml is not there")
        if project.policy not in policies:
            raise document.refuse("policy", f"policies/{project.policy}.yaml is not there")
        projects.append(project)
    return Configuration(tuple(stores.values()), tuple(projects), policies, registered(folder))


def read_policy(file: Path) -> Policy:
    """Read one policy as `apply` would; whether its spill store is there is left to `apply`. Raises
    InvalidConfig with file, line and key."""
    return _parsed(read_file(file))


def _refused_here(read: Callable[[ConfigDocument], T], document: ConfigDocument) -> T:
    """What `read` makes of the document; its error with the file and the line."""
    try:
        return read(document)
    except InvalidConfig:
        raise
    except InvalidInput as error:
        where = str(error.facts["where"])
        raise document.refuse(where, str(error).removeprefix(f"{where}: ")) from None


def _store(document: ConfigDocument) -> StoreRow:
    common = ("name", "kind", "failure_domain", "tier")
    optional = ("encryption", "inventories", "owner")
    kind = document.root.at("kind", document.value.get("kind")).one_of(("file", "s3", "postgres"))
    if kind == "file":
        read = document.root.fields((*common, "root"), ("direct", *optional))
        config: dict[str, Any] = {
            "root": read["root"].text(),
            "direct": "direct" in read and read["direct"].flag(),
        }
    elif kind == "postgres":
        read = document.root.fields((*common, "schema"), ("connection", *optional))
        config = {
            "root": read["schema"].checked(check_schema),
            "connection": read["connection"].text() if "connection" in read else None,
        }
    else:
        known = ("prefix", "connection", "kms_key", "accepts", *optional)
        read = document.root.fields((*common, "bucket"), known)
        config = {
            "root": read["bucket"].text(),
            "prefix": read["prefix"].checked(check_key_prefix) if "prefix" in read else "",
            "connection": read["connection"].text() if "connection" in read else None,
            "kms_key": read["kms_key"].text() if "kms_key" in read else None,
            "accepts": _accepted(read["accepts"]) if "accepts" in read else [],
        }
    config["encryption"] = read["encryption"].text() if "encryption" in read else None
    if "owner" in read:
        config["owner"] = read["owner"].text(200)
    if "inventories" in read:
        config["inventories"] = _inventories(read["inventories"])
    return StoreRow(
        name=read["name"].checked(check_name),
        kind=kind,
        config=config,
        failure_domain=read["failure_domain"].text(),
        tier=read["tier"].text(),
    )


def _inventories(section: Node) -> dict[str, Any]:
    """How the store is inventoried: see `inventory_settings`."""
    read = section.fields((), ("keep", "place", "objects_per_shard", "report", "report_max_age"))
    found: dict[str, Any] = {}
    for name in ("keep", "report_max_age"):
        if name in read:
            found[f"{name}_seconds"] = read_duration(read[name]).total_seconds()
    if "place" in read:
        found["place"] = read["place"].checked(check_name)
    if "objects_per_shard" in read:
        found["objects_per_shard"] = read["objects_per_shard"].integer(least=1_000)
    if "report" in read:
        found["report"] = read["report"].text()
    return found


def _accepted(words: Node) -> list[str]:
    """What the store may lack although it matters: see `store_profile.refusals`."""
    return [word.one_of(tuple(sorted(ACCEPTABLE))) for word in words.items()]


def _project(document: ConfigDocument) -> Project:
    required = ("name", "owner", "store", "policy", "finding_owner")
    optional = ("finding_deadline", "finding_owners", "check_owners", "classes", "promotion")
    read = document.root.fields(required, optional)
    deadline = (
        read_duration(read["finding_deadline"]) if "finding_deadline" in read else _FINDING_DEADLINE
    )
    return Project(
        name=read["name"].checked(check_name),
        owner=read["owner"].text(),
        store=read["store"].checked(check_name),
        policy=read["policy"].checked(check_name),
        config={
            "finding_owner": read["finding_owner"].text(),
            "finding_deadline_seconds": deadline.total_seconds(),
            **_owners(read),
            "classes": read["classes"].free(4, 1 << 16) if "classes" in read else {},
            **({"promotion": _promotion(read["promotion"])} if "promotion" in read else {}),
        },
        last_mark_at=None,
    )


def _owners(read: Mapping[str, Node]) -> dict[str, Any]:
    """Who answers for findings by their cause or place, and for failed checks by their suite."""
    found: dict[str, Any] = {}
    if "finding_owners" in read:
        rules = read["finding_owners"].items(100)
        found["finding_owners"] = [OwnerRule.read(rule).to_json() for rule in rules]
    if "check_owners" in read:
        owners = read["check_owners"].fields((), [suite for suite in SUITES if suite != STORE])
        found["check_owners"] = {suite: node.text(200) for suite, node in owners.items()}
    return found


def _promotion(node: Node) -> str:
    """When a changed policy takes force: as it is applied, or only by `lastgood policy promote`."""
    return node.one_of(("on-apply", "required"))


def _require_own_place(
    document: ConfigDocument, store: StoreRow, others: Iterable[StoreRow]
) -> None:
    """A byte that lies in two stores would be accounted twice, and explained in one of them."""
    for other in others:
        same = store.kind == other.kind and all(
            store.config.get(key) == other.config.get(key) for key in ("root", "connection")
        )
        ours, theirs = _prefix_of(store), _prefix_of(other)
        if same and (ours.startswith(theirs) or theirs.startswith(ours)):
            key = {"file": "root", "s3": "bucket", "postgres": "schema"}[store.kind]
            apart = "; give each a prefix that is not within the other's"
            way_out = apart if store.kind == "s3" else ""
            raise document.refuse(key, f"store {other.name!r} lies in the same place{way_out}")


def _prefix_of(store: StoreRow) -> str:
    stripped = str(store.config.get("prefix") or "").strip("/")
    return f"{stripped}/" if stripped else ""


def _policy(document: ConfigDocument, stores: Mapping[str, StoreRow]) -> Policy:
    policy = _parsed(document)
    spill = policy.capacity.spill_store
    if spill is not None and spill not in stores:
        raise document.refuse("capacity.spill_store", f"stores/{spill}.yaml is not there")
    return policy


def _parsed(document: ConfigDocument) -> Policy:
    try:
        return Policy.parse(document.value, where=document.file.name)
    except InvalidPolicy as error:
        raise document.refuse(error.facts["where"], error.facts["reason"]) from None
