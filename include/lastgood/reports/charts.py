"""Small charts as inline SVG. Shapes only: the numbers stand as text beside them, and each shape
has its own as a tooltip. Colours are classes, so that light, dark and print decide them in one
place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from lastgood.reports.words import human_bytes, line_name
from lastgood.rules.byte_equation import Line

_WIDTH = 1000.0
_LEAST = 6.0  # a line that is not empty is never invisible
_GAP = 2.0
_FAR = 20
_LOW = ("quarantined", "deleting", "deleted", "lost", "leaving")

Span = tuple[datetime, datetime]


def equation_bar(lines: Mapping[str, int], label: str) -> Markup:
    """All lines of a byte equation side by side, as wide as their share of the store."""
    shown = {line.value: lines[line.value] for line in Line if lines.get(line.value, 0) > 0}
    if not shown:
        return _svg(36, label, [_rect("track", 0, 4, _WIDTH, 28, "nothing is stored")])
    shapes, x = [], 0.0
    for name, width in zip(shown, _widths(list(shown.values())), strict=True):
        text = f"{line_name(name)}: {human_bytes(shown[name])} ({shown[name]:,} bytes)"
        shapes.append(_rect(f"line-{name}", x, 4, width, 28, text))
        if name == "unexplained":
            shapes.append(_rect("hatch", x, 4, width, 28, text))
        x += width + _GAP
    return _svg(36, label, shapes, hatched="unexplained" in shown)


def _widths(sizes: Sequence[int]) -> list[float]:
    """Widths in proportion, none below the least, all together the whole width."""
    room = _WIDTH - _GAP * (len(sizes) - 1)
    total = sum(sizes)
    widths = [max(_LEAST, room * size / total) for size in sizes]
    excess = sum(widths) - room
    large = sum(width for width in widths if width > _LEAST * 2) or 1
    return [width - excess * width / large if width > _LEAST * 2 else width for width in widths]


def capacity_bar(capacity: Mapping[str, Any], label: str) -> Markup:
    """What is used, and what attempts under way will add, against soft, hard and the whole."""
    used, coming = capacity["usage_bytes"], capacity["in_flight_bytes"]
    soft, hard, total = (capacity[f"{name}_bytes"] for name in ("soft", "hard", "total"))
    near = max(hard or 0, soft or 0, used + coming, 1)
    whole = max(total or 0, near)
    if whole > _FAR * near:  # a whole so large that all else would be one line
        whole = near * 5 // 4
    scale = _WIDTH / whole
    shapes = [_rect("track", 0, 10, _WIDTH, 20, f"total: {human_bytes(total)}")]
    if used:
        width = max(_LEAST, used * scale)
        shapes.append(
            _rect(f"used-{capacity['state']}", 0, 10, width, 20, f"used: {human_bytes(used)}")
        )
    if coming:
        x = max(_LEAST, used * scale) + _GAP
        text = f"under way: {human_bytes(coming)}"
        shapes.append(_rect("coming", x, 10, max(_LEAST, coming * scale), 20, text))
    for name, mark in (("soft", soft), ("hard", hard)):
        if mark is not None:
            x = min(mark * scale, _WIDTH - 2)
            shapes.append(_rect(f"mark-{name}", x - 1, 2, 3, 36, f"{name}: {human_bytes(mark)}"))
    return _svg(40, label, shapes)


def trend_columns(points: Sequence[Mapping[str, Any]], label: str) -> Markup:
    """One column for each day, its lines one upon the other; as tall as the most of all days."""
    sums = [sum(max(0, size) for size in point["lines"].values()) for point in points]
    most = max(sums, default=0) or 1
    step = min(_WIDTH / max(len(points), 1), 64.0)
    height = 148.0
    shapes = [_rect("base", 0, height + 3, _WIDTH, 1, "")]
    for index, (point, total) in enumerate(zip(points, sums, strict=True)):
        day = f"{str(point['at'])[:10]}: {human_bytes(total)}"
        x, width, below = index * step, max(step - 4, 2.0), height + 2
        for line in Line:
            size = point["lines"].get(line.value, 0)
            if size <= 0:
                continue
            tall = max(1.0, height * size / most)
            below -= tall
            text = f"{day}, {line_name(line.value)} {human_bytes(size)}"
            shapes.append(_rect(f"line-{line.value}", x, max(0.0, below), width, tall, text))
    return _svg(152, label, shapes)


def check_strip(past: Sequence[Mapping[str, Any]], severity: str, label: str) -> Markup:
    """What a check said in the last reports, the oldest left: low and pale where it passed, tall
    and dark where it failed, so that colour is not needed to tell."""
    step, height, room = 8.0, 20.0, 30
    shapes = []
    for index, one in enumerate(past[-room:]):
        x = (room - min(len(past), room) + index) * step
        word = "passed" if one["passed"] else "failed"
        kind = "check-passed" if one["passed"] else f"check-failed-{severity}"
        tall = 7.0 if one["passed"] else height
        text = f"{str(one['at'])[:10]}: {word}"
        shapes.append(_rect(kind, x, height - tall, step - 2, tall, text))
    return _svg(int(height), label, shapes, width=room * step, kind="chart strip")


def lane(points: Sequence[tuple[datetime, str, str]], span: Span, label: str) -> Markup:
    """Marks along a span of time: each an instant, a kind, and a text. A low one is less: it is
    only still there, or on its way out."""
    begin, end = span
    width, height = 8.0, 18.0
    scale = (_WIDTH - width) / ((end - begin).total_seconds() or 1.0)
    shapes = [_rect("base", 0, height - 1, _WIDTH, 1, "")]
    for at, kind, text in points:
        x = (at - begin).total_seconds() * scale if end > begin else _WIDTH - width
        tall = height - 9 if kind.endswith(_LOW) else height - 1
        shapes.append(_rect(f"at-{kind}", x, height - 1 - tall, width, tall, text))
    return _svg(int(height), label, shapes, kind="chart lane")


def _rect(kind: str, x: float, y: float, width: float, height: float, title: str) -> Markup:
    radius = 2 if height > 4 and width > 4 else 0
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}">'
        "<title>{}</title></rect>"
    ).format(kind, x, y, width, height, radius, title)


def _svg(
    height: int,
    label: str,
    shapes: Sequence[Markup],
    *,
    hatched: bool = False,
    width: float = _WIDTH,
    kind: str = "chart",
) -> Markup:
    pattern = Markup(
        '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect width="3" height="8" class="hatch-stroke"/></pattern>'
        "</defs>"
    )
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {}" preserveAspectRatio="none" role="img"'
        ' style="height:{}px" aria-label="{}">{}{}</svg>'
    ).format(
        kind, width, height, height, label, pattern if hatched else "", Markup("").join(shapes)
    )
