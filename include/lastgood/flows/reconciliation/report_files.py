"""A report's files: JSON for programs, HTML for people, CSV of the lines for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lastgood.flows.reconciliation.report import in_order
from lastgood.reports import html

_CSV_COLUMNS = (
    *("project", "store", "report", "window_start", "window_end"),
    *("scope", "line", "bytes", "objects"),
)


def as_json(document: Mapping[str, Any]) -> str:
    """The JSON file: what failed first stands first, and the same report gives the same bytes."""
    return json.dumps(in_order(document), indent=2) + "\n"


def as_csv(document: Mapping[str, Any]) -> str:
    """The lines of both equations, the project's (`scope` project) and the whole store's (`store`),
    with their totals and adjustments, one a row (RFC 4180)."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_COLUMNS)
    writer.writeheader()
    where = {
        "project": document["project"],
        "store": document["store"]["name"],
        "report": document["report"],
        "window_start": document["window"]["start"],
        "window_end": document["window"]["end"],
    }
    for scope, equation in (("project", "equation"), ("store", "store_equation")):
        for line, size_bytes, objects in _lines(document[equation]):
            row = {"scope": scope, "line": line, "bytes": size_bytes, "objects": objects}
            writer.writerow(where | row)
    return text.getvalue()


def _lines(equation: Mapping[str, Any]) -> Iterator[tuple[str, int, int | str]]:
    for line, size_bytes in equation["lines"].items():
        yield line, size_bytes, equation["keys"][line]
    yield "sum of the lines", equation["sum_bytes"], ""
    for adjustment, size_bytes in equation["adjustments"].items():
        yield f"adjustment {adjustment}", size_bytes, ""
    yield "backend's own total", equation["backend_bytes"], ""
    yield "difference", equation["difference_bytes"], ""


def write_files(document: Mapping[str, Any], report_dir: Path) -> dict[str, Path]:
    """Write a report's files below `report_dir`, each whole or not at all; answers their paths by
    `json`, `html` and `csv`. Writing the same report again replaces them with the same bytes."""
    folder = report_dir / str(document["project"]) / str(document["store"]["name"])
    folder.mkdir(parents=True, exist_ok=True)
    day = str(document["window"]["end"])[:10]
    stem = folder / f"{day}-{document['report']}"
    contents = {
        "json": as_json(document),
        "html": html.render(document),
        "csv": as_csv(document),
    }
    paths = {kind: stem.with_suffix(f".{kind}") for kind in contents}
    for kind, content in contents.items():
        draft = paths[kind].with_name(f".{paths[kind].name}.{os.getpid()}")
        try:
            draft.write_text(content, encoding="utf-8", newline="")
            draft.replace(paths[kind])
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    return paths
