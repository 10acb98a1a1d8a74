"""Object bytes on connections of our own: from the socket into a buffer, and from a buffer into
the socket.

A general HTTP client passes each byte through several objects; at the rate of an object store that
is most of a client's processor time. Here the standard library keeps to the protocol, and nobody
touches the bytes between the kernel and the caller.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx

from lastgood.runner.problems import Unreachable
from lastgood.runner.wire.carrying import Body, Carrier, Chunks, Headers
from lastgood.runner.wire.transport import (
    AGENT,
    CONNECT_TIMEOUT,
    IDLE_LIMIT,
    SILENCE_TIMEOUT,
    shown_url,
)
from lastgood.runner.working.retry import Transient
from lastgood.runner.working.stopping import breaking

_Origin = tuple[str, str, int | None]  # scheme, host, port


class Connections:
    """Connections that are kept open between requests: at most one for each thread at work.

    Certificates are checked as httpx does. Where the environment names a proxy for a URL,
    `through_proxy` carries its bytes.
    """

    def __init__(self, through_proxy: Carrier) -> None:
        self._through_proxy = through_proxy
        self._proxies = urllib.request.getproxies()
        self._lock = threading.Lock()
        self._idle: dict[_Origin, list[tuple[http.client.HTTPConnection, float]]] = {}
        self._certificates: ssl.SSLContext | None = None

    def put(self, url: str, headers: Headers, size_bytes: int, chunks: Chunks) -> httpx.Response:
        where = httpx.URL(url)
        if self._is_proxied(where):
            return self._through_proxy.put(url, headers, size_bytes, chunks)
        with self._lent(where) as exchange:
            exchange.begin("PUT", {**headers, "Content-Length": str(size_bytes)})
            broken = exchange.send(chunks)
            response = _whole(exchange.hear(broken), "PUT", where)
            if broken is not None:
                exchange.connection.close()
                if response.is_success:  # to a request of which it did not hear the end
                    raise broken
            return response

    @contextmanager
    def get(self, url: str, headers: Headers) -> Iterator[Body]:
        where = httpx.URL(url)
        if self._is_proxied(where):
            with self._through_proxy.get(url, headers) as body:
                yield body
            return
        with self._lent(where) as exchange:
            exchange.begin("GET", headers)
            yield _Body(where, exchange.hear())

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for kept in idle.values():
            for connection, _ in kept:
                connection.close()

    def _is_proxied(self, where: httpx.URL) -> bool:
        named = self._proxies.get(where.scheme) or self._proxies.get("all")
        return bool(named) and not urllib.request.proxy_bypass(where.host)

    @contextmanager
    def _lent(self, where: httpx.URL) -> Iterator[_Exchange]:
        """A connection for one request, kept afterwards if the answer was read to its end."""
        origin = (where.scheme, where.host, where.port)
        exchange = _Exchange(self._kept(origin) or self._opened(where), where)
        try:
            with breaking(exchange.break_off):
                yield exchange
        except BaseException:
            exchange.connection.close()
            raise
        if not exchange.is_over:
            exchange.connection.close()
            return
        with self._lock:
            self._idle.setdefault(origin, []).append((exchange.connection, time.monotonic()))

    def _kept(self, origin: _Origin) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                waiting = self._idle.get(origin)
                if not waiting:
                    return None
                connection, since = waiting.pop()
            if time.monotonic() - since < IDLE_LIMIT.total_seconds() and _is_quiet(connection):
                return connection
            connection.close()

    def _opened(self, where: httpx.URL) -> http.client.HTTPConnection:
        host, seconds = where.raw_host.decode("ascii"), CONNECT_TIMEOUT.total_seconds()
        connection: http.client.HTTPConnection
        if where.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, where.port or 443, timeout=seconds, context=self._checking()
            )
        else:
            connection = http.client.HTTPConnection(host, where.port or 80, timeout=seconds)
        with _failures(where):
            connection.connect()
            connection.sock.settimeout(SILENCE_TIMEOUT.total_seconds())
        return connection

    def _checking(self) -> ssl.SSLContext:
        with self._lock:
            if self._certificates is None:
                self._certificates = httpx.create_ssl_context()
                self._certificates.set_alpn_protocols(["http/1.1"])
            return self._certificates


@dataclass
class _Exchange:
    """One request and its answer on a connection."""

    connection: http.client.HTTPConnection
    where: httpx.URL
    answer: http.client.HTTPResponse | None = None

    def __post_init__(self) -> None:
        self._socket: socket.socket = self.connection.sock  # which an answer may take over

    @property
    def is_over(self) -> bool:
        """Whether the connection can take another request."""
        heard = self.answer is not None and self.answer.isclosed()
        return heard and self.connection.sock is not None

    def break_off(self) -> None:
        """End a wait of another thread on this connection, which is of no use any more."""
        with suppress(OSError):  # the other end was faster
            # Below TLS, whose own goodbye would take part in what the other thread does.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def begin(self, method: str, headers: Headers) -> None:
        with _failures(self.where):
            target = self.where.raw_path.decode("ascii")
            self.connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in {"User-Agent": AGENT, **headers}.items():
                self.connection.putheader(name, value)
            self.connection.endheaders()

    def send(self, chunks: Chunks) -> Transient | None:
        """Send the body; why that ended early, if so: the other end may have answered before."""
        for chunk in chunks:
            try:
                with _failures(self.where):
                    self.connection.send(chunk)
            except Transient as broken:
                return broken
        return None

    def hear(self, broken: Transient | None = None) -> http.client.HTTPResponse:
        """The head of the answer. Raises `broken`, if given, where there is none."""
        try:
            with _failures(self.where):
                self.answer = self.connection.getresponse()
        except Transient as failure:
            raise broken or failure from failure
        return self.answer


class _Body:
    def __init__(self, where: httpx.URL, answer: http.client.HTTPResponse) -> None:
        self._where = where
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Headers:
        return httpx.Headers(self._answer.headers.items())

    def chunks(self, buffer: memoryview) -> Iterator[memoryview]:
        while True:
            with _failures(self._where):
                read = self._answer.readinto(buffer)
                if not read and self._answer.length:  # which the standard library lets pass
                    raise http.client.IncompleteRead(b"", self._answer.length)
            if not read:
                return
            yield buffer[:read]

    def whole(self) -> httpx.Response:
        return _whole(self._answer, "GET", self._where)


def _whole(answer: http.client.HTTPResponse, method: str, where: httpx.URL) -> httpx.Response:
    with _failures(where):
        content = answer.read()
    return httpx.Response(
        answer.status,
        headers=[
            (name.encode("latin-1"), said.encode("latin-1"))
            for name, said in answer.headers.items()
        ],
        content=content,
        request=httpx.Request(method, where),
    )


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing came while it was idle; what comes then is the end of it."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


@contextmanager
def _failures(where: httpx.URL) -> Iterator[None]:
    """Turn failures of the connection into Transient."""
    try:
        yield
    except (OSError, http.client.HTTPException) as failure:
        reason = f"{type(failure).__name__}: {failure}"
        raise Transient(Unreachable(where=shown_url(str(where)), reason=reason)) from failure
