"""At the end of a long run: which files it went into."""

from __future__ import annotations

from pathlib import Path

import pytest

_LONG_SECONDS = 60
_FILES = 10


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the slowest files of a run of a minute or more, and each file's slowest test."""
    files: dict[str, float] = {}
    tests: dict[str, dict[str, float]] = {}
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            file, _, test = report.nodeid.partition("::")
            files[file] = files.get(file, 0) + report.duration
            of_file = tests.setdefault(file, {})
            of_file[test] = of_file.get(test, 0) + report.duration
    total = sum(files.values())
    if total < _LONG_SECONDS:
        return
    terminalreporter.section(f"slowest files of {total:.0f} s")
    for file, seconds in sorted(files.items(), key=lambda one: -one[1])[:_FILES]:
        test, longest = max(tests[file].items(), key=lambda one: one[1])
        name = Path(file).relative_to("tests") if file.startswith("tests/") else file
        terminalreporter.write_line(f"{seconds:6.1f} s  {name}  ({longest:.1f} s {test[:80]})")
