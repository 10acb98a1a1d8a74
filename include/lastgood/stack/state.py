"""What a stack says about itself in `stack.json`, for whoever looks from outside."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lastgood.stack.airflow import Addresses
from lastgood.stack.processes import ProcessIdentity
from lastgood.stack.secrets import write_private

Phase = Literal["starting", "ready", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class StackState:
    """One moment of a stack. `doing` says in words what it does or why it failed."""

    phase: Phase
    doing: str
    supervisor: ProcessIdentity
    seconds_since_start: float = 0.0
    addresses: Addresses | None = None
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_supervised(self) -> bool:
        """Tell whether the supervisor that wrote this still lives."""
        return self.supervisor.is_alive()

    def write(self, path: Path) -> None:
        """Replace the file at once; it holds database passwords, so only we read it."""
        write_private(path, json.dumps(dataclasses.asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> StackState | None:
        """Return what the file says; None when there is no file, or one that is not whole."""
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            return cls(
                phase=content["phase"],
                doing=content["doing"],
                supervisor=ProcessIdentity(**content["supervisor"]),
                seconds_since_start=content["seconds_since_start"],
                addresses=Addresses(**content["addresses"]) if content["addresses"] else None,
                processes={
                    name: ProcessIdentity(**identity)
                    for name, identity in content["processes"].items()
                },
                restarts=content["restarts"],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
