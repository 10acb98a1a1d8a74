"""The pages in Airflow's own navigation, in a real browser, as a user that may only read."""

from __future__ import annotations

import pytest
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    NoSuchFrameException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.clicking import SECONDS, wait_until_whole
from tests.conftest import RunningStack

pytestmark = pytest.mark.slow
# Airflow's own page puts other elements in the place of those that stand there, at any moment.
PASSING = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    NoSuchFrameException,
    StaleElementReferenceException,
)


def test_a_viewer_comes_to_the_pages_by_airflows_navigation_light_or_dark_as_it_is(
    chromium: WebDriver, airflow_stack: RunningStack
) -> None:
    with airflow_stack.airflow("viewer") as viewer:
        token = str(viewer.http.headers["Authorization"]).removeprefix("Bearer ")
    wait = WebDriverWait(chromium, SECONDS, ignored_exceptions=PASSING)
    chromium.get(f"{airflow_stack.url}/lastgood/pages/style.css")
    chromium.add_cookie({"name": "_token", "value": token})
    grounds = {}
    for theme in ("light", "dark"):
        chromium.get(f"{airflow_stack.url}/lastgood/pages/style.css")
        chromium.execute_script("localStorage.setItem('theme', arguments[0])", theme)
        chromium.get(airflow_stack.url)
        wait.until(checkpoints_are_chosen, "the menu does not lead to the checkpoints")
        wait.until(frame_says_who, "the frame does not say who is looking")
        wait.until(frame_shows_findings, "the link does not lead to the findings")
        assert chromium.find_elements(By.TAG_NAME, "form") == []
        body = chromium.find_element(By.TAG_NAME, "body")
        grounds[theme] = body.value_of_css_property("background-color")
    assert grounds == {"light": "rgba(246, 247, 249, 1)", "dark": "rgba(16, 20, 26, 1)"}


def checkpoints_are_chosen(browser: WebDriver) -> bool:
    """Open the menu unless it is open, and choose our entry in it."""
    entry = (By.XPATH, "//*[@role='menuitem'][contains(., 'Checkpoints')]")
    if not any(one.is_displayed() for one in browser.find_elements(*entry)):
        browse = browser.find_element(By.XPATH, "//button[contains(., 'Browse')]")
        if browse.get_attribute("aria-expanded") != "true":
            browse.click()
    browser.find_element(*entry).click()
    return True


def frame_says_who(browser: WebDriver) -> bool:
    enter_frame(browser)
    return browser.find_element(By.CSS_SELECTOR, ".who").text == "viewer (may read)"


def frame_shows_findings(browser: WebDriver) -> bool:
    """Follow the link unless its page is shown."""
    enter_frame(browser)
    if "Findings" in [title.text for title in browser.find_elements(By.TAG_NAME, "h1")]:
        wait_until_whole(browser)
        return True
    browser.find_element(By.LINK_TEXT, "Findings").click()
    return False


def enter_frame(browser: WebDriver) -> None:
    """Enter the frame of our pages, which Airflow may load anew."""
    browser.switch_to.default_content()
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
