"""A process that was handed a lease and its token reads what the lease is for, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from lastgood.runner import fetch
from tests.coordinator.api import Api, bearer, ok, refused

FILES = {"model/a.bin": b"a" * 1000, "b.json": b"{}"}


def test_the_holder_of_a_lease_is_told_what_it_reads_without_the_token(
    api: Api, client: httpx.Client
) -> None:
    writer = api.writer()
    writer.save(1, FILES)
    acquired = ok(api.reader(), 201)
    path = f"/lastgood/v1/runner/readers/{acquired['lease']}"

    told = ok(client.get(path, headers=bearer(acquired["token"])))

    assert told == {key: value for key, value in acquired.items() if key != "token"}
    other = ok(api.reader(), 201)
    refused(client.get(path, headers=bearer(other["token"])), 404, "not-found")
    refused(client.get(path, headers=bearer(writer.token)), 401, "unauthenticated")
    client.delete(path, headers=bearer(acquired["token"]))
    refused(client.get(path, headers=bearer(acquired["token"])), 409, "lease-expired")


def lent(client: httpx.Client, acquired: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process to which somebody lends the lease."""
    return {
        fetch.URL: str(client.base_url),
        fetch.LEASE: acquired["lease"],
        fetch.TOKEN: acquired["token"],
    }


def test_a_lent_lease_is_fetched_by_and_stays_its_owners(
    api: Api, client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.writer().save(1, FILES)
    acquired = ok(api.reader(), 201)
    environment = lent(client, acquired)
    message = tmp_path / "message"

    assert fetch.main([str(tmp_path / "got"), str(message)], environment) == 0

    read = {path: (tmp_path / "got" / path).read_bytes() for path in FILES}
    assert read == FILES
    path = f"/lastgood/v1/runner/readers/{acquired['lease']}"
    ok(client.get(path, headers=bearer(acquired["token"])))
    client.delete(path, headers=bearer(acquired["token"]))
    assert fetch.main([str(tmp_path / "again"), str(message)], environment) == fetch.NO_LEASE
    assert "lease-expired" in message.read_text()
    assert acquired["token"] not in message.read_text() + capsys.readouterr().err
    del environment[fetch.TOKEN]
    assert fetch.main([str(tmp_path / "again"), str(message)], environment) == fetch.MAY_PASS
    assert fetch.TOKEN in message.read_text()


@pytest.mark.parametrize(("left_bytes", "kind"), [(None, "key-missing"), (400, "object-short")])
def test_what_is_not_in_the_store_is_damage(
    api: Api,
    client: httpx.Client,
    store_root: Path,
    tmp_path: Path,
    left_bytes: int | None,
    kind: str,
) -> None:
    api.writer().save(1, FILES)
    acquired = ok(api.reader(), 201)
    environment = lent(client, acquired)
    (damaged,) = store_root.rglob("a.bin")
    damaged.parent.chmod(0o700)
    damaged.chmod(0o600)
    if left_bytes is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:left_bytes])
    message = tmp_path / "message"

    assert fetch.main([str(tmp_path / "got"), str(message)], environment) == fetch.CORRUPT

    told = message.read_text()
    assert "corrupt-object" in told
    assert "model/a.bin" in told
    assert kind in told
