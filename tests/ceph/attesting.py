"""An S3 server that checks additional checksums, which Ceph 16 ignores: a proxy before Ceph that
does as S3's documentation says. A wrong SHA-256 is refused; those of the parts are kept until the
completion, which has to name them; what is read back of an upload is the SHA-256 over those of the
parts, with their number."""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HEADER = "x-amz-checksum-sha256"
_NOT_FORWARDED = ("expect", "connection", "content-length", "transfer-encoding")


class AttestingServer:
    """`reads` counts the bytes of objects that were sent to clients, `requests` what was asked."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.uploads: dict[str, dict[int, str]] = {}
        self.objects: dict[str, tuple[str, str]] = {}  # digest and type, by path and version
        self.requests: list[str] = []
        self.read_bytes = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.attesting = self  # type: ignore[attr-defined]
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[AttestingServer]:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._handle()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _handle(self) -> None:
        server: AttestingServer = self.server.attesting  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        asked = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.requests.append(f"{self.command} {self.headers.get('Range') or ''}".strip())
        upload = asked.get("uploadId")
        refusal = self._refusal(server, upload, asked, body)
        if refusal is not None:
            self._answer(400, {}, f"<Error><Code>{refusal}</Code></Error>".encode())
            return
        status, headers, content = self._forwarded(server, body)
        if status in (200, 206):
            content = self._noted(server, url.path, upload, asked, body, headers, content)
        self._answer(status, headers, content)

    def _refusal(
        self, server: AttestingServer, upload: str | None, asked: dict[str, str], body: bytes
    ) -> str | None:
        told = self.headers.get(HEADER)
        if told is not None and told != _digest(body):
            return "BadDigest"
        parts = server.uploads.get(upload or "")
        if parts is None:
            return None
        if self.command == "PUT" and "partNumber" in asked and told is None:
            return "InvalidRequest"
        if self.command == "POST":
            named = re.findall(rb"<ChecksumSHA256>([^<]+)</ChecksumSHA256>", body)
            if [one.decode() for one in named] != [parts[n] for n in sorted(parts)]:
                return "InvalidPart"
        return None

    def _forwarded(self, server: AttestingServer, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(server.upstream, timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_FORWARDED}
        if body or self.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        told = {k: v for k, v in answer.getheaders() if k.lower() != "transfer-encoding"}
        connection.close()
        return answer.status, told, content

    def _noted(
        self,
        server: AttestingServer,
        path: str,
        upload: str | None,
        asked: dict[str, str],
        body: bytes,
        headers: dict[str, str],
        content: bytes,
    ) -> bytes:
        told = self.headers.get(HEADER)
        version = headers.get("x-amz-version-id", "")
        if self.command == "POST" and "uploads" in asked:
            if self.headers.get("x-amz-checksum-algorithm") == "SHA256":
                begun = re.search(rb"<UploadId>([^<]+)</UploadId>", content)
                assert begun is not None
                server.uploads[begun[1].decode()] = {}
        elif upload in server.uploads:
            return self._of_upload(server, path, upload, asked, told, version, content)
        elif self.command == "PUT" and not asked:
            for key in (path, f"{path} {version}"):
                server.objects.pop(key, None)
                if told is not None:
                    server.objects[key] = (told, "FULL_OBJECT")
        elif self.command in ("GET", "HEAD") and set(asked) <= {"versionId"}:
            server.read_bytes += len(content)
            kept = server.objects.get(f"{path} {version}" if version else path)
            if kept is not None and self.headers.get("x-amz-checksum-mode") == "ENABLED":
                headers[HEADER], headers["x-amz-checksum-type"] = kept
        return content

    def _of_upload(
        self,
        server: AttestingServer,
        path: str,
        upload: str,
        asked: dict[str, str],
        told: str | None,
        version: str,
        content: bytes,
    ) -> bytes:
        parts = server.uploads[upload]
        if self.command == "PUT" and told is not None:
            parts[int(asked["partNumber"])] = told
        elif self.command == "POST":
            joined = b"".join(base64.b64decode(parts[number]) for number in sorted(parts))
            kept = (f"{_digest(joined)}-{len(parts)}", "COMPOSITE")
            server.objects[path] = server.objects[f"{path} {version}"] = kept
            del server.uploads[upload]
        elif self.command == "GET":
            for number, digest in parts.items():
                part = f"<PartNumber>{number}</PartNumber>"
                proven = f"{part}<ChecksumSHA256>{digest}</ChecksumSHA256>"
                content = content.replace(part.encode(), proven.encode())
        return content

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        length = headers.pop("Content-Length", headers.pop("content-length", None))
        for name, value in headers.items():
            if name.lower() != "connection":
                self.send_header(name, value)
        if self.command == "HEAD" and length is not None:
            self.send_header("Content-Length", length)
        elif status not in (204, 304):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
