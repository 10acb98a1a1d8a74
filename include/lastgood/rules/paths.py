"""Object paths and sizes as a job sends them: hostile until checked.

A path is exact text, relative to the checkpoint, with `/` between components. A backslash is an
ordinary character, as it is on every store.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from lastgood.errors import (
    InvalidPath,
    PathAbsolute,
    PathControlCharacter,
    PathDuplicate,
    PathTooLong,
    PathTraversal,
    SizeInvalid,
)
from lastgood.rules.names import shown

PATH_BYTES_LIMIT = 512
COMPONENT_BYTES_LIMIT = 255
EXACT_INTEGER_LIMIT = 2**53 - 1  # beyond it JSON readers may round

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_object_path(path: object, where: str) -> str:
    """Return `path` if it is a relative path that stays inside its checkpoint.

    `where` names the place of the value in errors. Raises a subclass of InvalidPath.
    """
    if not isinstance(path, str):
        raise InvalidPath(where=where, path=shown(path), reason="it is not text")
    encoded = _encoded(path, where)
    if path.startswith("/"):
        raise PathAbsolute(where=where, path=shown(path))
    if _CONTROL.search(path):
        raise PathControlCharacter(where=where, path=shown(path))
    components = encoded.split(b"/")
    if any(component in (b"", b".", b"..") for component in components):
        raise PathTraversal(where=where, path=shown(path))
    longest = max(map(len, components))
    if len(encoded) > PATH_BYTES_LIMIT or longest > COMPONENT_BYTES_LIMIT:
        raise PathTooLong(
            where=where,
            path=shown(path),
            length=len(encoded),
            limit=PATH_BYTES_LIMIT,
            component_limit=COMPONENT_BYTES_LIMIT,
        )
    return path


def _encoded(path: str, where: str) -> bytes:
    try:
        return path.encode()
    except UnicodeEncodeError:
        raise InvalidPath(
            where=where, path=shown(path), reason="it holds a lone surrogate"
        ) from None


def _numbered(index: int) -> str:
    return f"paths[{index}]"


def check_object_paths(
    paths: Iterable[object], where: Callable[[int], str] = _numbered
) -> tuple[str, ...]:
    """Return the paths of one checkpoint if each is good and all can lie beside each other.

    `where(index)` names a path's place. Raises a subclass of InvalidPath.
    """
    checked = tuple(check_object_path(path, where(index)) for index, path in enumerate(paths))
    check_distinct(checked, where)
    return checked


def check_distinct(paths: Sequence[str], where: Callable[[int], str] = _numbered) -> None:
    """Refuse with PathDuplicate checked paths that cannot lie beside each other.

    Two paths that differ only in Unicode normalisation count as the same, since some file systems
    fold them.
    """
    # With NUL for "/", whatever lies below a path sorts directly after it: neighbours suffice.
    folded = [unicodedata.normalize("NFC", path).replace("/", "\0") for path in paths]
    order = sorted(range(len(folded)), key=lambda index: (folded[index], index))
    for earlier, later in itertools.pairwise(order):
        if f"{folded[later]}\0".startswith(f"{folded[earlier]}\0"):
            raise PathDuplicate(where=where(later), path=shown(paths[later]))


def check_size(value: object, where: str) -> int:
    """Return `value` if it is a whole count of bytes, 0 to 2^53 - 1, else SizeInvalid."""
    if type(value) is int and 0 <= value <= EXACT_INTEGER_LIMIT:
        return value
    raise SizeInvalid(where=where, bytes=shown(value), limit=EXACT_INTEGER_LIMIT)
