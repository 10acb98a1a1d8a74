"""What `status` says when no stack runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lastgood.stack.__main__ import main
from lastgood.stack.layout import StackLayout
from lastgood.stack.processes import ProcessIdentity
from lastgood.stack.state import Phase, StackState

GONE = ProcessIdentity(pid=2**22 + 1, started=0.0)


@pytest.mark.parametrize(
    ("phase", "doing", "said"),
    [
        ("stopped", "stopped", "nothing runs"),
        ("failed", "scheduler ended too often", "scheduler ended too often"),
        ("ready", "serving", "its supervisor was killed"),
    ],
)
def test_status_says_how_the_last_stack_ended(
    phase: Phase,
    doing: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path))
    StackState(phase, doing, GONE).write(StackLayout.current().state)
    assert main(["status"]) == 3
    assert said in capsys.readouterr().out
    assert main(["status", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == ({} if phase == "stopped" else {"failed": said})


def test_status_of_a_place_where_nothing_was_ever_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LASTGOOD_VAR", str(tmp_path))
    assert main(["status"]) == 3
    assert capsys.readouterr().out == f"nothing runs{os.linesep}"
