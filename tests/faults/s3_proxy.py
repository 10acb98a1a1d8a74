"""A proxy before a real S3 server that makes its answers silent, broken, refused or wrong."""

from __future__ import annotations

import fcntl
import http.client
import re
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from tests.waiting import wait_for

REQUEST_ID = "tx-of-the-proxy"
_NOT_FORWARDED = ("expect", "connection", "content-length", "transfer-encoding")
_NOT_RETURNED = ("connection", "content-length", "transfer-encoding")
_INT = bytes(struct.calcsize("i"))


@dataclass(frozen=True)
class Answer:
    """An answer that the server never gave; it did not see the request."""

    status: int
    code: str
    message: str = "said the proxy"
    inside: str = ""  # further elements of the error
    headers: dict[str, str] = field(default_factory=dict)
    page: bytes | None = None  # of a gateway before the server, in the place of an error of S3

    @property
    def content(self) -> bytes:
        if self.page is not None:
            return self.page
        error = f"<Code>{self.code}</Code><Message>{self.message}</Message>{self.inside}"
        ids = f"<RequestId>{REQUEST_ID}</RequestId>"
        return f'<?xml version="1.0"?><Error>{error}{ids}</Error>'.encode()


@dataclass(frozen=True)
class Rule:
    """What befalls the requests whose "METHOD path?query" the pattern is found in: the first
    `times` of them, after the first `after`. None: all."""

    pattern: str
    answer: Answer | None = None
    silent: bool = False  # the server does as it is asked, and the client waits until it gives up
    lost: bool = False  # the connection is reset before the server sees the request
    cut_bytes: int | None = None  # it is reset behind so many bytes of the body; 0: of the answer
    shortened_bytes: int | None = None  # the body ends there as if that were all
    edited: Callable[[bytes], bytes] | None = None
    times: int | None = 1
    after: int = 0


class S3Proxy:
    """`requests` are those that came, as "METHOD path?query"; `faults` counts what was done,
    `read_bytes` what was read of objects, but by presigned URLs."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.requests: list[str] = []
        self.faults = 0
        self.read_bytes = 0
        self._rules: list[Rule] = []
        self._seen: list[int] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.proxy = self  # type: ignore[attr-defined]
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def set(self, *rules: Rule) -> None:
        """From now on these rules hold, and no others."""
        with self._lock:
            self._rules, self._seen = list(rules), [0] * len(rules)
            self.requests, self.faults = [], 0

    def rule_for(self, request: str) -> Rule | None:
        with self._lock:
            self.requests.append(request)
            for index, rule in enumerate(self._rules):
                if re.search(rule.pattern, request) is None:
                    continue
                seen = self._seen[index]
                self._seen[index] += 1
                if seen >= rule.after and (rule.times is None or seen < rule.after + rule.times):
                    self.faults += 1
                    return rule
        return None

    @contextmanager
    def running(self) -> Iterator[S3Proxy]:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # the client went away
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        proxy: S3Proxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rule = proxy.rule_for(f"{self.command} {self.path}")
        if rule is None:
            self._send(*self._forwarded(proxy, body), None)
            return
        if rule.lost:
            self._reset()
        elif rule.silent:
            self._forwarded(proxy, body)
            self.connection.recv(1)  # its end
            self.close_connection = True
        elif rule.answer is not None:
            ids = {} if rule.answer.page is not None else {"x-amz-request-id": REQUEST_ID}
            headers = {**ids, **rule.answer.headers}
            self._send(rule.answer.status, headers, rule.answer.content, rule.cut_bytes)
        else:
            status, headers, content = self._forwarded(proxy, body)
            if rule.edited is not None:
                content = rule.edited(content)
            if rule.shortened_bytes is not None:
                content = content[: rule.shortened_bytes]
            self._send(status, headers, content, rule.cut_bytes)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _forwarded(self, proxy: S3Proxy, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(proxy.upstream, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _NOT_FORWARDED:
                connection.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in _NOT_RETURNED}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length") or "0"
        connection.close()
        named = {name for name, _ in parse_qsl(urlsplit(self.path).query, keep_blank_values=True)}
        if self.command == "GET" and named <= {"versionId"} and answer.status in (200, 206):
            proxy.read_bytes += len(content)
        return answer.status, headers, content

    def _send(
        self, status: int, headers: dict[str, str], content: bytes, cut_bytes: int | None
    ) -> None:
        if cut_bytes == 0:
            self._reset()
            return
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status not in (204, 304) and "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content if cut_bytes is None else content[:cut_bytes])
        if cut_bytes is not None:
            wait_for(lambda: not self._unsent_bytes())  # which a reset would overtake
            self._reset()

    def _unsent_bytes(self) -> int:
        found: tuple[int] = struct.unpack("i", fcntl.ioctl(self.connection, termios.TIOCOUTQ, _INT))
        return found[0]

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()
        self.wfile = _Closed()  # type: ignore[assignment]


class _Closed:
    """What http.server flushes at the end of a request whose connection is gone."""

    closed = True

    def flush(self) -> None: ...

    def close(self) -> None: ...
