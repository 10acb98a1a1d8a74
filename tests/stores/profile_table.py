"""The table of docs/stores.md: what a probe found in each store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastgood.rules.store_profile import Ability, FoundProfile
from lastgood.stores.base import EVERYTHING

_PAGE = Path(__file__).resolve().parents[2] / "docs/stores.md"


def answers(found: FoundProfile) -> dict[str, str]:
    """What was found, as the table says it."""
    return {ability.value: found.finding(ability).answer.value for ability in Ability}


def documented() -> dict[str, dict[str, str]]:
    """Answers by ability, by store."""
    _, _, table = _PAGE.read_text().partition("\n| ability")
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in table.partition("\n\n")[0].splitlines()
    ]
    stores = rows[0][2:]
    cells = {row[0]: row[2:] for row in rows[2:]}
    assert set(cells) == set(Ability)
    return {
        store: {ability: row[number] for ability, row in cells.items()}
        for number, store in enumerate(stores)
    }


def nothing_is_left(store: Any) -> bool:
    """Whether a probe removed all that it wrote."""
    left = list(store.list(EVERYTHING, versions=store.profile.versioned))
    return not left and not list(store.uploads(EVERYTHING))
