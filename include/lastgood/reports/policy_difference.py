"""The difference of two policies as one HTML file that stands alone, and its two curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from lastgood.reports.html import environment, style
from lastgood.reports.words import human_bytes, instant

_WIDTH, _HEIGHT, _MOST_POINTS = 1000.0, 220.0, 400


def render(document: Mapping[str, Any]) -> str:
    """The HTML of a difference's document."""
    template = environment().get_template("policy_difference.html")
    return template.render(found=shown(document), style=style())


def shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with what only a page needs: its chart, and gaps as durations."""
    gaps = {
        side: gap_text(document["totals"][side]["largest_gap_seconds"])
        for side in ("current", "candidate")
    }
    return {
        **document,
        "chart": curves(document["curves"]),
        "gaps": gaps,
        "detection": timedelta(seconds=document["detection_seconds"]),
        "worst": sorted(document["stages"], key=lambda one: -one["lost_bytes"])[:50],
        "gap_text": gap_text,
    }


def gap_text(seconds: float) -> str:
    """A gap in whole minutes."""
    return str(timedelta(minutes=round(seconds / 60)))


def curves(found: Mapping[str, Sequence[Any]]) -> Markup:
    """Kept bytes over time under both policies: two stepped lines, from zero to the most."""
    most = max([1, *found["current"], *found["candidate"]])
    label = (
        f"Kept bytes from {instant(found['at'][0])} to {instant(found['at'][-1])}, at most"
        f" {human_bytes(most)}"
    )
    lines = Markup("").join(_line(side, found[side], most) for side in ("current", "candidate"))
    return Markup(
        '<svg class="chart curves" viewBox="0 0 {:.0f} {:.0f}" preserveAspectRatio="none"'
        ' role="img" style="height:{:.0f}px" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, _HEIGHT, label, lines)


def _line(side: str, sizes: Sequence[int], most: int) -> Markup:
    count = len(sizes)
    numbers = sorted({*range(0, count, max(1, count // _MOST_POINTS)), count - 1})
    scale = _WIDTH / max(1, count - 1)
    points: list[str] = []
    last = None
    for number in numbers:
        y = _HEIGHT - 4 - (_HEIGHT - 8) * sizes[number] / most
        if last is not None:
            points.append(f"{number * scale:.1f},{last:.1f}")
        points.append(f"{number * scale:.1f},{y:.1f}")
        last = y
    title = f"{side}: {human_bytes(sizes[0])} first, {human_bytes(sizes[-1])} last"
    return Markup(
        '<polyline class="curve-{}" fill="none" vector-effect="non-scaling-stroke"'
        ' stroke-width="2" points="{}"><title>{}</title></polyline>'
    ).format(side, " ".join(points), title)
