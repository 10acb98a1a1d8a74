"""A stack on S3: any endpoint by a connection, or a Ceph node of its own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lastgood.flows.settings.configuration import read_configuration
from lastgood.stack import ceph, object_store
from lastgood.stack.ceph import Ceph
from lastgood.stack.demo.bucket import Bucket
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.object_store import BUCKET_VARIABLE, VARIABLE, ObjectStore

ROOT = Path(__file__).parents[2]
CONNECTIONS = {
    "uri": "aws://key:secret@/?endpoint_url=http%3A%2F%2F127.0.0.1%3A9&region_name=eu-west-1",
    "json": json.dumps(
        {
            "conn_type": "aws",
            "login": "key",
            "password": "secret",
            "extra": {"endpoint_url": "http://127.0.0.1:9", "region_name": "eu-west-1"},
        }
    ),
}


@pytest.fixture
def layout(tmp_path: Path) -> StackLayout:
    made = StackLayout(ROOT, tmp_path / "var", on_s3=True)
    made.create()
    return made


@pytest.mark.parametrize("connection", CONNECTIONS.values(), ids=CONNECTIONS.keys())
def test_any_endpoint_is_taken_by_its_connection(
    layout: StackLayout, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, connection)
    monkeypatch.setenv(BUCKET_VARIABLE, "mine")
    object_store.start(layout)

    found = ObjectStore.of(layout)
    assert found is not None
    assert (found.bucket, found.environment) == ("mine", {VARIABLE: connection})
    client = found.client()
    assert client.meta.endpoint_url == "http://127.0.0.1:9"
    assert client.meta.region_name == "eu-west-1"
    assert (layout.var / "s3.json").stat().st_mode & 0o077 == 0


def test_the_demos_project_keeps_its_checkpoints_there(
    layout: StackLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, CONNECTIONS["uri"])
    object_store.start(layout)
    before = read_configuration(ROOT / "include/config")

    found = read_configuration(object_store.configuration(layout))
    (store,) = found.stores
    assert (store.name, store.kind, store.config["connection"]) == ("s3", "s3", "lastgood_s3")
    assert {project.store for project in found.projects} == {"s3"}
    assert read_configuration(ROOT / "include/config") == before


def test_without_ceph_and_connection_it_is_said_what_to_do(
    layout: StackLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(ceph, "missing_programs", lambda: ["radosgw"])
    with pytest.raises(StackError, match=f"install radosgw ceph-mon ceph-osd.*{VARIABLE}"):
        object_store.start(layout)
    assert ObjectStore.of(layout) is None


def test_a_stack_on_a_folder_has_none(layout: StackLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, CONNECTIONS["uri"])
    object_store.start(layout)
    assert ObjectStore.of(layout) is not None
    layout = StackLayout(ROOT, layout.var)
    object_store.start(layout)
    assert ObjectStore.of(layout) is None
    assert object_store.configuration(layout) == ROOT / "include/config"


def test_a_bucket_is_seen_with_its_pending_parts(ceph: Ceph, ceph_bucket: str) -> None:
    extra = {"endpoint_url": ceph.endpoint, "region_name": "us-east-1"}
    keys = {"login": ceph.access_key, "password": ceph.secret_key}
    client = ObjectStore(ceph_bucket, json.dumps(keys | {"extra": extra})).client()
    client.put_object(Bucket=ceph_bucket, Key="a/one", Body=b"12345")
    client.put_object(Bucket=ceph_bucket, Key="b/two", Body=b"67")
    where = {"Bucket": ceph_bucket, "Key": "b/three"}
    upload_id = client.create_multipart_upload(**where)["UploadId"]
    client.upload_part(**where, UploadId=upload_id, PartNumber=1, Body=b"abc")

    seen = Bucket(client, ceph_bucket)
    now = datetime.now(UTC)
    later, inventory = now + timedelta(minutes=1), "control/inventories/s3/n/"
    assert seen.bytes_held(later, inventory) == 5 + 2 + 3
    assert seen.bytes_held(now - timedelta(hours=1), inventory) == 3
    for name in ("listed-0000-a.parquet", "expected-0000-a.parquet"):
        client.put_object(Bucket=ceph_bucket, Key=f"{inventory}{name}", Body=b"1234567")
    assert seen.bytes_held(later, inventory) == 5 + 2 + 3 + 7
    assert [seen.bytes_of_attempt(prefix, "") for prefix in ("a/", "b/")] == [5, 5]
