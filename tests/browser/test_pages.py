"""The operator's pages in a real browser: from the overview to a hold, by clicking."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from lastgood.coordinator.operators.auth import TOKEN_VARIABLE
from lastgood.flows.reconciliation import reconcile
from tests.browser.clicking import SECONDS, go, next_page, wait_until_whole
from tests.retention.world import World

pytestmark = pytest.mark.slow


def test_an_operator_clicks_to_a_checkpoint_and_holds_it(
    chromium: WebDriver, url: str, world: World
) -> None:
    kept = world.commit(1)
    world.commit(2)

    chromium.get(url)
    go(chromium, "vision/gpt/pretrain")
    go(chromium, "1.1")
    form = chromium.find_element(By.CSS_SELECTOR, "form.form")
    form.find_element(By.NAME, "reason").send_keys("keep for the paper")
    with next_page(chromium):
        form.find_element(By.TAG_NAME, "button").click()
    done = chromium.find_element(By.CSS_SELECTOR, ".done")

    assert "The hold stands." in done.text
    assert "no hold" in chromium.page_source
    assert world.row("SELECT reason, placed_by FROM lastgood.holds") == (
        "keep for the paper",
        "operator:ann",
    )
    assert world.state(kept) == "present"
    assert chromium.get_log("browser") == []


def test_an_operator_takes_a_checkpoint_back_out_of_quarantine(
    chromium: WebDriver, url: str, world: World
) -> None:
    old = world.commit(1)
    world.commit(2)
    world.commit(3)
    world.mark()
    world.sweep()
    assert world.state(old) == "quarantined"

    chromium.get(f"{url}quarantine")
    go(chromium, str(old.checkpoint))
    chromium.find_element(By.TAG_NAME, "summary").click()
    form = chromium.find_element(By.CSS_SELECTOR, "details form.form")
    form.find_element(By.NAME, "because").send_keys("needed once more")
    with next_page(chromium):
        form.find_element(By.TAG_NAME, "button").click()
    done = chromium.find_element(By.CSS_SELECTOR, ".done")

    assert "present again" in done.text
    assert world.state(old) == "present"
    assert set(world.keys(old).values()) == {False}
    assert world.row(
        "SELECT actor, reason FROM lastgood.copy_transitions WHERE copy_id = %s"
        " ORDER BY number DESC LIMIT 1",
        old.copy_id,
    ) == ("operator:ann", "needed once more")
    assert chromium.get_log("browser") == []


def test_an_operator_reads_the_report_assigns_its_finding_and_is_refused_to_close_it(
    chromium: WebDriver, url: str, world: World, tmp_path: Path
) -> None:
    world.commit(1)
    (tmp_path / "store" / "checkpoints" / "vision" / "stray.bin").write_bytes(b"12345")
    end = world.now()
    reconcile.run(
        world.catalog,
        world.stores,
        "vision",
        window=(end - timedelta(days=1), end),
        report_dir=tmp_path / "reports",
        actor="dag:test",
    )

    chromium.get(f"{url}reports")
    go(chromium, "Report 1")
    assert "5 bytes unexplained" in chromium.find_element(By.CSS_SELECTOR, ".verdict").text
    go(chromium, "Findings")
    chromium.find_element(By.XPATH, "//summary[text()='Change']").click()
    assign = chromium.find_element(By.CSS_SELECTOR, "form[action$='findings/assign']")
    owner = assign.find_element(By.NAME, "owner")
    owner.clear()
    owner.send_keys("storage-team")
    with next_page(chromium):
        assign.find_element(By.TAG_NAME, "button").click()
    done = chromium.find_element(By.CSS_SELECTOR, ".done")
    assert "new owner and deadline" in done.text
    assert "storage-team" in chromium.find_element(By.TAG_NAME, "table").text
    go(chromium, "untracked")
    assert [one.text for one in chromium.find_elements(By.CSS_SELECTOR, "tbody th")][:2] == [
        "opened",
        "assigned",
    ]
    assert "operator:ann" in chromium.find_element(By.TAG_NAME, "table").text
    assert chromium.get_log("browser") == []

    with next_page(chromium):
        chromium.back()
    chromium.find_element(By.XPATH, "//summary[text()='Change']").click()
    with next_page(chromium):
        chromium.find_element(By.CSS_SELECTOR, "form[action$='findings/close'] button").click()
    refused = chromium.find_element(By.XPATH, "//*[contains(text(), 'stray.bin')]")
    assert "still unexplained" in refused.text


def test_a_stage_is_a_timeline_that_leads_to_each_checkpoint(
    chromium: WebDriver, url: str, world: World
) -> None:
    for sequence in (1, 2, 3):
        world.commit(sequence)
    world.mark()
    world.sweep()

    chromium.get(f"{url}checkpoints/vision/gpt/pretrain")
    entries = chromium.find_elements(By.CSS_SELECTOR, "ol.timeline > li")
    marks = chromium.find_elements(
        By.CSS_SELECTOR, ".chart.lane .at-present, .lane .at-quarantined"
    )
    places = [mark.rect["x"] for mark in marks]

    assert [one.find_element(By.TAG_NAME, "a").text for one in entries] == ["1.3", "1.2", "1.1"]
    assert "Leaves: others took the slots of hot" in entries[2].text
    assert len(places) == 3
    assert places == sorted(places)
    assert places[0] < places[-1]
    with next_page(chromium):
        entries[2].find_element(By.LINK_TEXT, "1.1").click()
    assert "May it go?" in chromium.find_element(By.TAG_NAME, "main").text
    assert chromium.get_log("browser") == []


def test_a_hold_is_placed_by_keyboard_alone_with_the_focus_always_in_sight(
    chromium: WebDriver, url: str, world: World
) -> None:
    world.commit(1)

    chromium.get(f"{url}why/vision/gpt/pretrain/1.1")
    _press(chromium, Keys.TAB)
    skip = chromium.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.rect["x"] >= 0
    _press(chromium, Keys.ENTER)
    for _ in range(20):
        _press(chromium, Keys.TAB)
        focused = chromium.switch_to.active_element
        assert focused.find_elements(By.XPATH, "ancestor::main"), "the skip link leads into main"
        assert focused.value_of_css_property("outline-style") != "none", focused.tag_name
        if focused.get_attribute("name") == "reason":
            break
    with next_page(chromium):
        focused.send_keys("by hand", Keys.ENTER)
    done = chromium.find_element(By.CSS_SELECTOR, ".done")

    assert "The hold stands." in done.text
    assert world.row("SELECT reason, placed_by FROM lastgood.holds") == ("by hand", "operator:ann")


def _press(chromium: WebDriver, key: str) -> None:
    ActionChains(chromium).send_keys(key).perform()


def test_a_frame_is_light_or_dark_as_the_page_around_it(chromium: WebDriver, url: str) -> None:
    grounds = {}
    chromium.get(url)
    for scheme in ("light", "dark"):
        chromium.get(f"{url}style.css")  # without a policy that would forbid frames in it
        chromium.execute_script(FRAME, scheme)
        chromium.switch_to.frame("pages")
        WebDriverWait(chromium, SECONDS).until(
            lambda browser: browser.find_elements(By.LINK_TEXT, "Overview")
        )
        wait_until_whole(chromium)
        body = chromium.find_element(By.TAG_NAME, "body")
        grounds[scheme] = body.value_of_css_property("background-color")

    assert grounds == {"light": "rgba(246, 247, 249, 1)", "dark": "rgba(16, 20, 26, 1)"}


# As Airflow does: the scheme on its root, our pages in a frame.
FRAME = """
document.documentElement.style.colorScheme = arguments[0];
const frame = document.createElement("iframe");
frame.name = "pages";
frame.src = "./";
document.body.append(frame);
"""


@pytest.fixture
def airflow(world: World, catalog_dsn: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The coordinator behind Airflow's own users: its `port`, and the `tokens` of the roles."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "op:op,viewer:viewer",
    }
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=environment, capture_output=True, check=True)
    script = Path(__file__).with_name("airflow_server.py")
    server = subprocess.Popen(
        [sys.executable, str(script), catalog_dsn],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    yield json.loads(next(line for line in server.stdout if line.startswith("{")))
    server.terminate()
    server.wait(SECONDS)


def test_airflows_viewer_is_offered_no_change_and_refused_one_that_its_op_may_make(
    chromium: WebDriver, airflow: dict[str, Any], world: World
) -> None:
    copy = world.commit(1)
    root = f"http://127.0.0.1:{airflow['port']}/lastgood/pages/"

    chromium.get(root)
    assert "log in to Airflow" in chromium.find_element(By.TAG_NAME, "main").text
    chromium.add_cookie({"name": "_token", "value": airflow["tokens"]["op"]})
    chromium.get(f"{root}why/{copy.checkpoint}")
    form = chromium.find_element(By.CSS_SELECTOR, "form.form")
    chromium.add_cookie({"name": "_token", "value": airflow["tokens"]["viewer"]})
    form.find_element(By.NAME, "reason").send_keys("I may not")
    with next_page(chromium):
        form.find_element(By.TAG_NAME, "button").click()
    refused = chromium.find_element(By.XPATH, "//*[contains(text(), 'viewer')]")
    assert "may not change anything here" in refused.text
    assert world.row("SELECT count(*) FROM lastgood.holds") == (0,)

    chromium.get(f"{root}why/{copy.checkpoint}")
    assert "viewer (may read)" in chromium.find_element(By.CSS_SELECTOR, ".who").text
    assert chromium.find_elements(By.TAG_NAME, "form") == []

    chromium.add_cookie({"name": "_token", "value": airflow["tokens"]["op"]})
    chromium.get(f"{root}why/{copy.checkpoint}")
    with next_page(chromium):
        chromium.find_element(By.NAME, "reason").send_keys("I may", Keys.ENTER)
    assert chromium.find_elements(By.CSS_SELECTOR, ".done")
    assert world.row("SELECT reason, placed_by FROM lastgood.holds") == ("I may", "operator:op")
