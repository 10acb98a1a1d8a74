"""Errors name what was typed: the option or the argument, and not the field by which a flow or the
API calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from lastgood.errors import InvalidInput, InvalidName

_TYPED = {
    "expires_at": ("until",),
    "bytes": ("size_bytes",),
    "mark": ("mark_id",),
    "name": ("name", "checkpoint", "stage", "to"),
}
"""The parameters by which commands take a field, where they do not have its name."""


def name_as_typed(command: Any) -> None:
    """Let the errors of a command, and of all below it, name its options and arguments."""
    for leaf in _all(command):
        if leaf.callback is not None:
            leaf.callback = _naming(leaf.callback, _words(leaf.params))


def _all(command: Any) -> Iterator[Any]:
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _all(below)


def _words(parameters: Sequence[Any]) -> Mapping[str, str]:
    """How each parameter is written: `--until` for an option, `HOLD` for an argument."""
    return {
        one.name: max(one.opts, key=len)
        if one.param_type_name == "option"
        else str(one.metavar or one.name.upper()).strip("[]")
        for one in parameters
    }


def _naming(callback: Callable[..., Any], words: Mapping[str, str]) -> Callable[..., Any]:
    @wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return callback(*arguments, **options)
        except InvalidInput as error:
            typed = _typed(error, words)
            if typed is None:
                raise
            raise type(error)(**{**error.facts, "where": typed}) from error

    return run


def _typed(error: InvalidInput, words: Mapping[str, str]) -> str | None:
    """What stands on the command line for the place that an error names; None if nothing does. A
    wrong name is one part of what was typed, and is named as that part."""
    where = error.facts.get("where")
    if where is None or isinstance(error, InvalidName):
        return None
    names = _TYPED.get(where, (where,))
    return next((words[name] for name in names if name in words), None)
