"""Durations, sizes and shares as people write them in a policy: `6h`, `50TB`, `75%`.

Each is read exactly and written back in one form, so that equal policies have equal bytes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from lastgood.rules.document import Node
from lastgood.rules.paths import EXACT_INTEGER_LIMIT

_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)")
_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_SIZE = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,6}))? ?([kKMGTPE]i?)?B")
_PREFIXES = "KMGTPE"
_SHARE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))? ?%")
_LONGEST = timedelta(days=36_500)


def read_duration(node: Node, *, zero: bool = False) -> timedelta:
    """A duration such as `500ms`, `90s`, `30m`, `4h`, `2d` or `1w`; a day is 24 hours."""
    found = _DURATION.fullmatch(node.value) if isinstance(node.value, str) else None
    if found is None:
        raise node.error(f"{node.shown} is not a duration; write it as in 500ms, 90s, 30m, 4h, 2d")
    amount = int(found[1])
    if amount > _LONGEST // _UNITS[found[2]]:
        raise node.error("the duration is longer than 100 years")
    if amount == 0 and not zero:
        raise node.error("the duration is zero")
    return amount * _UNITS[found[2]]


def duration_text(duration: timedelta) -> str:
    """The shortest exact form: 48 hours are `2d`, 90 minutes `90m`. Weeks are written as days."""
    for unit in ("d", "h", "m", "s", "ms"):
        if duration % _UNITS[unit] == timedelta(0) and (duration or unit == "s"):
            return f"{duration // _UNITS[unit]}{unit}"
    raise ValueError(f"{duration!r} is finer than a millisecond")


def instant_text(at: datetime) -> str:
    """An instant (aware) as people read it: in UTC, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def read_size(node: Node) -> int:
    """A size in bytes, such as `50TB` (10^12) or `512GiB` (2^30)."""
    found = _SIZE.fullmatch(node.value) if isinstance(node.value, str) else None
    if found is None:
        raise node.error(f"{node.shown} is not a size; write it as in 50TB or 512GiB")
    size = _decimal(found[1], found[2]) * _scale(found[3] or "")
    if size.denominator != 1 or size > EXACT_INTEGER_LIMIT:
        raise node.error(f"{node.shown} is not a whole count of bytes up to 2^53 - 1")
    return int(size)


def size_text(size_bytes: int) -> str:
    """The shortest exact form, decimal before binary: `50TB`, `512GiB`, `1001B`."""
    for binary in ("", "i"):
        for prefix in reversed(_PREFIXES):
            scale = _scale(prefix + binary)
            if size_bytes and size_bytes % scale == 0:
                return f"{size_bytes // scale}{'k' if prefix + binary == 'K' else prefix + binary}B"
    return f"{size_bytes}B"


def read_share(node: Node) -> Fraction:
    """A share of a whole, `0.01%` to `100%`, exact."""
    found = _SHARE.fullmatch(node.value) if isinstance(node.value, str) else None
    if found is None:
        raise node.error(f"{node.shown} is not a percentage; write it as in 75%")
    share = _decimal(found[1], found[2]) / 100
    if not 0 < share <= 1:
        raise node.error("give a percentage above 0% and up to 100%")
    return share


def share_text(share: Fraction) -> str:
    """The percentage with as many decimals as it needs."""
    return f"{float(share * 100):.4f}".rstrip("0").rstrip(".") + "%"


def rough_size(size_bytes: int) -> str:
    """A size for a sentence, with one decimal: `11.4 TB`."""
    for index in range(len(_PREFIXES), 0, -1):
        scale = 1000**index
        if size_bytes >= scale:
            tenths = round(Fraction(size_bytes * 10, scale))
            fraction = f".{tenths % 10}" if tenths % 10 else ""
            return f"{tenths // 10}{fraction} {_PREFIXES[index - 1].replace('K', 'k')}B"
    return counted(size_bytes, "byte")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things for a sentence: `1 copy`, `1,024 copies`; `many` where it is not `one`
    with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _decimal(whole: str, fraction: str | None) -> Fraction:
    return Fraction(f"{whole}.{fraction or 0}")


def _scale(prefix: str) -> int:
    if not prefix:
        return 1
    power = _PREFIXES.index(prefix[0].upper()) + 1
    return int((1024 if prefix.endswith("i") else 1000) ** power)
