"""What programs print reaches people whatever the locale's encoding is."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def show_any_character() -> None:
    """Print a character that the encoding lacks as its code, in place of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
