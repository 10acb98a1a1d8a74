"""`lastgood`: the operator's command line.

Exit codes: 0 done, 1 the answer is no or a check failed, 2 the command or its input is wrong,
3 refused by the state, 4 not found, 5 not available, or behind its stores.
"""

from __future__ import annotations

import os

from lastgood.standard_streams import show_any_character


def main() -> None:
    """Run the command line and exit with its code."""
    # Airflow writes its log to standard output, which belongs to the answer.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    show_any_character()
    from lastgood.cli.app import run

    run()


__all__ = ["main"]
