"""The end of the demo: for people as tables, for programs as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lastgood.reports.words import human_bytes, line_name
from lastgood.stack.airflow import write_passwords
from lastgood.stack.demo.screen import Screen
from lastgood.stack.layout import StackLayout
from lastgood.stack.secrets import write_private


def show_report(console: Console, report: Mapping[str, Any]) -> None:
    """The counts and the byte equation of a report."""
    document = report["document"]
    counts = Table("state", "number", "bytes", title="Counts", title_justify="left")
    for state, number in document["counts"].items():
        counts.add_row(state, str(number), f"{document['bytes'][state]:,}")
    equation = document["store_equation"]
    lines = Table("line", "bytes", "", title="Byte equation", title_justify="left")
    for line, size in equation["lines"].items():
        if size:
            lines.add_row(line_name(line), f"{size:,}", human_bytes(size))
    lines.add_section()
    lines.add_row("sum", f"{equation['sum_bytes']:,}", human_bytes(equation["sum_bytes"]))
    lines.add_row("backend", f"{equation['backend_bytes']:,}", f"by {equation['how']}")
    lines.add_row("difference", f"{equation['difference_bytes']:,}", "")
    for table in (counts, lines):
        for column in table.columns[1:2]:
            column.justify = "right"
        console.print(table)


def show_end(screen: Screen, layout: StackLayout, url: str | None, html: str | None) -> None:
    """The verdict, and the ways on from here."""
    console = screen.console
    held, total = len(screen.expectations) - len(screen.failed), len(screen.expectations)
    console.print(f"\n{held} of {total} expectations held, after {screen.seconds:.0f} s")
    for one in screen.failed:
        console.print(
            f"[bold red]FAILED[/]  {escape(one.claim)} — {escape(one.seen)}", soft_wrap=True
        )
    if html is not None:
        console.print(f"Report   {html}", soft_wrap=True)
    if url is not None:
        password = write_passwords(layout)["admin"]
        console.print(f"Airflow  {url}  login admin / {password}", soft_wrap=True)
        console.print(f"         lastgood's pages: {url}/lastgood/pages/", soft_wrap=True)
        stop = "make stop STORE=s3" if layout.on_s3 else "make stop"
        console.print(f"Stop     {stop}", soft_wrap=True)


def write_result(
    path: Path, screen: Screen, url: str | None, workload: str | None, report: Mapping[str, Any]
) -> None:
    """Replace a JSON file by what happened."""
    result = {
        "passed": bool(screen.expectations) and not screen.failed,
        "seconds": round(screen.seconds, 1),
        "url": url,
        "workload": workload,
        "report": {
            "id": report.get("report_id"),
            "html": report.get("html"),
            "json": report.get("json"),
        },
        "counts": report.get("document", {}).get("counts"),
        "steps": [{"title": one.title, "seconds": round(one.seconds, 2)} for one in screen.steps],
        "expectations": [
            {"claim": one.claim, "held": one.held, "seen": one.seen} for one in screen.expectations
        ],
    }
    write_private(path, json.dumps(result, indent=2) + "\n")
