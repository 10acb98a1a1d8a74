"""The room that is claimed for a manifest before there is one."""

from __future__ import annotations

import pytest

from lastgood.rules import canonical, layout
from lastgood.rules.manifest import Manifest, ManifestObject
from lastgood.rules.manifest_room import manifest_room


@pytest.mark.parametrize(
    ("path", "size_bytes", "part_bytes", "number"),
    [
        ("a", 1, None, 1),
        ("model.safetensors", 600 * 10**9, 64 * 2**20, 1),
        ("shards/rank-00017/optimizer.pt", 75 * 10**9, 64 * 2**20, 256),
        ("gewichte/größe-✓.bin", 5, 64 * 2**20, 3),
    ],
)
def test_it_takes_what_the_manifest_takes_and_little_more(
    path: str, size_bytes: int, part_bytes: int | None, number: int
) -> None:
    parts = 0 if part_bytes is None else max(1, -(-size_bytes // part_bytes))
    digest = "0" * 64
    objects = tuple(
        ManifestObject(
            f"{rank}/{path}", size_bytes, digest, rank, part_bytes, (digest,) * parts or None
        )
        for rank in range(number)
    )
    manifest = Manifest("vision", "gpt", "pretrain", 1, 1, 100, objects, world_size=number)  # type: ignore[arg-type]
    body = canonical.canonical_bytes(manifest)
    taken = len(body) + len(layout.marker_bytes(canonical.digest(body)))

    room = manifest_room((one.path, parts) for one in objects)

    assert taken < room < taken * 5 // 4 + 1024


def test_a_stage_whose_newest_manifest_says_more_gets_the_room_of_that() -> None:
    small = manifest_room([("a", 1)])
    assert manifest_room([("a", 1)], 100) == small
    assert manifest_room([("a", 1)], 5000) - manifest_room([("a", 1)], 4000) == 1000
