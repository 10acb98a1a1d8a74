"""The lines of the byte equation: each byte of a store is in exactly one."""

from __future__ import annotations

from enum import StrEnum


class Line(StrEnum):
    COMMITTED = "committed"
    OPEN = "open"
    SEALED = "sealed"
    FAILED_EVIDENCE = "failed_evidence"
    QUARANTINED = "quarantined"
    INCOMPLETE = "incomplete"
    NONCURRENT = "noncurrent"
    CONTROL = "control"
    UNEXPLAINED = "unexplained"
