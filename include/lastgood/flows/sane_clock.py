"""The check before anything destructive: did the catalog's clock jump?"""

from __future__ import annotations

from lastgood.catalog import clock
from lastgood.catalog.db import Catalog


def require(catalog: Catalog) -> None:
    """Read the clock, and raise ClockJump while a jump of it waits for an operator's word."""
    with catalog.transaction() as tx:
        clock.read(tx)
    with catalog.transaction() as tx:
        clock.require_sane_clock(tx)
