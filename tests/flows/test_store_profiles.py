"""A store is probed before it is registered, and what was found is kept and followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from lastgood.catalog.db import Catalog
from lastgood.catalog.settings import projects, store_profiles
from lastgood.catalog.settings.store_profiles import KeptProfile
from lastgood.errors import ForeignCatalog, InvalidConfig
from lastgood.flows import control_keys, store_profile
from lastgood.flows.services import stores_of
from lastgood.flows.settings.apply import apply
from lastgood.flows.store_profile import StoreUnfit
from lastgood.rules.store_profile import Ability
from lastgood.stack.ceph import Ceph
from lastgood.stores.base import Key
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_errors import KmsKeyRefused
from tests.ceph.attesting import AttestingServer
from tests.ceph.fixtures import MakeBucket, environment_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

STORE = """\
name: cloud
kind: s3
bucket: {bucket}
prefix: jobs
failure_domain: region-1
tier: fast
"""
FILE = "name: local\nkind: file\nroot: {root}\nfailure_domain: rack-1\ntier: fast\n"


@pytest.fixture
def catalog(catalog_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path / "var"))
    with Catalog(catalog_dsn) as catalog:
        yield catalog


@pytest.fixture
def on_ceph(ceph: Ceph) -> Iterator[None]:
    with environment_of(ceph):
        yield


def write(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "config"
    name = text.partition("\n")[0].removeprefix("name: ")
    (folder / "stores").mkdir(parents=True, exist_ok=True)
    (folder / f"stores/{name}.yaml").write_text(text)
    return folder


def kept(catalog: Catalog, store: str) -> list[KeptProfile]:
    with catalog.transaction() as tx:
        return list(store_profiles.history(tx, store))


def test_a_store_is_probed_once_and_again_when_asked_or_moved(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = write(tmp_path, FILE.format(root="one"))
    assert [one.how for one in apply(catalog, folder, actor="ann")] == ["added"]
    assert apply(catalog, folder, actor="ann") == []
    assert len(kept(catalog, "local")) == 1
    assert [one.how for one in apply(catalog, folder, actor="bob", probe=True)] == ["probed"]
    write(tmp_path, FILE.format(root="two"))
    apply(catalog, folder, actor="cleo")
    store_profile.probe(catalog, "local", actor="dan")
    assert [one.recorded_by for one in kept(catalog, "local")] == ["dan", "cleo", "bob", "ann"]


def test_what_was_found_stays(catalog: Catalog, owner_dsn: str, tmp_path: Path) -> None:
    apply(catalog, write(tmp_path, FILE.format(root="one")), actor="ann")
    with (
        psycopg.connect(owner_dsn) as owner,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation),
    ):
        owner.execute("DELETE FROM lastgood.store_profiles")


def test_an_unfit_store_is_refused_with_the_reason_and_nothing_is_written(
    catalog: Catalog, moto_s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_s3)
    boto3.client("s3").create_bucket(Bucket="unfit")
    folder = write(tmp_path, STORE.format(bucket="unfit"))
    with pytest.raises(StoreUnfit, match=r"without its secret \(unsigned-requests\)"):
        apply(catalog, folder, actor="ann")
    with catalog.transaction() as tx:
        assert projects.stores(tx) == []
    write(tmp_path, STORE.format(bucket="unfit") + "accepts: [unsigned-requests]\n")
    apply(catalog, folder, actor="ann")
    assert store_profile.unfit(catalog, kept(catalog, "cloud")[0]) == {}
    write(tmp_path, STORE.format(bucket="unfit"))
    with pytest.raises(StoreUnfit):
        apply(catalog, folder, actor="ann")


def test_only_what_can_be_accepted_is(catalog: Catalog, tmp_path: Path) -> None:
    folder = write(tmp_path, STORE.format(bucket="b") + "accepts: [replayed-parts]\n")
    with pytest.raises(InvalidConfig, match=r"accepts\[0\]"):
        apply(catalog, folder, actor="ann")


@pytest.mark.usefixtures("on_ceph")
def test_another_catalogs_store_is_not_even_probed(
    catalog: Catalog, ceph_client: S3Client, ceph_bucket: str, tmp_path: Path
) -> None:
    store = S3Store("cloud", ceph_client, ceph_bucket, "jobs")
    store.put_new(Key("control/catalog.json"), b'{"catalog_id": "another", "facts": {}}')
    with pytest.raises(ForeignCatalog):
        apply(catalog, write(tmp_path, STORE.format(bucket=ceph_bucket)), actor="ann")
    assert kept(catalog, "cloud") == []


@pytest.mark.usefixtures("on_ceph")
def test_a_bucket_is_encrypted_as_its_configuration_asks(
    catalog: Catalog, make_ceph_bucket: MakeBucket, tmp_path: Path
) -> None:
    bucket = make_ceph_bucket()
    kms = "encryption: SSE-KMS\nkms_key: testkey-1\n"
    folder = write(tmp_path, STORE.format(bucket=bucket) + kms.replace("testkey-1", "mistyped"))
    with pytest.raises(KmsKeyRefused, match=r"kms-keyid: mistyped \(request .* `kms_key` of"):
        apply(catalog, folder, actor="ann")
    assert kept(catalog, "cloud") == []
    write(tmp_path, STORE.format(bucket=bucket) + kms)
    apply(catalog, folder, actor="ann")
    store = stores_of(catalog)["cloud"]
    assert isinstance(store, S3Store)
    key = Key("checkpoints/a")
    upload = store.create_upload(key, 1)
    store.complete_upload(key, upload, [store.write_part(key, upload, 1, 1, [b"x"])])
    assert store.encryption_of(key).evidence == "HEAD says aws:kms, key testkey-1"
    assert store.encryption_of(Key("control/catalog.json")).answer == "yes"
    found = kept(catalog, "cloud")[0].found.finding(Ability.ENCRYPTION)
    assert (found.answer, found.evidence) == ("yes", "HEAD says aws:kms, key testkey-1")
    write(tmp_path, STORE.format(bucket=store.bucket) + "encryption: SSE-S3\n")
    apply(catalog, folder, actor="ann")
    found = kept(catalog, "cloud")[0].found.finding(Ability.ENCRYPTION)
    assert (found.answer, found.evidence) == (
        "unknown",
        "asked for was SSE-S3, HEAD says nothing",
    )


def test_flows_follow_what_was_found(
    catalog: Catalog, ceph: Ceph, attesting: AttestingServer, ceph_bucket: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, STORE.format(bucket=ceph_bucket))
    with environment_of(ceph):
        apply(catalog, folder, actor="ann")
        assert not stores_of(catalog)["cloud"].profile.attests_sha256
    with environment_of(ceph, attesting.endpoint):
        store_profile.probe(catalog, "cloud", actor="ann")
        stores = stores_of(catalog)
        assert stores["cloud"].profile.attests_sha256
        control_keys.guard(catalog, stores)
