"""Configuration in git becomes the catalog, strictly, and a store belongs to one catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import policy_versions, projects
from lastgood.errors import Conflict, ForeignCatalog, InvalidConfig, Unavailable
from lastgood.flows.control_keys import guard
from lastgood.flows.services import stores_of
from lastgood.flows.settings.apply import apply
from lastgood.flows.settings.configuration import read_configuration

STORE = """\
name: local
kind: file
root: stores/local
failure_domain: rack-1
tier: fast
"""
BUCKET = "name: cloud\nkind: s3\nbucket: all\nfailure_domain: x\ntier: fast\nprefix: "
PROJECT = """\
name: vision
owner: team
store: local
policy: small
finding_owner: team
finding_deadline: 3d
"""
POLICY = """\
name: small
roles:
  hot: {keep: newest, count: 2}
"""


@pytest.fixture
def catalog(catalog_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path / "var"))
    with Catalog(catalog_dsn) as catalog:
        yield catalog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    write(folder, "stores/local.yaml", STORE)
    write(folder, "projects/vision.yaml", PROJECT)
    write(folder, "policies/small.yaml", POLICY)
    return folder


def write(folder: Path, name: str, content: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def test_applying_twice_changes_nothing_the_second_time(catalog: Catalog, folder: Path) -> None:
    first = apply(catalog, folder, actor="operator:ann")
    assert [(change.what, change.name, change.how) for change in first] == [
        ("store", "local", "added"),
        ("project", "vision", "added"),
        ("policy", "vision/small", "added"),
    ]
    assert apply(catalog, folder, actor="operator:ann") == []
    write(folder, "stores/local.yaml", STORE + "owner: storage-oncall\n")
    (changed,) = apply(catalog, folder, actor="operator:ann")
    assert (changed.what, changed.name) == ("store", "local")
    with catalog.transaction() as tx:
        assert projects.store(tx, "local").config["owner"] == "storage-oncall"


def test_a_changed_policy_is_a_new_version_in_force_from_then_on(
    catalog: Catalog, folder: Path
) -> None:
    apply(catalog, folder, actor="operator:ann")
    with catalog.transaction() as tx:
        before = policy_versions.current(tx, "vision")
    write(folder, "policies/small.yaml", POLICY.replace("2", "3"))
    apply(catalog, folder, actor="operator:ben")
    with catalog.transaction() as tx:
        now = policy_versions.current(tx, "vision")
        then = policy_versions.current(tx, "vision", before.effective_from)
    assert (now.version, now.recorded_by) == (2, "operator:ben")
    assert then == before


def test_the_configuration_of_the_checkout_is_good(catalog: Catalog) -> None:
    changes = apply(catalog, Path(__file__).parents[2] / "include" / "config", actor="test")
    assert {change.name for change in changes} >= {"local", "demo", "demo/demo"}
    guard(catalog, stores_of(catalog))


@pytest.mark.parametrize(
    ("name", "content", "line", "key"),
    [
        ("stores/local.yaml", STORE + "colour: red\n", 1, "-"),
        ("stores/local.yaml", STORE.replace("file", "tape"), 2, "kind"),
        ("stores/local.yaml", STORE + "tier: slow\n", 6, "tier"),
        ("stores/other.yaml", STORE, 1, "name"),
        ("stores/more.yaml", STORE.replace("name: local", "name: more"), 3, "root"),
        ("stores/cloud.yaml", BUCKET + "../x", 6, "prefix"),
        ("stores/cloud.yaml", BUCKET + "a/./b/", 6, "prefix"),
        ("stores/cloud.yaml", BUCKET + '"a\\nb"', 6, "prefix"),
        ("stores/cloud.yaml", BUCKET + 241 * "a", 6, "prefix"),
        ("stores/Big.yaml", STORE.replace("local", "Big"), 1, "name"),
        ("projects/vision.yaml", PROJECT.replace("store: local", "store: A b"), 3, "store"),
        ("projects/vision.yaml", PROJECT.replace("3d", "soon"), 6, "finding_deadline"),
        ("projects/vision.yaml", PROJECT.replace("store: local", "store: nowhere"), 3, "store"),
        ("projects/vision.yaml", PROJECT.replace("small", "absent"), 4, "policy"),
        ("projects/vision.yaml", PROJECT + "check_owners: {store: a}\n", 7, "check_owners"),
        ("policies/small.yaml", POLICY.replace("2", "none"), 3, "roles.hot.count"),
        (
            "policies/small.yaml",
            POLICY + "capacity:\n  spill_store: nowhere\n",
            5,
            "capacity.spill_store",
        ),
        ("policies/small.yaml", "name: [", 1, "-"),
        ("policies/small.yaml", "- a list", 1, "-"),
        ("policies/small.yaml", "name: " + 2_000 * "[" + 2_000 * "]", 1, "-"),
        ("policies/small.yaml", POLICY.replace("2", "010"), 3, "roles.hot.count"),
        ("policies/small.yaml", POLICY.replace("2", "1:30"), 3, "roles.hot.count"),
        ("policies/small.yaml", POLICY.replace("2", "2026-13-45"), 3, "roles.hot.count"),
    ],
)
def test_a_mistake_is_refused_with_file_line_and_key_and_nothing_is_written(
    catalog: Catalog, folder: Path, name: str, content: str, line: int, key: str
) -> None:
    write(folder, name, content)
    with pytest.raises(InvalidConfig) as refused:
        apply(catalog, folder, actor="operator:ann")
    assert refused.value.facts["file"] == str(folder / name)
    assert (refused.value.facts["line"], refused.value.facts["key"]) == (line, key)
    with catalog.transaction() as tx:
        assert projects.stores(tx) == []


@pytest.mark.parametrize(
    ("prefix", "connection", "same"),
    [
        ("a", "cloud", True),
        ("a/b/", "cloud", True),
        ("/", "cloud", True),
        ("ab", "cloud", False),
        ("a", "elsewhere", False),
    ],
)
def test_no_byte_of_a_bucket_lies_in_two_stores(
    tmp_path: Path, prefix: str, connection: str, same: bool
) -> None:
    for name, its_prefix, its_connection in (("a", "a/", "cloud"), ("b", prefix, connection)):
        place = f"bucket: all\nprefix: '{its_prefix}'\nconnection: {its_connection}\n"
        content = f"name: {name}\nkind: s3\n{place}failure_domain: x\ntier: fast\n"
        write(tmp_path, f"stores/{name}.yaml", content)
    for empty in ("projects", "policies"):
        (tmp_path / empty).mkdir()
    expected = pytest.raises(InvalidConfig, match=r"b\.yaml, line 3, key bucket: store 'a' lies")
    with expected if same else nullcontext():
        assert len(read_configuration(tmp_path).stores) == 2


def test_a_store_that_another_catalog_owns_is_refused(catalog: Catalog, folder: Path) -> None:
    root = folder.parent / "var" / "stores" / "local" / "control"
    root.mkdir(parents=True)
    (root / "catalog.json").write_text('{"catalog_id": "another", "facts": {}}')
    with pytest.raises(ForeignCatalog, match="belongs to catalog another"):
        apply(catalog, folder, actor="operator:ann")


def test_a_store_that_lost_its_claim_is_not_the_place_it_was(
    catalog: Catalog, folder: Path
) -> None:
    apply(catalog, folder, actor="operator:ann")
    (folder.parent / "var" / "stores" / "local" / "control" / "catalog.json").unlink()
    with pytest.raises(Unavailable, match="not the place that was claimed"):
        guard(catalog, stores_of(catalog), "vision")


def test_a_store_in_use_keeps_its_place(catalog: Catalog, folder: Path, owner_dsn: str) -> None:
    import psycopg

    apply(catalog, folder, actor="operator:ann")
    with psycopg.connect(owner_dsn) as owner:
        owner.execute(
            """
            SET search_path = lastgood;
            INSERT INTO stages (project, workload, stage, kind, class)
                 VALUES ('vision', 'resnet', 'pretrain', 'checkpointed', 'default');
            INSERT INTO generations SELECT stage_id, 1, project, 'k', 'me', true, NULL, NULL, NULL,
                                           now() FROM stages;
            INSERT INTO attempts SELECT gen_random_uuid(), project, stage_id, 1, 0, 0, 'full', 'k',
                   '', '', 'local', 'p/', 0, now(), 'open', now(), now(), now(), NULL, NULL, 0
                   FROM stages;
            """
        )
    write(folder, "stores/local.yaml", STORE.replace("stores/local", "stores/elsewhere"))
    with pytest.raises(Conflict, match="holds checkpoints"):
        apply(catalog, folder, actor="operator:ann")


@pytest.mark.parametrize("content", [b"name: \xff", b"name: \x00"])
def test_a_file_that_is_no_text_is_named(catalog: Catalog, folder: Path, content: bytes) -> None:
    (folder / "policies" / "small.yaml").write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"small\.yaml, line 1, key -: not YAML in UTF-8"):
        apply(catalog, folder, actor="operator:ann")


def test_a_folder_without_configuration_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no such folder"):
        apply(catalog, tmp_path / "absent", actor="operator:test")
