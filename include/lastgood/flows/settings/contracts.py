"""The contracts that operators registered: files of this machine's own checkout.

They are commands that a worker runs. So they come from the configuration that is deployed with the
worker, and never from the catalog, which the HTTP service can write to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import lastgood
from lastgood.flows.settings.documents import read_folder
from lastgood.rules.contract import Contract, parse_contract

_INCLUDE = Path(lastgood.__file__).resolve().parents[1]


def config_folder() -> Path:
    """LASTGOOD_CONFIG, else `config/` beside the package."""
    named = os.environ.get("LASTGOOD_CONFIG", "").strip()
    return Path(named) if named else _INCLUDE / "config"


def registered(folder: Path | None = None) -> Mapping[str, Contract]:
    """Every contract below a configuration folder, by name. Raises InvalidConfig with file, line
    and key."""
    contracts = (folder or config_folder()) / "contracts"
    return {
        contract.name: contract
        for contract in (parse_contract(document.root) for document in read_folder(contracts))
    }


def fixed_places() -> dict[str, str]:
    """What a command may name of this machine: its interpreter, and the checkout that holds it."""
    return {"python": sys.executable, "checkout": str(_INCLUDE.parent)}
