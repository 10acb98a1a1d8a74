"""Connections that carry object bytes: kept while they are of use, and heard to the end."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lastgood.errors import LastgoodError
from lastgood.runner import RemoteProblem
from lastgood.runner.wire.carrying import ThroughHttpx, get_bytes, put_bytes
from lastgood.runner.wire.connections import Connections
from lastgood.runner.working.retry import Transient
from lastgood.stack.ports import LOOPBACK
from tests.waiting import wait_for

CONTENT = bytes(range(256)) * 4_000
REFUSED = b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        length = None if "chunked" in self.path else len(CONTENT)
        self._head(200, length)
        if length is None:
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONTENT), CONTENT))
            return
        if "silent" in self.path:
            self.wfile.write(CONTENT[:500_000])
            self.server.over.wait(60)
            return
        self.wfile.write(CONTENT[:1000] if "broken" in self.path else CONTENT)
        self.close_connection = any(word in self.path for word in ("broken", "closes"))

    def do_PUT(self) -> None:
        if "unheard" in self.path:
            self._head(403, len(REFUSED))
            self.wfile.write(REFUSED)
            self.close_connection = True
            return
        got = self.rfile.read(int(self.headers["Content-Length"]))
        self._head(200 if got == CONTENT else 400, 0)

    def _head(self, status: int, length: int | None) -> None:
        self.send_response_only(status)
        self.send_header("x-amz-request-id", "tx-1")
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    connections = 0
    ended = 0

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.asked: list[str] = []
        self.over = threading.Event()
        self.url = f"http://{LOOPBACK}:{self.server_port}"

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.ended += 1

    def handle_error(self, *_: object) -> None: ...


@contextmanager
def serving() -> Iterator[_Server]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[_Server]:
    with serving() as server:
        yield server


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    # Whether one is used again must not depend on how soon a busy machine asks again.
    monkeypatch.setattr("lastgood.runner.wire.connections.IDLE_LIMIT", datetime.timedelta(hours=1))
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(500))) as client:
        connections = Connections(ThroughHttpx(client))
        yield connections
        connections.close()


def get(connections: Connections, url: str) -> bytes:
    buffer = memoryview(bytearray(64 << 10))
    with get_bytes(connections, url, {}) as body:
        return b"".join(bytes(chunk) for chunk in body.chunks(buffer))


def put(connections: Connections, url: str, content: bytes = CONTENT) -> httpx.Response:
    chunks = (memoryview(content)[at : at + 100_000] for at in range(0, len(content), 100_000))
    return put_bytes(connections, url, {}, len(content), chunks)


def test_one_connection_carries_one_request_after_another(
    connections: Connections, server: _Server
) -> None:
    for path in ("/whole", "/chunked", "/whole"):
        assert get(connections, server.url + path) == CONTENT
        assert put(connections, f"{server.url}/k?X-Amz-Signature=a%2Fb").status_code == 200
    assert server.connections == 1
    assert server.asked == ["/whole", "/chunked", "/whole"]


def test_one_that_the_other_end_closed_is_not_used_again(
    connections: Connections, server: _Server
) -> None:
    for number in range(1, 4):
        assert get(connections, f"{server.url}/closes") == CONTENT
        wait_for(lambda ended=number: server.ended == ended)
    assert server.connections == 3


def test_one_whose_answer_was_not_read_to_its_end_is_not_used_again(
    connections: Connections, server: _Server
) -> None:
    buffer = memoryview(bytearray(1000))
    with get_bytes(connections, f"{server.url}/whole", {}) as body:
        assert next(body.chunks(buffer)) == CONTENT[:1000]
    with pytest.raises(OSError, match="disk is full"), get_bytes(connections, server.url, {}):
        raise OSError("the disk is full")  # of the caller, and not of the connection
    assert get(connections, server.url) == CONTENT
    assert server.connections == 3


def test_an_answer_that_breaks_off_may_be_asked_for_again(
    connections: Connections, server: _Server
) -> None:
    with pytest.raises(Transient, match="IncompleteRead"):
        get(connections, f"{server.url}/broken?X-Amz-Signature=secret")


def test_silence_in_the_middle_of_an_answer_ends(
    monkeypatch: pytest.MonkeyPatch, connections: Connections, server: _Server
) -> None:
    monkeypatch.setattr(
        "lastgood.runner.wire.connections.SILENCE_TIMEOUT", datetime.timedelta(milliseconds=100)
    )
    with pytest.raises(Transient, match="does not answer: TimeoutError: timed out"):
        get(connections, f"{server.url}/silent")


def test_a_refusal_in_the_middle_of_the_sending_is_heard(
    connections: Connections, server: _Server
) -> None:
    with pytest.raises(RemoteProblem, match=r"403, AccessDenied: not you \(request tx-1\)") as said:
        put(connections, f"{server.url}/unheard?X-Amz-Signature=secret", bytes(16 << 20))
    assert "secret" not in str(said.value)


def test_a_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Connections, server: _Server
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")

    with pytest.raises(Transient, match="CERTIFICATE_VERIFY_FAILED"):
        get(connections, url)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(500))) as client:
        trusting = Connections(ThroughHttpx(client))
        assert get(trusting, url) == CONTENT
        assert put(trusting, url).status_code == 200
        trusting.close()


def test_a_proxy_of_the_environment_is_gone_through(
    monkeypatch: pytest.MonkeyPatch, server: _Server
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    with httpx.Client() as client:
        connections = Connections(ThroughHttpx(client))
        assert get(connections, "http://s3.example/bucket/key") == CONTENT
        assert put(connections, "http://s3.example/bucket/key").status_code == 200
        connections.close()
    assert server.asked == ["http://s3.example/bucket/key"]


def test_whoever_does_not_answer_is_named(connections: Connections) -> None:
    with pytest.raises(Transient) as failure:
        get(connections, f"http://{LOOPBACK}:1/bucket/key?X-Amz-Signature=secret")
    error: LastgoodError = failure.value.error
    assert f"http://{LOOPBACK}:1/bucket/key does not answer: ConnectionRefusedError" in str(error)
    assert "secret" not in str(error)


def write_certificate(file: Path) -> Path:
    """A certificate of its own for the loopback address, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), False
        )
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(encoding))
    return file
