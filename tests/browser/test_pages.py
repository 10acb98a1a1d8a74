"""The operator's pages in a real browser: from the overview to a hold, by clicking."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from lastgood.coordinator.operator_auth import TOKEN_VARIABLE
from lastgood.coordinator.serve import standalone
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
