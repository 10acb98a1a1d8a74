"""The numbers that a report's HTML shows, held against the document that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

_UNKNOWN = "—"


class _Fields(HTMLParser):
    """Collects the text of each element that says which field of the document it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._field: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._field = dict(attrs).get("data-field")

    def handle_data(self, data: str) -> None:
        if self._field is not None:
            self.found[self._field] = data.strip()

    def handle_endtag(self, tag: str) -> None:
        self._field = None


def fields_of(html: str) -> Mapping[str, str]:
    """The text of every field that the page shows, by its path in the document."""
    parser = _Fields()
    parser.feed(html)
    return parser.found


def differing(shown: Mapping[str, str], document: Mapping[str, Any]) -> list[str]:
    """The fields that show another number than the document has."""
    return [
        f"{field} shows {text}, the document has {_value(document, field)}"
        for field, text in shown.items()
        if (None if text == _UNKNOWN else text.replace(",", "")) != _as_text(document, field)
    ]


def _as_text(document: Mapping[str, Any], field: str) -> str | None:
    value = _value(document, field)
    return None if value is None else str(value)


def _value(document: Any, field: str) -> Any:
    for name in field.split("."):
        if name == "length":
            document = len(document)
        else:
            document = document[int(name) if isinstance(document, list) else name]
    return document
