"""How an object is cut into parts: equal ones, the last one shorter."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.stores.base import Key, Part, PartInvalid

MAX_PARTS = 10_000
PART_BYTES = 64 << 20
PART_STEP_BYTES = 1 << 20


def part_bytes_for(size_bytes: int) -> int:
    """The part size in bytes: 64 MiB, or as many whole MiB as keep the object within 10,000
    parts."""
    least = -(-size_bytes // MAX_PARTS)
    return max(PART_BYTES, -(-least // PART_STEP_BYTES) * PART_STEP_BYTES)


def part_count(size_bytes: int, part_bytes: int) -> int:
    """How many parts an object has; an empty one has one empty part."""
    return max(1, -(-size_bytes // part_bytes))


def part_size(size_bytes: int, part_bytes: int, number: int) -> int:
    """The bytes of part `number`, counted from 1."""
    return min(part_bytes, size_bytes - (number - 1) * part_bytes)


def require_whole(
    store: str, key: Key, held: Sequence[Part], named: Sequence[Part], count: int
) -> None:
    """PartInvalid unless the parts named for a completion are the parts held, in order, and these
    are the `count` parts of the whole object."""

    def invalid(number: int, reason: str) -> PartInvalid:
        return PartInvalid(store=store, key=key, part=number, reason=reason)

    by_number = {part.number: part for part in held}
    for part in named:
        ours = by_number.get(part.number)
        if ours is None or part.size_bytes != ours.size_bytes:
            raise invalid(part.number, f"{ours} is held, {part} was named")
        if part.sha256 is not None and part.sha256 != ours.sha256:
            raise invalid(part.number, f"its SHA-256 is {ours.sha256}")
    whole = list(range(1, count + 1))
    if [part.number for part in named] != whole or sorted(by_number) != whole:
        reason = f"{len(held)} parts are held and {len(named)} were named, in order; not the"
        raise invalid(len(named), f"{reason} {count} of the whole")
