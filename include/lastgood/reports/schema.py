"""The published JSON Schema of a report's document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("report.schema.json")


@cache
def text() -> str:
    """The schema as it is published (JSON Schema, draft 2020-12)."""
    return PATH.read_text(encoding="utf-8")


def document() -> dict[str, Any]:
    """The schema, parsed."""
    parsed: dict[str, Any] = json.loads(text())
    return parsed
