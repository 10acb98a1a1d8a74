"""A stand-in for a Kubernetes cluster: the API by which pods are made, watched and deleted, and a
kubelet that runs each container's command as a real process of this machine.

It speaks what the pod operator asks: create, read, list by labels, patch, delete, log, events. Like
a kubelet it fills `$(NAME)` in commands, runs the init containers first, holds memory limits, and
keeps what a container wrote to its termination message. A deadline passes when the test says so.
Paths of a container are put below a folder of the pod; images are not looked at, but for those that
the test says cannot be pulled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

_PODS = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/log)?")
_EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_MESSAGE_BYTES = 4096
_LOOK_SECONDS = 0.02


@dataclass
class Pod:
    """One pod with what its kubelet knows."""

    document: dict[str, Any]
    folder: Path
    logs: dict[str, bytes] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    expired: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        name: str = self.document["metadata"]["name"]
        return name

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.document["status"]
        return status

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)


class Cluster:
    """The cluster. `has_room`: a node takes pods. `unpullable` are images. `made` are all pods that
    ever were, as they were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: dict[tuple[str, str], Pod] = {}
        self.made: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.has_room = True
        self.unpullable: set[str] = set()
        self.when_running: Callable[[Pod], None] = lambda pod: None
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kubeconfig(self) -> dict[str, Any]:
        """How a client reaches it."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "worker"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for pod in list(self.pods.values()):
            self.end(pod)

    def end(self, pod: Pod) -> None:
        """The pod is deleted: its processes die, and it is no more."""
        with self._lock:
            self.pods.pop((pod.document["metadata"]["namespace"], pod.name), None)
            self.deleted.append(pod.name)
        pod.gone.set()
        pod.kill()

    def evict(self, pod: Pod, message: str) -> None:
        """What a node does that runs out of something."""
        pod.status.update(phase="Failed", reason="Evicted", message=message)
        pod.kill()

    def expire(self, pod: Pod) -> None:
        """The pod's deadline passes now."""
        pod.expired.set()

    # --- the API --------------------------------------------------------------------------------

    def answer(self, method: str, url: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if _EVENTS.fullmatch(parts.path):
            return 200, {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []}
        found = _PODS.fullmatch(parts.path)
        if found is None:
            return 404, _failure(404, parts.path)
        namespace, name, log = found.groups()
        with self._lock:
            if name is None:
                return self._all(method, namespace, query, body)
            pod = self.pods.get((namespace, name))
            if pod is None:
                return 404, _failure(404, f'pods "{name}" not found')
            if log:
                return 200, _tail(pod.logs.get(query["container"], b""), query)
            if method == "PATCH":
                assert body is not None
                pod.document["metadata"]["labels"].update(body["metadata"]["labels"])
            if method == "DELETE":
                self.end(pod)
            return 200, pod.document

    def _all(
        self, method: str, namespace: str, query: dict[str, str], body: dict[str, Any] | None
    ) -> tuple[int, Any]:
        if method == "GET":
            items = [
                pod.document
                for (where, _), pod in self.pods.items()
                if where == namespace
                and _selected(pod.document["metadata"]["labels"], query.get("labelSelector", ""))
            ]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        assert body is not None
        name = body["metadata"]["name"]
        body["metadata"].update(namespace=namespace, uid=name, creationTimestamp=_now())
        body["status"] = {"phase": "Pending", "startTime": None}
        self.made.append(json.loads(json.dumps(body)))
        pod = Pod(body, self.folder / name)
        self.pods[namespace, name] = pod
        threading.Thread(target=self._kubelet, args=(pod,), daemon=True).start()
        return 201, body

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                cluster.asked.append((self.command, self.path))
                status, answer = cluster.answer(self.command, self.path, body)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                kind = "text/plain" if isinstance(answer, bytes) else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler

    # --- the kubelet ----------------------------------------------------------------------------

    def _kubelet(self, pod: Pod) -> None:
        spec, status = pod.document["spec"], pod.status
        while not self.has_room:
            status["conditions"] = [_scheduled("False", "Unschedulable", "0/3 nodes are available")]
            if pod.gone.wait(_LOOK_SECONDS):
                return
        status.update(conditions=[_scheduled("True", "", "")], startTime=_now())
        spec["nodeName"] = "node-1"
        pod.folder.mkdir()
        groups = {"initContainerStatuses": "initContainers", "containerStatuses": "containers"}
        for told, listed in groups.items():
            status[told] = [_waiting(one["name"], "PodInitializing") for one in spec[listed]]
        for told, listed in groups.items():
            for place, container in enumerate(spec[listed]):
                if container["image"] in self.unpullable:
                    reason = "ErrImagePull"
                    status[told][place] = _waiting(container["name"], reason, "no such image")
                    pod.gone.wait()
                    return
                code = self._run(pod, container, status[told], place)
                if code != 0:
                    return

    def _run(
        self, pod: Pod, container: dict[str, Any], statuses: list[Any], place: int
    ) -> int | None:
        """The exit code; None if the pod is no more."""
        name, message = container["name"], pod.folder / f"message-{container['name']}"
        message.touch()
        paths = {"/dev/termination-log": str(message)}
        for mount in container["volumeMounts"]:
            paths[mount["mountPath"]] = str(pod.folder / mount["name"])
            (pod.folder / mount["name"]).mkdir(exist_ok=True)
        environment = {one["name"]: one["value"] for one in container.get("env", ())}
        environment = {key: _filled(value, {}) for key, value in environment.items()}
        words = [_here(_filled(word, environment), paths) for word in container["command"]]
        began = _now()
        with (pod.folder / f"log-{name}").open("wb") as log:
            try:
                pod.process = subprocess.Popen(
                    [sys.executable if words[0] == "python3" else words[0], *words[1:]],
                    stdout=log,
                    stderr=log,
                    cwd=_here(container.get("workingDir", str(pod.folder)), paths),
                    env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
                    | {key: _here(value, paths) for key, value in environment.items()},
                    start_new_session=True,
                )
            except OSError as error:
                failed = _terminated(128, "StartError", began, str(error))
                pod.status["phase"] = "Failed"
                statuses[place] = _container(name, failed)
                return 128
            statuses[place] = _container(name, {"running": {"startedAt": began}})
            pod.status["phase"] = "Running" if place or name == "base" else "Pending"
            if name == "base":
                threading.Thread(target=self.when_running, args=(pod,), daemon=True).start()
            killed = self._watch(pod, container)
        pod.logs[name] = (pod.folder / f"log-{name}").read_bytes()
        code = pod.process.wait()
        if pod.gone.is_set():
            shutil.rmtree(pod.folder, ignore_errors=True)
            return None
        if killed == "DeadlineExceeded":
            pod.status.update(phase="Failed", reason=killed, message="Pod was active too long")
        said = message.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        code = 128 - code if code < 0 else code
        reason = killed if killed == "OOMKilled" else ("Completed" if code == 0 else "Error")
        if code != 0 or name == "base":  # first, or the operator sleeps before it looks again
            pod.status["phase"] = "Succeeded" if code == 0 else "Failed"
        statuses[place] = _container(name, _terminated(code, reason, began, said))
        return code

    def _watch(self, pod: Pod, container: dict[str, Any]) -> str | None:
        """Wait for the end; what the kubelet killed it for, if it did."""
        process, killed = pod.process, None
        assert process is not None
        most = int(container["resources"]["limits"]["memory"])
        while process.poll() is None:
            if _memory_bytes(process.pid) > most:
                killed = "OOMKilled"
            elif pod.expired.is_set():
                killed = "DeadlineExceeded"
            if killed or pod.gone.is_set():
                pod.kill()
            time.sleep(_LOOK_SECONDS)
        return killed


def _memory_bytes(process: int) -> int:
    try:
        used: int = psutil.Process(process).memory_info().rss
    except psutil.Error:
        return 0
    return used


def _filled(word: str, environment: dict[str, str]) -> str:
    """`$(NAME)` is filled if the name is known, and `$$` is a `$`, as in Kubernetes."""

    def one(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else environment.get(found[1], found[0])

    return _REFERENCE.sub(one, word)


def _here(word: str, paths: dict[str, str]) -> str:
    for path, here in paths.items():
        word = word.replace(path, here)
    return word


def _selected(labels: dict[str, str], selector: str) -> bool:
    for one in filter(None, selector.split(",")):
        key, differs, value = one.partition("!=")
        if differs:
            matches = labels.get(key) != value
        elif one.startswith("!"):
            matches = one[1:] not in labels
        else:
            key, _, value = one.partition("=")
            matches = labels.get(key) == value
        if not matches:
            return False
    return True


def _tail(log: bytes, query: dict[str, str]) -> bytes:
    lines = log.splitlines(keepends=True)
    if "tailLines" in query:
        lines = lines[-int(query["tailLines"]) :]
    return b"".join(lines)[: int(query.get("limitBytes", 1 << 30))]


def _scheduled(status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": "PodScheduled", "status": status, "reason": reason, "message": message}


def _waiting(name: str, reason: str, message: str = "") -> dict[str, Any]:
    return _container(name, {"waiting": {"reason": reason, "message": message}})


def _container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    told = {"image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    return {"name": name, "state": state, **told}


def _terminated(code: int, reason: str, began: str, message: str) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": began,
            "finishedAt": _now(),
            "message": message or None,
        }
    }


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code} | {
        "message": message,
        "reason": "NotFound" if code == 404 else "InternalError",
    }


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
