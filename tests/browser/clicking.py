"""How a test goes from one page to the next."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 120


@contextmanager
def next_page(browser: WebDriver) -> Iterator[None]:
    """What is done within leads to another page, which is whole when the block ends.

    A click returns before the answer to it is there: what a test looks for next must not be found
    in the page that it leaves. That page is known by a word of its own, since one to which the
    browser goes back may be the very page that was left before.
    """
    word = secrets.token_hex(8)
    browser.execute_script("window.left = arguments[0]", word)
    yield
    wait_until_whole(browser, word)


def wait_until_whole(browser: WebDriver, but: str = "") -> None:
    """Wait for all of the page, or the frame, that the browser is at: its style, too. Not for the
    page of this word."""
    # Between two pages there is none, which the browser says in many ways.
    wait = WebDriverWait(browser, SECONDS, ignored_exceptions=[WebDriverException])
    whole = "return document.readyState === 'complete' && window.left !== arguments[0]"
    wait.until(
        lambda here: here.execute_script(whole, but), "no other page was loaded, or not whole"
    )


def go(browser: WebDriver, link_text: str) -> None:
    """Follow a link."""
    with next_page(browser):
        browser.find_element(By.LINK_TEXT, link_text).click()
