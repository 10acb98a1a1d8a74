"""How a test goes from one page to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 120


@contextmanager
def next_page(browser: WebDriver) -> Iterator[None]:
    """What is done within leads to another page, which is whole when the block ends.

    A click returns before the answer to it is there: what a test looks for next must not be found
    in the page that it leaves.
    """
    left = browser.find_element(By.TAG_NAME, "html")
    yield
    WebDriverWait(browser, SECONDS).until(staleness_of(left), "no other page was loaded")
    wait_until_whole(browser)


def wait_until_whole(browser: WebDriver) -> None:
    """Wait for all of the page, or the frame, that the browser is at: its style, too."""
    WebDriverWait(browser, SECONDS).until(
        lambda here: here.execute_script("return document.readyState") == "complete",
        "the next page was not loaded whole",
    )


def go(browser: WebDriver, link_text: str) -> None:
    """Follow a link."""
    with next_page(browser):
        browser.find_element(By.LINK_TEXT, link_text).click()
