"""A port that was chosen stays free for whom it was chosen."""

from __future__ import annotations

import socket
import sys

import pytest

from lastgood.stack.errors import StackError
from lastgood.stack.ports import LOOPBACK, chosen_port, held, held_port, is_free

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can hold a port")


def test_a_held_port_is_listened_at_by_who_names_it_and_taken_by_nobody_else() -> None:
    with held_port() as port, socket.socket() as other, socket.socket() as going_out:
        for taker in (other, going_out):
            with pytest.raises(OSError, match="in use"):
                taker.bind((LOOPBACK, port))
        assert is_free(port)
        with socket.create_server((LOOPBACK, port)), socket.create_connection((LOOPBACK, port)):
            assert not is_free(port)
            with pytest.raises(OSError, match="in use"), held(port):
                pass
    assert is_free(port)


def test_a_port_is_chosen_by_the_environment_then_by_memory_and_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with held_port() as asked, held_port() as remembered:
        with chosen_port("ASKED_PORT", remembered) as chosen:
            assert chosen == remembered
        with (
            socket.create_server((LOOPBACK, remembered)),
            chosen_port("ASKED_PORT", remembered) as chosen,
            socket.socket() as other,
        ):
            assert chosen not in (asked, remembered)
            with pytest.raises(OSError, match="in use"):
                other.bind((LOOPBACK, chosen))
        monkeypatch.setenv("ASKED_PORT", str(asked))
        with chosen_port("ASKED_PORT", remembered) as chosen:
            assert chosen == asked
        with (
            socket.create_server((LOOPBACK, asked)),
            pytest.raises(StackError, match=rf"port {asked} \(ASKED_PORT\) is in use"),
            chosen_port("ASKED_PORT", remembered),
        ):
            pass


@pytest.mark.parametrize("text", ["0", "65536", "-1", "http"])
def test_what_is_no_port_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKED_PORT", text)
    with (
        pytest.raises(StackError, match=f"ASKED_PORT='{text}' is not a port"),
        chosen_port("ASKED_PORT", None),
    ):
        pass
