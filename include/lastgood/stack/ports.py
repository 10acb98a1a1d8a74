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

    Another process can take it before the caller does, so a caller that fails to bind asks again.
    Who cannot ask again takes a `held_port`.
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


@contextmanager
def held_port() -> Iterator[int]:
    """A free TCP port on 127.0.0.1 for a server of later; `held` as soon as it is chosen."""
    if sys.platform != "linux":
        yield free_port()
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, 0))
        yield bound.getsockname()[1]


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


@contextmanager
def chosen_port(variable: str, remembered: int | None) -> Iterator[int]:
    """The port that the environment asks for, else the remembered one if free, else any free one;
    `held` meanwhile. Raises StackError when the one that is asked for is in use."""
    with ExitStack() as holding:
        asked = port_from_environment(variable)
        if asked is not None:
            if not _holds(holding, asked):
                raise StackError(f"port {asked} ({variable}) is in use; free it or choose another")
            yield asked
        elif remembered is not None and _holds(holding, remembered):
            yield remembered
        else:
            yield holding.enter_context(held_port())


def _holds(holding: ExitStack, port: int) -> bool:
    if not is_free(port):
        return False
    try:
        holding.enter_context(held(port))
    except OSError:
        return False
    return True
