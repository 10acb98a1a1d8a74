"""A port that was chosen stays free for whom it was chosen."""

from __future__ import annotations

import socket
import sys

import pytest

from lastgood.stack.ports import LOOPBACK, free_port, held, is_free

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can hold a port")


def test_a_held_port_is_listened_at_by_who_names_it_and_taken_by_nobody_else() -> None:
    port = free_port()
    with held(port), socket.socket() as other, socket.socket() as going_out:
        for taker in (other, going_out):
            with pytest.raises(OSError, match="in use"):
                taker.bind((LOOPBACK, port))
        assert is_free(port)
        with socket.create_server((LOOPBACK, port)), socket.create_connection((LOOPBACK, port)):
            assert not is_free(port)
            with pytest.raises(OSError, match="in use"), held(port):
                pass
    assert is_free(port)
