"""`lastgood store probe` and `lastgood store profile`."""

from __future__ import annotations

from tests.cli.conftest import CommandLine
from tests.retention.world import World


def test_a_profile_is_made_and_shown(lastgood: CommandLine, world: World) -> None:
    assert lastgood("store", "profile", "local").code == 4
    made = lastgood("store", "probe", "local", "--json")
    assert made.code == 0
    assert made.document["recorded_by"] == "operator:ann"
    assert made.document["findings"]["replay-refused"]["answer"] == "yes"
    shown = lastgood("store", "profile", "local")
    assert shown.code == 0
    assert "by the SHA-256 that the store attests" in shown.out
    assert "conditional-put" in shown.out
