"""`python -m lastgood.stack.demo`: what `make run` does."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from lastgood.errors import LastgoodError
from lastgood.stack import control
from lastgood.stack.demo import expectations, story, summary
from lastgood.stack.demo.evidence import gather
from lastgood.stack.demo.place import project_key, reached
from lastgood.stack.demo.screen import Screen
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.standard_streams import show_any_character

_INTERRUPTED = 130


@dataclass
class Reached:
    """How far the demo came."""

    url: str | None = None
    workload: str | None = None
    report: Mapping[str, Any] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if every expectation held, 1 if not, 130 if it was interrupted. The stack
    stays up."""
    parser = argparse.ArgumentParser(prog="python -m lastgood.stack.demo", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    options = parser.parse_args(arguments)
    show_any_character()
    screen, so_far = Screen(Console(highlight=False)), Reached()
    # A script's background job begins with SIGINT ignored; an interruption must end this one, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Airflow's library would write its log between the steps.
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    try:
        layout = StackLayout.current()
        # What this process imports of Airflow must not write to anybody's home.
        os.environ.setdefault("AIRFLOW_HOME", str(layout.airflow_home))
        _run(layout, screen, so_far)
    except (StackError, LastgoodError, httpx.HTTPError) as error:
        screen.expect("the demo reaches its end", False, str(error))
    except KeyboardInterrupt:
        screen.console.print("\ninterrupted; `make run` goes on, `make stop` ends what runs")
        return _INTERRUPTED
    summary.show_end(screen, layout, so_far.url, so_far.report.get("html"))
    if options.json:
        summary.write_result(options.json, screen, so_far.url, so_far.workload, so_far.report)
    return 1 if screen.failed else 0


def _run(layout: StackLayout, screen: Screen, so_far: Reached) -> None:
    with screen.step("start PostgreSQL, Airflow and the coordinator") as say:
        state = control.up(layout, say)
    assert state.addresses is not None
    so_far.url = state.addresses.airflow_url
    with reached(layout, state.addresses) as place, project_key(place) as key:
        demo = story.begin(place, screen, key)
        so_far.workload = demo.workload
        with story.told(demo) as told:
            so_far.report = told.report
            with screen.step("look at what stands"):
                evidence = gather(demo, told)
            screen.expect_all(expectations.all_of(evidence))
            summary.show_report(screen.console, told.report)


if __name__ == "__main__":
    sys.exit(main())
