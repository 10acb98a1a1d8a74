"""A real Chromium, headless; tests are skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from tests.retention.world import World, opened

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1600",
)


@pytest.fixture
def world(catalog_dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[World]:
    with opened(catalog_dsn, owner_dsn, tmp_path / "store") as found:
        yield found


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[WebDriver]:
    """A browser with an empty profile."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs Chromium and chromedriver on the PATH")
    options = Options()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()
