"""The server of the tests goes with whoever started it, however that ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.stack.ports import free_port
from tests.localstack.fixtures import answers, process


@pytest.mark.slow
def test_a_server_ends_and_leaves_no_folder_once_its_run_was_killed(
    localstack: str, tmp_path: Path
) -> None:
    folder, port = tmp_path / "server", free_port()
    folder.mkdir()
    with process(port, folder) as server:
        assert answers(f"http://127.0.0.1:{port}", server)
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(timeout=60) == 0
        assert not folder.exists()
