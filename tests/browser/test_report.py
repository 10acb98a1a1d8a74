"""The report as a browser shows it: the numbers of its JSON, and nothing from anywhere else."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from lastgood.flows.reconciliation import reconcile
from lastgood.rules import layout
from tests.retention.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def result(world: World, tmp_path: Path) -> dict[str, Any]:
    """A report in which every kind of thing has a number."""
    for sequence in (1, 2, 3, 4):
        world.commit(sequence, {"model.bin": b"m" * 1234, "rng.bin": b"r" * sequence})
    world.mark()
    world.sweep()
    world.prepare(7, {"a": b"1"}, grant=timedelta(seconds=1))
    world.advance(timedelta(minutes=5))
    lost = world.commit(9)
    (tmp_path / "store" / layout.object_key(lost.prefix, "model.bin")).unlink()
    (tmp_path / "store" / "stray <b>&amp; file").write_bytes(b"12345")
    end = world.now()
    return reconcile.run(
        world.catalog,
        world.stores,
        "vision",
        window=(end - timedelta(days=1), end),
        report_dir=tmp_path / "reports",
        actor="dag:test",
    )


def _value(document: Any, path: str) -> Any:
    for step in path.split("."):
        if step == "length":
            return len(document)
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _shown(chromium: WebDriver) -> dict[str, str]:
    cells = chromium.find_elements(By.CSS_SELECTOR, "[data-field]")
    return {str(cell.get_attribute("data-field")): cell.text for cell in cells}


def test_every_number_of_the_page_is_that_of_the_json(
    chromium: WebDriver, result: dict[str, Any]
) -> None:
    document = json.loads(Path(result["json"]).read_text())

    chromium.get(Path(result["html"]).as_uri())
    shown = _shown(chromium)

    assert {path: text.replace(",", "") for path, text in shown.items()} == {
        path: str(_value(document, path)) for path in shown
    }
    lines = [f"equation.lines.{line}" for line in document["equation"]["lines"]]
    counts = [f"counts.{state}" for state in document["counts"]]
    assert {*lines, *counts, "equation.backend_bytes", "findings.0.bytes"} <= set(shown)
    badges = chromium.find_elements(By.CSS_SELECTOR, "[data-check]")
    assert {one.get_attribute("data-check"): one.text for one in badges} == {
        check["name"]: "passed" if check["passed"] else "failed" for check in document["checks"]
    }
    verdict = chromium.find_element(By.CSS_SELECTOR, ".verdict").text
    first = document["verdict"]["first_failed"]
    assert verdict.splitlines()[1] == "Failed first: nothing-committed-absent"
    assert f"{first['owner']} answers for it" in verdict
    own = [check for check in document["checks"] if check["suite"] != "store"]
    assert f"1 of {len(own)} checks failed" in verdict
    assert len(chromium.find_elements(By.CSS_SELECTOR, "svg.strip")) == len(document["checks"])
    assert [one.text for one in chromium.find_elements(By.TAG_NAME, "h2")][:3] == [
        "Byte equation of vision",
        "Findings",
        "Capacity of local",
    ]


def test_the_file_stands_alone_and_says_nothing_to_the_console(
    chromium: WebDriver, result: dict[str, Any]
) -> None:
    chromium.get_log("performance")

    chromium.get(Path(result["html"]).as_uri())

    messages = [json.loads(one["message"])["message"] for one in chromium.get_log("performance")]
    asked = {
        one["params"]["request"]["url"].partition(":")[0]
        for one in messages
        if one["method"] == "Network.requestWillBeSent"
    }
    assert asked <= {"file", "data"}
    assert chromium.get_log("browser") == []
    assert chromium.find_elements(By.TAG_NAME, "script") == []


def test_hostile_keys_are_text(chromium: WebDriver, result: dict[str, Any]) -> None:
    chromium.get(Path(result["html"]).as_uri())

    assert chromium.find_elements(By.TAG_NAME, "b") == []
    assert "stray <b>&amp; file" in chromium.page_source.replace("&lt;", "<").replace(
        "&gt;", ">"
    ).replace("&amp;amp;", "&amp;")


def test_a_keyboard_reaches_the_report_its_tables_and_the_keys_of_a_finding(
    chromium: WebDriver, result: dict[str, Any]
) -> None:
    chromium.get(Path(result["html"]).as_uri())
    body = chromium.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    first = chromium.switch_to.active_element.text
    reached: set[str] = set()
    for _ in range(30):
        here = chromium.switch_to.active_element
        if here.tag_name == "summary" and "summary" not in reached:
            here.send_keys(Keys.ENTER)
        reached.add(here.get_attribute("aria-label") or here.tag_name)
        here.send_keys(Keys.TAB)

    assert first == "Skip to the report"
    assert {"Findings", "Quality checks", "summary"} <= reached
    assert chromium.find_elements(By.CSS_SELECTOR, "details[open] li")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_its_ground_in_light_and_dark(
    chromium: WebDriver, result: dict[str, Any], scheme: str
) -> None:
    chromium.execute_cdp_cmd(  # type: ignore[attr-defined]
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )

    chromium.get(Path(result["html"]).as_uri())

    low = chromium.execute_script(_LOW_CONTRAST)  # type: ignore[no-untyped-call]
    assert low == []


_LOW_CONTRAST = """
const part = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const numbers = text => text.match(/[\\d.]+/g).map(Number);
const ground = element => {
  for (let e = element; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  }
  return [255, 255, 255];
};
const low = [];
for (const e of document.querySelectorAll("main *")) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || e.closest(".zero, .sign, title") || !e.getClientRects().length) continue;
  const a = light(numbers(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push([e.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
}
return low;
"""


def test_nothing_overflows_a_narrow_window(chromium: WebDriver, result: dict[str, Any]) -> None:
    chromium.set_window_size(500, 900)

    chromium.get(Path(result["html"]).as_uri())

    wide = chromium.execute_script(  # type: ignore[no-untyped-call]
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0
