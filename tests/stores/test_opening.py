"""From configuration to a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from lastgood.errors import NotFound
from lastgood.stores.base import Key, Store, StoreError
from lastgood.stores.file import FileStore
from lastgood.stores.open import StoreConfig, Stores, open_store
from tests.waiting import wait_for


def test_a_relative_root_lies_below_the_var_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path))
    (tmp_path / "stores/local").mkdir(parents=True)
    store = open_store(StoreConfig("local", "file", "stores/local"))
    assert isinstance(store, FileStore)
    assert store.root == tmp_path / "stores/local"


def test_an_absolute_root_is_taken_as_it_is(tmp_path: Path) -> None:
    store = open_store(StoreConfig("local", "file", str(tmp_path), direct=True))
    assert store.profile.direct
    store.put_new(Key("demo/a"), b"x")
    assert (tmp_path / "demo/a").read_bytes() == b"x"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(StoreConfig("local", "file", str(tmp_path / "unmounted")))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(StoreError, match="tape"):
        open_store(StoreConfig("local", "tape", "/"))


def test_a_row_of_the_catalog_is_a_configuration() -> None:
    config = {"root": "r", "direct": True, "encryption": "LUKS", "prefix": None}
    assert StoreConfig.from_row("local", "file", config) == StoreConfig(
        "local", "file", "r", direct=True
    )
    config = {"root": "bucket", "prefix": "a/b", "connection": "aws_checkpoints"}
    assert StoreConfig.from_row("cold", "s3", config) == StoreConfig(
        "cold", "s3", "bucket", prefix="a/b", connection="aws_checkpoints"
    )


def test_stores_are_opened_once_and_again_when_they_changed(tmp_path: Path) -> None:
    configs = {"local": StoreConfig("local", "file", str(tmp_path))}
    stores = Stores(configs.get)
    first = stores["local"]
    assert stores["local"] is first
    configs["local"] = StoreConfig("local", "file", str(tmp_path), direct=True)
    assert stores["local"].profile.direct
    assert list(stores.opened()) == [stores["local"]]
    changed = stores["local"]
    changed.outdated = True  # type: ignore[attr-defined]
    assert stores["local"] is not changed


def test_a_store_that_does_not_answer_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, answers = threading.Event(), threading.Event()

    def open_slowly(config: StoreConfig) -> Store:
        if config.name == "silent":
            opening.set()
            answers.wait(120)
        return open_store(config)

    monkeypatch.setattr("lastgood.stores.open.open_store", open_slowly)
    stores = Stores(lambda name: StoreConfig(name, "file", str(tmp_path)))
    with ThreadPoolExecutor(2) as pool:
        silent = pool.submit(stores.__getitem__, "silent")
        assert opening.wait(60)
        try:
            assert pool.submit(stores.__getitem__, "other").result(timeout=60).name == "other"
            assert not silent.done()
        finally:
            answers.set()


def test_a_store_that_does_not_answer_is_asked_once_for_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    everybody_asks = threading.Event()

    def fail_slowly(config: StoreConfig) -> Store:
        opened.append(config.name)
        everybody_asks.wait(120)
        raise StoreError(store=config.name, key="", reason="silent")

    monkeypatch.setattr("lastgood.stores.open.open_store", fail_slowly)
    looked_up: list[str] = []

    def config_of(name: str) -> StoreConfig:
        looked_up.append(name)
        return StoreConfig(name, "file", str(tmp_path))

    stores = Stores(config_of)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(stores.__getitem__, "silent") for _ in range(8)]
        wait_for(lambda: len(looked_up) >= 10)  # the one that opens looks thrice
        everybody_asks.set()
        assert all(isinstance(one.exception(timeout=60), StoreError) for one in asked)
    assert len(opened) < 8
    with pytest.raises(StoreError, match="silent"):  # but no answer is kept
        stores["silent"]


def test_a_store_that_nobody_configured() -> None:
    with pytest.raises(NotFound, match="store 'nowhere'"):
        Stores(lambda name: None)["nowhere"]


USE = """
from lastgood.stores.base import Key, Prefix, StoreError
from lastgood.stores.open import StoreConfig, open_store
for connection in ("absent", "crooked"):
    try:
        open_store(StoreConfig("cold", "s3", "opening", connection=connection))
    except StoreError as refused:
        print(refused)
store = open_store(StoreConfig("cold", "s3", "opening", prefix="a/b", connection="checkpoints"))
store.put_new(Key("demo/a"), b"x")
print([found.key for found in store.list(Prefix(""))], store.presign_part("demo/b", "u", 1, 60).url)
"""


@pytest.mark.slow
def test_s3_is_opened_by_an_airflow_connection_in_the_environment(
    moto_s3: str, tmp_path: Path
) -> None:
    boto3.client("s3", endpoint_url=moto_s3).create_bucket(Bucket="opening")
    connection = {
        "conn_type": "aws",
        "login": "testing",
        "password": "testing",
        "extra": {"endpoint_url": moto_s3, "region_name": "eu-central-1"},
    }
    crooked = connection | {"extra": {"endpoint_url": "storage, hall 2"}}
    environment = {
        "PATH": os.environ["PATH"],
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW_CONN_CHECKPOINTS": json.dumps(connection),
        "AIRFLOW_CONN_CROOKED": json.dumps(crooked),
        # A connection that is not there must not be replaced by whatever credentials there are.
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_ENDPOINT_URL_S3": moto_s3,
    }
    done = subprocess.run(
        [sys.executable, "-c", USE], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "cold: its connection 'absent' cannot be used: " in done.stdout
    assert "cold: its connection 'crooked' cannot be used: Invalid endpoint: " in done.stdout
    said = done.stdout.strip().splitlines()[-1]
    assert said.startswith("['demo/a'] " + moto_s3 + "/opening/a/b/demo/b?")
    assert "eu-central-1" in said
    assert "X-Amz-Signature" in said
