"""The pictures of the documentation, made anew by `make screenshots`: no test, and collected only
when it is named."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from lastgood.catalog.keeping.holds import NewHold
from lastgood.flows.keeping import hold
from lastgood.flows.reconciliation import reconcile
from lastgood.rules import layout
from tests.retention.world import PROJECT, World

IMAGES = Path(__file__).parents[2] / "docs/images"
ROLES = {
    "hot": {"keep": "newest", "count": 3},
    "warm": {"keep": "every", "interval": "6h", "within": "2d"},
}
BETWEEN = timedelta(hours=2, minutes=7)
MODEL = b"m" * 1_100_000


def test_screenshots(chromium: WebDriver, url: str, world: World, tmp_path: Path) -> None:
    lived(world)
    shot(chromium, url, "overview")
    shot(chromium, f"{url}checkpoints/vision/gpt/pretrain", "timeline", height=1340)
    shot(chromium, f"{url}why/vision/gpt/pretrain/1.5", "why", height=1100)
    shot(chromium, f"{url}quarantine", "quarantine", open_first="Take it back")
    strays(world, tmp_path / "store")
    day(world, tmp_path)
    shot(chromium, f"{url}findings", "findings", open_first="Change")
    report(chromium, world, tmp_path)


def lived(world: World) -> None:
    """Two generations of a stage: some checkpoints deleted, some in quarantine, one held, one of
    them damaged."""
    world.promote({"roles": ROLES, "quarantine": {"grace": "8h", "share_guard": "100%"}})
    for number in range(1, 13):
        generation, sequence = (1, number) if number <= 7 else (2, number - 7)
        loss = round(1.8 - number / 40, 2)
        made = world.commit(
            sequence,
            {"model.bin": MODEL, "rng.bin": b"r" * 640},
            generation=generation,
            metrics={"eval/loss": loss},
            receipt=None,
        )
        world.receipt(made, "fail" if number == 7 else "pass")
        if number == 5:
            reason = "a loss spike is under study"
            new = NewHold("incident", "ann", reason, "operator:ann")
            hold.place(world.catalog, world.stores, PROJECT, new, made.checkpoint)
        world.advance(BETWEEN)
        world.mark()
        world.sweep()


def strays(world: World, root: Path) -> None:
    """What a report of a bad day is about."""
    lost = world.commit(6, {"model.bin": MODEL, "rng.bin": b"r" * 640}, generation=2)
    (root / layout.object_key(lost.prefix, "rng.bin")).unlink()
    for path, size in (("checkpoints/vision/gpt/pretrain/copy-of-1.2", 2_200_000), ("notes", 500)):
        (root / path).write_bytes(b"s" * size)
    world.prepare(7, {"model.bin": MODEL}, generation=2, grant=timedelta(seconds=1))
    world.advance(timedelta(hours=2))


def day(world: World, folder: Path) -> dict[str, Any]:
    end = world.now()
    return reconcile.run(
        world.catalog,
        world.stores,
        PROJECT,
        window=(end - timedelta(days=1), end),
        report_dir=folder / "reports",
        actor="dag:reconcile_inventory",
    )


def report(chromium: WebDriver, world: World, folder: Path) -> None:
    """The report of the seventh day, so that its charts have something to show."""
    for _ in range(6):
        world.advance(timedelta(days=1))
        told = day(world, folder)
    document = json.loads(Path(told["json"]).read_text())
    assert not document["passed"]
    shot(chromium, Path(told["html"]).as_uri(), "report", height=2460)


def shot(
    chromium: WebDriver,
    address: str,
    name: str,
    *,
    height: int = 860,
    open_first: str | None = None,
) -> None:
    """A picture of the first `height` pixels of a page, 1,200 wide; `open_first` names a section to
    open before."""
    chromium.get(address)
    if open_first is not None:
        chromium.find_element(By.XPATH, f"//summary[text()='{open_first}']").click()
    size = {"width": 1200, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    taken = chromium.execute_cdp_cmd("Page.captureScreenshot", {})
    path = IMAGES / (f"{name}.png" if name == "report" else f"pages-{name}.png")
    path.write_bytes(base64.b64decode(taken["data"]))
