"""Between a client and the real coordinator: what networks and restarts do, on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Application = Callable[..., Any]


class ConnectionBroken(Exception):
    """Ends the request without a whole answer; uvicorn then closes the connection."""


@dataclass(frozen=True)
class Refuse:
    """Answer this instead of asking the coordinator."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


PAGE = Refuse(200, {"Content-Type": "text/html"}, b"<html>Sign in</html>")


@dataclass(frozen=True)
class LoseAnswer:
    """Let the coordinator do its work, and break the connection instead of answering."""


@dataclass(frozen=True)
class BreakOff:
    """Break the connection before the coordinator hears of the request."""


@dataclass(frozen=True)
class Hold:
    """Let the request through once the event is set."""

    until: threading.Event


Fault = Refuse | LoseAnswer | BreakOff | Hold


@dataclass
class Rule:
    method: str
    path: str
    fault: Fault
    times: int


class Faults:
    """An ASGI application around another one. It notes every request: (method, path)."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._rules: list[Rule] = []
        self.seen: list[tuple[str, str]] = []

    def on(self, method: str, path: str, fault: Fault, *, times: int = 1) -> None:
        """Have the next requests of this method, with this text in their path, meet a fault."""
        self._rules.append(Rule(method, path, fault, times))

    def end(self) -> None:
        """Have no further fault."""
        self._rules.clear()

    def clear(self) -> None:
        """Have no further fault, and forget what was seen."""
        self.end()
        self.seen.clear()

    def count(self, method: str, path: str) -> int:
        """How many requests of this method had this text in their path."""
        return sum(seen[0] == method and path in seen[1] for seen in self.seen)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        query = scope["query_string"].decode()
        place = scope["path"] + (f"?{query}" if query else "")
        self.seen.append((scope["method"], place))
        await self._play(self._due(scope["method"], place), scope, receive, send)

    def _due(self, method: str, place: str) -> Fault | None:
        for rule in self._rules:
            if rule.times and rule.method == method and rule.path in place:
                rule.times -= 1
                return rule.fault
        return None

    async def _play(self, fault: Fault | None, scope: Message, receive: Any, send: Any) -> None:
        match fault:
            case None:
                await self._application(scope, receive, send)
            case Hold(until):
                import anyio

                await anyio.to_thread.run_sync(until.wait)
                await self._application(scope, receive, send)
            case Refuse(status, headers, body):
                pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                await send({"type": "http.response.start", "status": status, "headers": pairs})
                await send({"type": "http.response.body", "body": body})
            case LoseAnswer():
                await self._application(scope, receive, _unheard)
                await _break(send)
            case BreakOff():
                await _break(send)


async def _unheard(message: Message) -> None:
    """An answer that reaches nobody."""


async def _break(send: Any) -> None:
    headers = [(b"content-length", b"1000"), (b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    raise ConnectionBroken
