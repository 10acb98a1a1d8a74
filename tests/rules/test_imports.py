"""The client of training jobs imports these on machines that have the standard library alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
before = set(sys.modules)
import lastgood.rules.{module}
own = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(own - set(sys.stdlib_module_names)))
"""


@pytest.mark.parametrize("module", ["names", "paths", "layout", "document", "manifest"])
def test_module_needs_nothing_but_the_standard_library(module: str) -> None:
    program = PROGRAM.format(module=module)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['lastgood']"
