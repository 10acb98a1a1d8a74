"""What whoever watches the demo sees: one line a step, and each expectation with its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One claim, whether it held, and what was seen."""

    claim: str
    held: bool
    seen: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step that ended, and how long it took."""

    title: str
    seconds: float


class Screen:
    """Prints as things happen, and remembers them for the summary."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.steps: list[Step] = []
        self.expectations: list[Expectation] = []
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._started

    @property
    def failed(self) -> list[Expectation]:
        """The expectations that did not hold."""
        return [one for one in self.expectations if not one.held]

    @contextmanager
    def step(self, title: str) -> Iterator[Say]:
        """Show a step while it runs; what is said meanwhile replaces what was said before."""
        started = time.monotonic()
        with self.console.status(escape(title)) as status:
            told = ""

            def say(text: str) -> None:
                nonlocal told
                status.update(f"{escape(title)}: {escape(text)}")
                if text != told and not self.console.is_terminal:
                    self._print(f"          [dim]{escape(text)}[/]")
                told = text

            yield say
        seconds = time.monotonic() - started
        self.steps.append(Step(title, seconds))
        self._print(f"[dim]{self.seconds:6.1f} s[/]  {escape(title)} [dim]({seconds:.1f} s)[/]")

    def expect(self, claim: str, held: bool, seen: str) -> None:
        """Note and show one expectation."""
        self.expect_all([Expectation(claim, held, seen)])

    def expect_all(self, expectations: Iterable[Expectation]) -> None:
        """Note and show expectations in their order."""
        for one in expectations:
            self.expectations.append(one)
            verdict = "[green]ok    [/]" if one.held else "[bold red]FAILED[/]"
            self._print(f"          {verdict}  {escape(one.claim)} [dim]— {escape(one.seen)}[/]")

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)
