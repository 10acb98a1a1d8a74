"""One page of an S3 listing, read into entries.

Nearly every page is uniform, and one compiled expression reads it in C. It counts what it read: a
page that holds anything which the expression did not account for is parsed as XML instead.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree

_ANY = r"(?:<\w++>[^<]*+(?:<\w++>[^<]*+</\w++>)*+</\w++>)"  # an element, with leaves or without
_ENDS = (b"</ListBucketResult>", b"</ListVersionsResult>")
_ENTRY = re.compile(rb"<(?:\w+:)?(?:Contents|Version|DeleteMarker)[\s/>]")
_URL_ENCODED = b"<EncodingType>url</EncodingType>"


class Entry(NamedTuple):
    """One object, version or delete marker, as listed; the key is exact."""

    key: str
    size_bytes: int
    version_id: str | None
    is_latest: bool
    is_delete_marker: bool
    modified_at: datetime | None
    etag: str | None = None


class PageUnreadable(Exception):
    """What the server sent as a page of a listing is none; what was seen is not all."""


class Page:
    """A page as received; `entries` reads it, which takes most of its time."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        spans = [span for tag in _TAGS if (span := _span(body, tag)) is not None]
        self._start = min((start for start, _ in spans), default=0)
        self._end = max((end for _, end in spans), default=0)
        rest = self._body[: self._start] + self._body[self._end :]
        self._uniform = (
            bool(spans)
            and rest.rstrip().endswith(_ENDS)
            and _ENTRY.search(rest) is None
            and b"\r" not in body  # XML turns it into a newline
        )

    def without_entries(self) -> bytes:
        """The rest, for whoever parses what the page says about itself. PageUnreadable."""
        if self._uniform:
            return self._body[: self._start] + self._body[self._end :]
        root = self._parsed()
        for element in list(root):
            if _name(element) in _TAGS:
                root.remove(element)
        return ElementTree.tostring(root)

    def entries(self) -> list[Entry]:
        """All entries, in the page's order. PageUnreadable."""
        found = self._matched() if self._uniform else None
        return self._read_as_xml() if found is None else found

    def _matched(self) -> list[Entry] | None:
        """None unless every byte between the first and the last entry belongs to an entry."""
        decode = _decoded if _URL_ENCODED in self._body else _unescaped
        try:
            text = self._body[self._start : self._end].decode().replace("&quot;", '"')
            for form in _FORMS:
                rows = form.pattern.findall(text)
                if rows and form.is_all(text, len(rows)):
                    return form.entries(rows, decode)
        except ValueError:
            pass  # not UTF-8, or a field that is not what it should be: XML says what is wrong
        return None

    def _read_as_xml(self) -> list[Entry]:
        root = self._parsed()
        space = root.tag.rpartition("}")[0]
        space = f"{space}}}" if space else ""
        decode = unquote_plus if root.findtext(f"{space}EncodingType") == "url" else str
        try:
            return [_entry(one, space, decode) for one in root if _name(one) in _TAGS]
        except ValueError as error:
            raise PageUnreadable(f"a field of an entry is no value: {error}") from error

    def _parsed(self) -> ElementTree.Element:
        try:
            return ElementTree.fromstring(self._body)
        except ElementTree.ParseError as error:
            raise PageUnreadable(f"{len(self._body)} bytes that are no XML: {error}") from error


_TAGS = ("Contents", "Version", "DeleteMarker")


def _span(body: bytes, tag: str) -> tuple[int, int] | None:
    start, closing = body.find(f"<{tag}>".encode()), f"</{tag}>".encode()
    end = body.rfind(closing)
    return None if start < 0 or end < start else (start, end + len(closing))


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _entry(element: ElementTree.Element, space: str, decode: Callable[[str], str]) -> Entry:
    text = element.findtext
    modified = text(f"{space}LastModified")
    return Entry(
        key=decode(text(f"{space}Key") or ""),
        size_bytes=int(text(f"{space}Size") or 0),
        version_id=text(f"{space}VersionId"),
        is_latest=text(f"{space}IsLatest") != "false",
        is_delete_marker=_name(element) == "DeleteMarker",
        modified_at=datetime.fromisoformat(modified) if modified else None,
        etag=text(f"{space}ETag"),
    )


def _decoded(keys: list[str]) -> list[str]:
    """Many at once: most keys need no more than their slashes back."""
    plain = "\n".join(_unescaped(keys)).replace("%2F", "/").split("\n")
    return [unquote_plus(key) if "%" in key or "+" in key else key for key in plain]


def _unescaped(keys: list[str]) -> list[str]:
    if any("&#" in key for key in keys):
        raise ValueError("characters by their number")
    return [html.unescape(key) if "&" in key else key for key in keys]


_OF_BOTH = ("Key", "VersionId", "IsLatest", "LastModified")  # of versions and of delete markers


class _Form(NamedTuple):
    """How some servers write their entries: the order of the fields that are read."""

    tags: tuple[str, ...]
    pattern: re.Pattern[str]
    columns: tuple[str, ...]

    def is_all(self, text: str, count: int) -> bool:
        """Whether that many entries are all of this text, with nothing between them."""
        starts = tuple(f"<{tag}>" for tag in self.tags)
        ends = tuple(f"</{tag}>" for tag in self.tags)
        opened = sum(map(text.count, starts))
        joints = sum(text.count(end + start) for end in ends for start in starts)
        whole = text.startswith(starts) and text.endswith(ends)
        return whole and opened == count == joints + 1

    def entries(
        self, rows: list[tuple[str, ...]], decode: Callable[[list[str]], list[str]]
    ) -> list[Entry]:
        read = dict(zip(self.columns, zip(*rows, strict=True), strict=True))
        at = datetime.fromisoformat
        if "MarkerKey" not in read:
            keys = decode(list(read["Key"]))
            columns = zip(keys, read["Size"], read["LastModified"], read["ETag"], strict=True)
            return [
                Entry(key, int(size), None, True, False, at(modified), etag)
                for key, size, modified, etag in columns
            ]
        either = {
            name: [a or b for a, b in zip(read[name], read[f"Marker{name}"], strict=True)]
            for name in _OF_BOTH
        }
        several = zip(
            decode(either["Key"]),
            (
                0 if marker else int(size)
                for marker, size in zip(read["MarkerKey"], read["Size"], strict=True)
            ),
            either["VersionId"],
            either["IsLatest"],
            read["MarkerKey"],
            either["LastModified"],
            read["ETag"],
            strict=True,
        )
        return [
            Entry(
                key,
                0 if marker else int(size),
                version,
                latest != "false",
                bool(marker),
                at(modified),
                etag or None,
            )
            for key, size, version, latest, marker, modified, etag in several
        ]


def _element(tag: str, fields: tuple[str, ...]) -> str:
    inside = "".join(f"(?:(?!<{field}>){_ANY})*+<{field}>([^<]*+)</{field}>" for field in fields)
    return f"<{tag}>{inside}{_ANY}*+</{tag}>"


def _forms() -> Iterator[_Form]:
    current = ("Key", "LastModified", "ETag", "Size")
    yield _Form(("Contents",), re.compile(_element("Contents", current)), current)
    columns = tuple(f"Marker{field}" for field in _OF_BOTH)
    for version in (
        ("Key", "VersionId", "IsLatest", "LastModified", "ETag", "Size"),
        ("ETag", "Size", "Key", "VersionId", "IsLatest", "LastModified"),
    ):
        either = f"{_element('Version', version)}|{_element('DeleteMarker', _OF_BOTH)}"
        yield _Form(("Version", "DeleteMarker"), re.compile(either), version + columns)


_FORMS = tuple(_forms())
