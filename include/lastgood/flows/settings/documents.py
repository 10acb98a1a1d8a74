"""YAML documents that know the line of each value, so that a refusal can say where it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lastgood.errors import InvalidConfig, LastgoodError
from lastgood.rules.document import Node

_DEPTH_LIMIT = 32
_DECIMAL = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # not YAML's 010, which is 8, or 1:30, which is 90


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """One parsed file: its plain value, and the line of each place in it."""

    file: Path
    value: dict[str, Any]
    lines: Mapping[str, int]

    @property
    def root(self) -> Node:
        """The document for strict reading; its errors are InvalidConfig with file, line and key."""
        return Node(self.value, "", self.refuse)

    def refuse(self, where: str, reason: str) -> LastgoodError:
        """InvalidConfig for the value at `where` (such as `leases.reader`), to be raised."""
        return InvalidConfig(
            file=str(self.file), line=self._line_of(where), key=where or "-", reason=reason
        )

    def _line_of(self, where: str) -> int:
        """The line of the place, or of the nearest one around it."""
        around = [place for place in self.lines if where.startswith(place)]
        return self.lines[max(around, key=len)] if around else 1


def read_folder(folder: Path) -> Iterator[ConfigDocument]:
    """Every `*.yaml` of a folder, in the order of names. Raises InvalidConfig for what is not YAML,
    no mapping, or named otherwise than its file."""
    for file in sorted(folder.glob("*.yaml")):
        yield read_file(file)


def read_file(file: Path) -> ConfigDocument:
    """One file of the configuration. Raises InvalidConfig as `read_folder` does."""
    document = read_document(file)
    if document.value.get("name") != file.stem:
        raise document.refuse("name", f"it must be {file.stem!r}, as the file's name says")
    return document


def read_document(file: Path) -> ConfigDocument:
    """One YAML file, strictly: no key twice, no alias, keys are text. Raises InvalidConfig."""
    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidConfig(
            file=str(file), line=1, key="-", reason=f"not YAML in UTF-8: {error}"
        ) from None
    try:
        top = loader.get_single_node()
        reader = _Reader(file, loader)
        value = reader.plain(top, "", 0) if top is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InvalidConfig(
            file=str(file),
            line=1 if mark is None else mark.line + 1,
            key="-",
            reason=f"not YAML: {error}",
        ) from None
    except RecursionError:
        raise InvalidConfig(
            file=str(file), line=1, key="-", reason=f"nested deeper than {_DEPTH_LIMIT}"
        ) from None
    finally:
        loader.dispose()
    if not isinstance(value, dict):
        raise InvalidConfig(file=str(file), line=1, key="-", reason="not a mapping of keys")
    return ConfigDocument(file, value, reader.lines)


class _Reader:
    """Turns composed nodes into plain values, noting lines."""

    def __init__(self, file: Path, loader: yaml.SafeLoader) -> None:
        self.lines: dict[str, int] = {}
        self._file = file
        self._loader = loader
        self._seen: set[int] = set()

    def plain(self, node: yaml.Node, where: str, depth: int) -> Any:
        self.lines.setdefault(where, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode):
            if id(node) in self._seen or depth > _DEPTH_LIMIT:
                raise self._error(node, where, "write the value out; aliases are not read")
            self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, where, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.plain(item, f"{where}[{index}]", depth + 1)
                for index, item in enumerate(node.value)
            ]
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # a date that is none, a number of thousands of digits
            raise self._error(node, where, f"it has no value: {error}") from None
        if type(value) is int and not _DECIMAL.fullmatch(node.value):
            raise self._error(node, where, f"write {node.value!r} as a decimal number, or quote it")
        return value

    def _mapping(self, node: yaml.MappingNode, where: str, depth: int) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            if not isinstance(key, str):
                raise self._error(key_node, where, f"key {key!r} is not text")
            if key in content:
                raise self._error(key_node, key, "the key stands there twice")
            # The same words for a place as the strict reader uses.
            place = Node(None, key, self._refuse, Node(None, where, self._refuse)).where
            self.lines[place] = key_node.start_mark.line + 1
            content[key] = self.plain(value_node, place, depth + 1)
        return content

    def _refuse(self, where: str, reason: str) -> LastgoodError:
        return InvalidConfig(file=str(self._file), line=1, key=where, reason=reason)

    def _error(self, node: yaml.Node, where: str, reason: str) -> InvalidConfig:
        line = node.start_mark.line + 1
        return InvalidConfig(file=str(self._file), line=line, key=where or "-", reason=reason)
