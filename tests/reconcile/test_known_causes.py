"""A store prepared with every known cause: the report names each, in bytes, and the equation
closes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from lastgood.catalog.db import Catalog
from lastgood.catalog.reconciliation.inventories import TOTAL, set_number
from lastgood.flows.inventories.causes import SNAPSHOTS as SNAPSHOT_CAUSE
from lastgood.flows.reconciliation import reconcile
from lastgood.flows.services import stores_of
from lastgood.stores.base import EVERYTHING, Key
from tests.reconcile.prepared import Prepared
from tests.reconcile.test_reconcile import END, WINDOW

MIB = 1 << 20
NAMES = ["per%20cent", "a+b", "with space", "new\nline", "caf\u00e9", "cafe\u0301"]
LINK = len("/somewhere/else")
ORPHANS = 12_345
SNAPSHOTS = 777


def _long_path(prefix: str) -> str:
    """An object path that makes a key of 1,024 bytes."""
    left = 1024 - len(prefix) - len("objects/")
    folders = "/".join(["d" * 200] * (left // 201))
    return f"{folders}/{'f' * (left - len(folders) - 1)}"


def test_the_report_names_each_known_cause_in_bytes_and_closes(
    catalog: Catalog, prepared: Prepared, tmp_path: Path
) -> None:
    healthy = prepared.commit(dict.fromkeys(NAMES, b"h" * 10))
    long_path = _long_path(healthy.prefix)
    prepared.commit({long_path: b"l" * 20})
    missing = prepared.commit({"gone.bin": b"g" * 3_000, "kept.bin": b"k"})
    (prepared.root / missing.key_of("gone.bin")).unlink()
    truncated = prepared.commit({"model.bin": b"t" * 5_000})
    os.truncate(prepared.root / truncated.key_of("model.bin"), 1_100)
    sparse = prepared.commit({"sparse.bin": bytes(8 * MIB)})
    holes = prepared.root / sparse.key_of("sparse.bin")
    os.truncate(holes, 0)
    os.truncate(holes, 8 * MIB)
    for name in NAMES:
        prepared.put(f"checkpoints/vision/left/{name}", b"u" * 100)
    linked = prepared.root / healthy.key_of("a+b")
    os.link(linked, prepared.root / "checkpoints/vision/left/hard-link")
    other = prepared.commit({"x.bin": b"x" * 4_444}, project="speech")
    prepared.put("checkpoints/speech/left/stray", b"s" * 600)
    stray = Key("checkpoints/vision/resnet/nothing")
    upload = prepared.store.create_upload(stray, 70)
    prepared.store.write_part(stray, upload, 1, 70, [b"p" * 70])
    (prepared.root / ".uploads/stray.part").write_bytes(b"o" * 900)
    (prepared.root / os.fsdecode(b"no-\xff-text")).write_bytes(b"n" * 50)
    (prepared.root / "to-elsewhere").symlink_to("/somewhere/else")
    os.link(prepared.root / "to-elsewhere", prepared.root / "to-it-too", follow_symlinks=False)
    held = (prepared.root / "deleted").open("wb")
    held.write(b"d" * 3 * MIB)
    held.flush()
    os.unlink(prepared.root / "deleted")

    _keep_inventories_elsewhere(prepared, tmp_path / "kept")
    _told_by_an_operator(catalog, prepared)

    document = _run(catalog, tmp_path)
    held.close()

    causes = {one["cause"]: (one["bytes"], one["objects"]) for one in document["causes"]}
    assert causes["missing"] == (3_000, 1)
    assert causes["size-differs"] == (5_000, 1)
    assert causes["untracked"] == (len(NAMES) * 100 + 10 + 600, len(NAMES) + 2)
    assert causes["hard-links"] == (-10 - LINK, 2)
    assert causes["sparse-files"] == (-8 * MIB, 1)
    assert causes["symbolic-links"] == (-LINK, 2)
    assert causes["block-rounding"][0] > 0
    assert causes["pending-parts"] == (70, 1)
    assert causes["unknown-upload"] == (70, 1)
    assert causes["foreign"] == (50 + 2 * LINK, 3)
    assert causes["deleted-but-open"][0] >= 3 * MIB
    assert causes["snapshots"][0] == SNAPSHOTS
    assert causes["accounting-gap"] == (ORPHANS + 900, 0)

    whole, own = document["store_equation"], document["equation"]
    assert whole["closes"]
    assert own["closes"]
    assert whole["how"] == "operator"
    assert whole["lines"]["unexplained"] == (
        1_100 + len(NAMES) * 100 + 10 + 600 + 70 + 50 + 2 * LINK + ORPHANS + 900
    )
    assert own["lines"]["unexplained"] == 1_100 + len(NAMES) * 100 + 10 + 70
    assert whole["lines"]["committed"] - own["lines"]["committed"] == other.stored_bytes
    numbers = {one["how"]: one for one in document["accounting"]}
    assert set(numbers) == {"du", "statvfs", "operator"}
    assert numbers["du"]["rest_bytes"] == 0
    assert numbers["operator"]["rest_bytes"] == ORPHANS
    assert numbers["operator"]["causes"]["replication-factor"] > 0
    assert f"deleted files are held open by process {os.getpid()}" in numbers["statvfs"]["because"]
    assert {place["key_range"] for place in document["shared_differences"]} >= {
        "operator",
        "stray-parts",
    }
    in_findings = sum(one["bytes"] for one in document["findings"] if one["project"] == "vision")
    assert in_findings == 3_000 + 5_000 + len(NAMES) * 100 + 10 + 70


def _told_by_an_operator(catalog: Catalog, prepared: Prepared) -> None:
    """The backend counts everything twice, has snapshots, and orphans that nothing lists."""
    objects = sum(one.size_bytes for one in prepared.store.list(EVERYTHING))
    parts = sum(one.part_bytes_held for one in prepared.store.uploads(EVERYTHING))
    beside = sum(prepared.store.usage().causes.values())
    total = 2 * (objects + parts) + beside + SNAPSHOTS + ORPHANS
    for cause, size_bytes, replicas in ((SNAPSHOT_CAUSE, SNAPSHOTS, 1), (TOTAL, total, 2)):
        with catalog.transaction() as tx:
            set_number(
                tx,
                "local",
                cause=cause,
                size_bytes=size_bytes,
                replicas=replicas,
                as_of=END,
                because="the array's console",
                actor="operator:ann",
            )


def _keep_inventories_elsewhere(prepared: Prepared, folder: Path) -> None:
    """So that a listing of the store is the same before and after."""
    folder.mkdir()
    prepared.owner.execute(
        "INSERT INTO stores (store, kind, config, failure_domain, tier)"
        " VALUES ('kept', 'file', %s, 'rack-2', 'cold')",
        (Jsonb({"root": str(folder)}),),
    )
    prepared.owner.execute(
        "UPDATE stores SET config = config || %s WHERE store = 'local'",
        (Jsonb({"inventories": {"place": "kept"}}),),
    )


def _run(catalog: Catalog, folder: Path) -> dict[str, Any]:
    result = reconcile.run(
        catalog,
        stores_of(catalog),
        "vision",
        window=WINDOW,
        report_dir=folder,
        actor="dag:reconcile_inventory",
    )
    document: dict[str, Any] = json.loads(Path(result["json"]).read_text())
    return document
