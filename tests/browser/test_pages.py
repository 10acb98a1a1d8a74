"""The operator's pages in a real browser: from the overview to a hold, by clicking."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import uvicorn
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from lastgood.coordinator.operator_auth import TOKEN_VARIABLE
from lastgood.coordinator.serve import standalone
from lastgood.flows import reconcile
from tests.retention.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def url(world: World, catalog_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The coordinator's address with the operator's name and token in it."""
    monkeypatch.setenv(TOKEN_VARIABLE, hashlib.sha256(b"secret").hexdigest())
    config = uvicorn.Config(standalone(catalog_dsn), host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://ann:secret@127.0.0.1:{port}/lastgood/pages/"
    server.should_exit = True
    thread.join()


def test_an_operator_clicks_to_a_checkpoint_and_holds_it(
    chromium: WebDriver, url: str, world: World
) -> None:
    kept = world.commit(1)
    world.commit(2)

    chromium.get(url)
    chromium.find_element(By.LINK_TEXT, "vision/gpt/pretrain").click()
    chromium.find_element(By.LINK_TEXT, "1.1").click()
    form = chromium.find_element(By.CSS_SELECTOR, "form.form")
    form.find_element(By.NAME, "reason").send_keys("keep for the paper")
    form.find_element(By.TAG_NAME, "button").click()
    done = WebDriverWait(chromium, 10).until(
        lambda browser: browser.find_element(By.CSS_SELECTOR, ".done")
    )

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
    chromium.find_element(By.LINK_TEXT, str(old.checkpoint)).click()
    chromium.find_element(By.TAG_NAME, "summary").click()
    form = chromium.find_element(By.CSS_SELECTOR, "details form.form")
    form.find_element(By.NAME, "because").send_keys("needed once more")
    form.find_element(By.TAG_NAME, "button").click()
    done = WebDriverWait(chromium, 10).until(
        lambda browser: browser.find_element(By.CSS_SELECTOR, ".done")
    )

    assert "present again" in done.text
    assert world.state(old) == "present"
    assert set(world.keys(old).values()) == {False}
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
    chromium.find_element(By.LINK_TEXT, "Report 1").click()
    assert "5 bytes unexplained" in chromium.find_element(By.CSS_SELECTOR, ".verdict").text
    chromium.find_element(By.LINK_TEXT, "Findings").click()
    chromium.find_element(By.XPATH, "//summary[text()='Change']").click()
    assign = chromium.find_element(By.CSS_SELECTOR, "form[action$='findings/assign']")
    owner = assign.find_element(By.NAME, "owner")
    owner.clear()
    owner.send_keys("storage-team")
    assign.find_element(By.TAG_NAME, "button").click()
    done = WebDriverWait(chromium, 10).until(
        lambda browser: browser.find_element(By.CSS_SELECTOR, ".done")
    )
    assert "new owner and deadline" in done.text
    assert "storage-team" in chromium.find_element(By.TAG_NAME, "table").text
    chromium.find_element(By.LINK_TEXT, "untracked").click()
    assert [one.text for one in chromium.find_elements(By.CSS_SELECTOR, "tbody th")][:2] == [
        "opened",
        "assigned",
    ]
    assert chromium.get_log("browser") == []

    chromium.back()
    chromium.find_element(By.XPATH, "//summary[text()='Change']").click()
    chromium.find_element(By.CSS_SELECTOR, "form[action$='findings/close'] button").click()
    refused = WebDriverWait(chromium, 20).until(
        lambda browser: browser.find_element(By.XPATH, "//*[contains(text(), 'stray.bin')]")
    )
    assert "still unexplained" in refused.text
