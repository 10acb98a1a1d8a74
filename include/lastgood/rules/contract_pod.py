"""Where a contract of the executor `kubernetes` runs: one pod, whose command starts its ranks.

What a pod cannot be held to is not asked of it: a contract for pods names no folders, no variables
and no processes of a worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from lastgood.rules.document import Node
from lastgood.rules.quantities import read_duration

FETCH, COMMAND = "fetch", "base"  # the containers of a pod
DRILL = "lastgood-drill"
"""The label that a pod of the same copy has: what an earlier, killed drill left is found by it."""
PYTHON = "python3"
_STARTUP = timedelta(minutes=10)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, as namespaces are
_RESOURCE = re.compile(r"[a-z0-9A-Z][a-z0-9A-Z./_-]{0,100}")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_OURS = ("memory", "ephemeral-storage")
_OF_A_WORKER = ("environment", "reads", "processes")


@dataclass(frozen=True, slots=True)
class Pod:
    """`image` runs the command, `fetch_image` fetches the checkpoint before: it has lastgood's
    client. `startup` is how long scheduling, and then starting, may take. `coordinator` is the URL
    by which the pod reaches lastgood; None: the worker's own. `resources` are what the command asks
    for beside memory and disk, which are the contract's."""

    image: str
    fetch_image: str
    python: str = PYTHON
    template: str | None = None
    namespace: str | None = None
    connection: str | None = None
    coordinator: str | None = None
    startup: timedelta = _STARTUP
    resources: Mapping[str, str] = field(default_factory=dict)


_OPTIONAL = (
    "fetch_image", "python", "template", "namespace", "connection", "coordinator", "startup",
    "resources",
)  # fmt: skip


def parse_pod(node: Node) -> Pod:
    """Read the section `pod`. Raises the document's own error."""
    read = node.fields(("image",), _OPTIONAL)

    def text(key: str, default: str | None = None) -> str | None:
        return read[key].text() if key in read else default

    image = read["image"].text()
    return Pod(
        image=image,
        fetch_image=text("fetch_image") or image,
        python=text("python") or PYTHON,
        template=text("template"),
        namespace=_matching(read["namespace"], _LABEL) if "namespace" in read else None,
        connection=text("connection"),
        coordinator=_url(read["coordinator"]) if "coordinator" in read else None,
        startup=read_duration(read["startup"]) if "startup" in read else _STARTUP,
        resources=_resources(read["resources"]) if "resources" in read else {},
    )


def require_no_worker(read: Mapping[str, Node], command: tuple[str, ...]) -> None:
    """Raises the document's error for what only a worker has."""
    for key in _OF_A_WORKER:
        if key in read:
            raise read[key].error(f"a pod has no {key} of a worker; its template brings its own")
    if any("{checkout}" in word for word in command):
        raise read["command"].error("{checkout} is a worker's; name the file of the image")


def _resources(node: Node) -> dict[str, str]:
    found = {}
    for name, one in node.members():
        if name in _OURS or not _RESOURCE.fullmatch(name):
            raise one.error(f"give a resource that is none of {', '.join(_OURS)}")
        found[name] = _matching(one, _QUANTITY)
    return found


def _matching(node: Node, pattern: re.Pattern[str]) -> str:
    text = str(node.scalar())
    if not pattern.fullmatch(text):
        raise node.error(f"{text[:40]!r} is not {pattern.pattern}")
    return text


def _url(node: Node) -> str:
    text = node.text()
    if not text.startswith(("https://", "http://")):
        raise node.error("give a URL that begins with https:// (http:// on one machine)")
    return text
