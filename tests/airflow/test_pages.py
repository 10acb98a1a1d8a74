"""The pages in Airflow's own navigation, in a real browser, as a user that may only read."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.ui import WebDriverWait

from tests.conftest import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_viewer_comes_to_the_pages_by_airflows_navigation_light_or_dark_as_it_is(
    chromium: WebDriver, airflow_stack: RunningStack
) -> None:
    with airflow_stack.airflow("viewer") as viewer:
        token = str(viewer.http.headers["Authorization"]).removeprefix("Bearer ")
    wait = WebDriverWait(chromium, 60)
    chromium.get(f"{airflow_stack.url}/lastgood/pages/style.css")
    chromium.add_cookie({"name": "_token", "value": token})
    grounds = {}
    for theme in ("light", "dark"):
        chromium.get(f"{airflow_stack.url}/lastgood/pages/style.css")
        chromium.execute_script("localStorage.setItem('theme', arguments[0])", theme)
        chromium.get(airflow_stack.url)
        browse = (
            By.XPATH,
            "//nav//button[contains(., 'Browse')] | //button[contains(., 'Browse')]",
        )
        wait.until(expected.element_to_be_clickable(browse)).click()
        entry = (By.XPATH, "//*[@role='menuitem'][contains(., 'Checkpoints')]")
        wait.until(expected.element_to_be_clickable(entry)).click()
        wait.until(expected.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe")))
        who = wait.until(expected.presence_of_element_located((By.CSS_SELECTOR, ".who")))
        assert who.text == "viewer (may read)"
        chromium.find_element(By.LINK_TEXT, "Findings").click()
        title = (By.XPATH, "//h1[text()='Findings']")
        wait.until(expected.presence_of_element_located(title))
        assert chromium.find_elements(By.TAG_NAME, "form") == []
        body = chromium.find_element(By.TAG_NAME, "body")
        grounds[theme] = body.value_of_css_property("background-color")
    assert grounds == {"light": "rgba(246, 247, 249, 1)", "dark": "rgba(16, 20, 26, 1)"}
