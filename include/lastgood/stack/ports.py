"""Free TCP ports on the loopback interface."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lastgood.stack.errors import StackError

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nothing listens on at this moment.

    Another process can take it before the caller does, so a caller that fails to bind asks again,
    or has it `held`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def held(*ports: int) -> Iterator[None]:
    """Keep ports on 127.0.0.1 from whoever asks for any free one, connections that go out too. Who
    names a port can listen at it all the same. Linux alone can do this; elsewhere nothing is kept.

    Raises OSError when something listens at one already.
    """
    with ExitStack() as sockets:
        for port in ports if sys.platform == "linux" else ():
            bound = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((LOOPBACK, port))
        yield


def is_free(port: int) -> bool:
    """Tell whether `port` on 127.0.0.1 can be bound now (a port in TIME_WAIT counts as free)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def port_from_environment(variable: str) -> int | None:
    """Return the port that the environment variable asks for, or None when it is unset or empty.

    Raises StackError when the value is not a port number.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise StackError(f"{variable}={text!r} is not a port; give a number from 1 to 65535")
    return int(text)


def choose_port(variable: str, remembered: int | None) -> int:
    """Choose the port from the environment, else the remembered one if free, else any free one."""
    asked = port_from_environment(variable)
    if asked is not None:
        if not is_free(asked):
            raise StackError(f"port {asked} ({variable}) is in use; free it or choose another")
        return asked
    if remembered is not None and is_free(remembered):
        return remembered
    return free_port()
