"""How an object is cut into parts: equal ones, the last one shorter."""

from __future__ import annotations

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
