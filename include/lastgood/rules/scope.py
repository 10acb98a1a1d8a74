"""A part of a project: all of it, one workload, or one stage."""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.errors import InvalidInput
from lastgood.rules.names import check_name, shown


@dataclass(frozen=True, slots=True)
class Scope:
    """`vision`, `vision/gpt` or `vision/gpt/pretrain`. The constructor trusts its names."""

    project: str
    workload: str | None = None
    stage: str | None = None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read it from its text. Raises InvalidInput or InvalidName."""
        parts = text.split("/")
        if len(parts) > 3:
            raise InvalidInput(
                where="scope",
                reason=f"{shown(text)!r} is no project, project/workload or project/workload/stage",
            )
        kinds = ("project", "workload", "stage")
        return cls(*[check_name(part, kind) for part, kind in zip(parts, kinds, strict=False)])

    def __str__(self) -> str:
        return "/".join(part for part in (self.project, self.workload, self.stage) if part)
