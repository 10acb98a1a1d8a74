"""A report as one HTML file that stands alone: no script, no font, no image from anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lastgood.reports import charts, words
from lastgood.rules.byte_equation import Line

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(*folders: Path) -> Environment:
    """Templates of these folders and of the reports, with what they may call."""
    made = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        human=words.human_bytes,
        exact=words.exact,
        figure=words.figure,
        instant=words.instant,
        lasting=words.lasting,
        line_name=words.line_name,
        line_note=words.line_note,
        cause_note=words.cause_note,
        adjustment_note=words.adjustment_note,
    )
    made.globals.update(
        lines_in_order=[line.value for line in Line],
        share=words.share,
        equation_bar=charts.equation_bar,
        capacity_bar=charts.capacity_bar,
        trend_columns=charts.trend_columns,
        check_strip=charts.check_strip,
        outlook=words.outlook,
    )
    return made


def _shown(value: Any) -> Any:
    """What every `{{ … }}` shows: markup is our own, text may be anybody's."""
    return words.visible(value) if type(value) is str else value


@cache
def style() -> Markup:
    """The style sheet of reports and pages."""
    return Markup((TEMPLATES / "style.css").read_text(encoding="utf-8"))


def render(document: Mapping[str, Any]) -> str:
    """The HTML of a report's document."""
    return environment().get_template("report.html").render(report=document, style=style())
