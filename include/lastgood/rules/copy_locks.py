"""What a store's locks keep of a copy or of what an attempt left, how long that is believed, and
what the gate makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lastgood.rules.gate import Fact
from lastgood.rules.quantities import counted, instant_text, rough_size

ASK_AGAIN_AFTER = timedelta(hours=1)
"""Where nobody knows when a lock ends: a legal hold, or a lock that may not be seen."""
RETENTION_ASK_AGAIN_AFTER = timedelta(days=1)
"""A retention that lasts longer might be shortened."""


@dataclass(frozen=True, slots=True)
class LockLook:
    """What one look found locked: `versions` of `size_bytes`, until the last lock ends
    (None: nobody knows). Not `seen`: some locks may not be asked for."""

    versions: int
    size_bytes: int
    ends_at: datetime | None
    seen: bool
    reason: str
    recorded_at: datetime

    @property
    def ask_again_at(self) -> datetime:
        """Until then a lock is believed without asking the store again. That nothing is locked is
        never believed for long: a lock may come at any time."""
        if self.versions == 0:
            return self.recorded_at
        if self.ends_at is None:
            return self.recorded_at + ASK_AGAIN_AFTER
        return min(self.ends_at, self.recorded_at + RETENTION_ASK_AGAIN_AFTER)

    def is_believed_at(self, now: datetime) -> bool:
        """Whether the store need not be asked again. A look from after `now` (a clock was set back)
        is not believed."""
        return self.recorded_at <= now < self.ask_again_at

    def is_news_after(self, known: LockLook | None) -> bool:
        """Whether to record it: something is locked, or nothing any more of what was."""
        return self.versions > 0 or (known is not None and known.versions > 0)

    @property
    def fact(self) -> Fact:
        """The gate's fact that nothing is locked; unknown where a lock may not be seen."""
        if self.versions == 0:
            return Fact.of(True, f"no version was locked at {instant_text(self.recorded_at)}")
        until = "" if self.ends_at is None else f", until {instant_text(self.ends_at)}"
        are = "is" if self.versions == 1 else "are"
        size = rough_size(self.size_bytes)
        said = f"{counted(self.versions, 'version')} of {size} {are} locked{until}"
        return Fact.of(False if self.seen else None, f"{said}: {self.reason}")
