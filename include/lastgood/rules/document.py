"""Strict reading of a parsed JSON or YAML document that somebody else wrote.

A `Node` is a value with its place; each reader either answers a checked Python value or raises the
document's own error naming that place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from lastgood.errors import InvalidInput, LastgoodError
from lastgood.rules.names import shown
from lastgood.rules.paths import EXACT_INTEGER_LIMIT

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TEXT_LIMIT = 4096

T = TypeVar("T")

Refusal = Callable[[str, str], LastgoodError]  # (where, reason) -> the error to raise


@dataclass(slots=True)
class Node:
    """A value, its place in the document and the error of its document.

    The place is kept as parent and key, and put into words only for an error.
    """

    value: object
    key: str | int  # of the root: what paths begin with, such as `$` or nothing
    refusal: Refusal
    parent: Node | None = None

    @property
    def where(self) -> str:
        """The path to the value, such as `$.objects[3].bytes`."""
        if self.parent is None:
            return str(self.key)
        before = self.parent.where
        if isinstance(self.key, int):
            return f"{before}[{self.key}]"
        if _PLAIN_KEY.fullmatch(self.key):
            return f"{before}.{self.key}" if before else self.key
        return f"{before}[{shown(self.key)!r}]"

    @property
    def shown(self) -> str:
        """The value as an error shows it."""
        return repr(shown(self.value))

    def error(self, reason: str) -> LastgoodError:
        """The document's error for this place."""
        return self.refusal(self.where, reason)

    def _is_not(self, what: str) -> LastgoodError:
        return self.error(f"{self.shown} is not {what}")

    def at(self, key: str | int, value: object) -> Node:
        """The child under this key or index."""
        return Node(value, key, self.refusal, self)

    def fields(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Node]:
        """The children of an object that has all `required` keys, some `optional`, no other."""
        content = self._object()
        for key in content:
            if key not in required and key not in optional:
                raise self.error(
                    f"unknown key {shown(key)!r}; known are {_listed(required, optional)}"
                )
        for key in required:
            if key not in content:
                raise self.error(f"{key} is missing")
        return {key: Node(value, key, self.refusal, self) for key, value in content.items()}

    def members(self) -> Iterator[tuple[str, Node]]:
        """The children of an object with free keys."""
        for key, value in self._object().items():
            if not isinstance(key, str):
                raise self.error(f"key {shown(key)!r} is not text")
            _check_unicode(self, key)
            yield key, self.at(key, value)

    def _object(self) -> dict[Any, object]:
        if not isinstance(self.value, dict):
            raise self._is_not("an object")
        return self.value

    def items(self, limit: int | None = None) -> list[Node]:
        """The children of an array of at most `limit` items."""
        if not isinstance(self.value, list | tuple):
            raise self._is_not("an array")
        if limit is not None and len(self.value) > limit:
            raise self.error(f"{len(self.value)} items; at most {limit}")
        return [self.at(index, value) for index, value in enumerate(self.value)]

    def text(self, limit: int = TEXT_LIMIT) -> str:
        """Not empty text of at most `limit` characters."""
        if not isinstance(self.value, str):
            raise self._is_not("text")
        if not 0 < len(self.value) <= limit:
            raise self.error(f"text of {len(self.value)} characters; give 1 to {limit}")
        _check_unicode(self, self.value)
        if "\0" in self.value:
            raise self.error(f"{self.shown} holds a NUL character")
        return self.value

    def one_of(self, choices: Collection[str]) -> str:
        """One of a few words."""
        if not isinstance(self.value, str) or self.value not in choices:
            raise self._is_not(f"one of {', '.join(choices)}")
        return self.value

    def integer(self, least: int = 0, most: int = EXACT_INTEGER_LIMIT) -> int:
        """A whole number (true and 1.0 are none) from `least` to `most`."""
        if type(self.value) is not int or not least <= self.value <= most:
            raise self._is_not(f"a whole number from {least} to {most}")
        return self.value

    def number(self) -> int | float:
        """A finite number that JSON readers do not round."""
        if type(self.value) is int and abs(self.value) <= EXACT_INTEGER_LIMIT:
            return self.value
        if type(self.value) is float and math.isfinite(self.value):
            return self.value
        raise self._is_not("a finite number (whole ones up to 2^53 - 1)")

    def flag(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            raise self._is_not("true or false")
        return self.value

    def scalar(self) -> str | int | float | bool:
        """Text, a number, true or false."""
        match self.value:
            case bool():
                return self.flag()
            case str():
                return self.text() if self.value else ""
            case int() | float():
                return self.number()
        raise self._is_not("text, a number, true or false")

    def checked(self, check: Callable[[object, str], T]) -> T:
        """What `check(value, where)` answers; its own error, naming this place."""
        try:
            return check(self.value, "")
        except InvalidInput as error:
            raise type(error)(**(error.facts | {"where": self.where})) from None

    def free(self, depth: int, limit_bytes: int) -> Any:
        """A copy of any JSON value of at most this depth and about this many bytes."""
        return _FreeJson(depth, limit_bytes).copy(self, 0)


class _FreeJson:
    """Copies a value while it checks it, so that a hostile one costs no more than its limits."""

    def __init__(self, depth: int, limit_bytes: int) -> None:
        self._depth = depth
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes

    def copy(self, node: Node, depth: int) -> Any:
        if depth > self._depth:
            raise node.error(f"nested deeper than {self._depth}")
        match node.value:
            case None:
                return self._spend(node, 4, None)
            case str():
                _check_unicode(node, node.value)
                return self._spend(node, len(node.value.encode()) + 2, node.value)
            case bool() | int() | float():
                return self._spend(node, 8, node.scalar())
            case list() | tuple():
                self._spend(node, 2, None)
                return [self.copy(child, depth + 1) for child in node.items()]
            case dict():
                self._spend(node, 2, None)
                return {
                    self._spend(child, len(key.encode()) + 3, key): self.copy(child, depth + 1)
                    for key, child in node.members()
                }
        raise node.error(f"{type(node.value).__name__} is not JSON")

    def _spend(self, node: Node, size_bytes: int, value: Any) -> Any:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise node.error(f"the value is larger than {self._limit_bytes} bytes")
        return value


def _check_unicode(node: Node, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise node.error(f"{shown(text)!r} holds a lone surrogate") from None


def _listed(required: Collection[str], optional: Collection[str]) -> str:
    return ", ".join([*required, *optional])
