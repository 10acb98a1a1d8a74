"""Each broken checkpoint is caught at the lowest level that can see it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.validation import validate
from lastgood.stack.postgres import EmbeddedPostgres
from tests.conftest import APP_ROLE, OWNER_ROLE
from tests.ladder.conftest import receipts_of
from tests.retention.world import World, opened
from tests.validators.building import write_tensors
from tests.validators.test_formats import BROKEN

ONES = np.ones(4, dtype="<f4").tobytes()


def climb(world: World, copy: Copy) -> list[tuple[str, str]]:
    told = validate.climb(world.catalog, world.stores, copy.copy_id, ["checksum", "format"])
    return [(one["level"], one["verdict"]) for one in told]


def object_of(world: World, copy: Copy, name: str) -> Path:
    root: Path = world.store.root  # type: ignore[attr-defined]
    path = root / copy.prefix / "objects" / name
    path.chmod(0o600)
    path.parent.chmod(0o700)
    return path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def put_a_link(path: Path) -> None:
    target = path.parents[2] / "elsewhere"
    path.rename(target)
    path.symlink_to(target)


def put_another_steps_shard(path: Path) -> None:
    path.unlink()
    write_tensors(path, {"a": ONES[:8] + ONES[:8][::-1]}, step=1)


@pytest.mark.parametrize("harm", [flip, cut, put_a_link, put_another_steps_shard])
def test_changed_bytes_are_caught_by_their_checksum(
    world: World, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    write_tensors(tmp_path / "model.safetensors", {"a": ONES})
    content = (tmp_path / "model.safetensors").read_bytes()
    copy = world.commit(1, {"model.safetensors": content}, receipt=None)
    harm(object_of(world, copy, "model.safetensors"))

    assert climb(world, copy) == [("checksum", "fail")]
    (receipt,) = receipts_of(world, copy)
    assert "model.safetensors" in receipt.reason
    assert receipt.body["problems"][0]["path"] == "model.safetensors"


# What the bytes are is what was committed: no checksum can see it.
AS_COMMITTED = sorted(set(BROKEN) - {"truncated shard", "symlink", "symlink to a folder", "pipe"})


@pytest.fixture(scope="module")
def wide_world(
    postgres: EmbeddedPostgres, template_catalog: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A project in which each test has a stage of its own."""
    name = f"catalog_{secrets.token_hex(6)}"
    postgres.create_database(name, template=template_catalog, owner=OWNER_ROLE)
    dsns = postgres.dsn(name, APP_ROLE), postgres.dsn(name, OWNER_ROLE)
    with opened(*dsns, tmp_path_factory.mktemp("store")) as found:
        yield found
    postgres.drop_database(name)


@pytest.mark.parametrize("name", AS_COMMITTED)
def test_committed_nonsense_is_caught_by_its_format(
    wide_world: World, tmp_path: Path, name: str
) -> None:
    build, path, tensor, says = BROKEN[name]
    root = tmp_path / "built"
    root.mkdir()
    manifest = build(root)
    objects = {one.path: (root / one.path).read_bytes() for one in manifest.objects}
    ranks = {one.path: one.rank for one in manifest.objects}
    copy = _commit(wide_world, f"s{AS_COMMITTED.index(name)}", manifest, objects, ranks)

    assert climb(wide_world, copy) == [("checksum", "pass"), ("format", "fail")]
    receipt = receipts_of(wide_world, copy)[-1]
    problem = next(one for one in receipt.body["problems"] if says in one["problem"])
    assert (problem["path"], problem["tensor"]) == (path, tensor)
    assert receipt.validator == "lastgood.format"
    assert receipt.body["topology"]["outcome"]["ended"] == "exit"
    assert receipt.body["topology"]["limits"]["memory_bytes"] > 0


def _commit(world: World, stage: str, manifest: Any, objects: Any, ranks: Any) -> Copy:
    from dataclasses import replace

    named = [replace(one, rank=ranks[one.path]) for one in manifest.objects]
    return world.commit(
        7,
        objects,
        stage=stage,
        receipt=None,
        declares={
            "objects": tuple(named),
            "sharding": manifest.sharding,
            "world_size": manifest.world_size,
            "step": manifest.step,
        },
    )


def test_a_sound_checkpoint_climbs(world: World, tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"a": ONES}, step=100)
    content = (tmp_path / "a.safetensors").read_bytes()
    copy = world.commit(1, {"a.safetensors": content}, receipt=None)

    assert climb(world, copy) == [("checksum", "pass"), ("format", "pass")]
    assert not list((tmp_path / "scratch").iterdir())
