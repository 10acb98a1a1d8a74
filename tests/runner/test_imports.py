"""The runner goes into training environments: it may need nothing but httpx."""

from __future__ import annotations

import subprocess
import sys

ALLOWED = {"httpx", "httpcore", "h11", "anyio", "sniffio", "idna", "certifi", "typing_extensions"}

IMPORT_UNDER_A_GUARD = f"""
import sys

class Guard:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        known = package in sys.stdlib_module_names or package in {sorted(ALLOWED)!r}
        ours = name.split(".")[:2] in (
            ["lastgood"], ["lastgood", "runner"], ["lastgood", "rules"], ["lastgood", "errors"])
        if not (known or ours):
            raise ImportError(f"{{name}} is not there")

sys.meta_path.insert(0, Guard())
import lastgood.runner
assert lastgood.runner.Workload("http://127.0.0.1:1", "key", workload="mlp", stage="pretrain")
print(*sorted(name for name in sys.modules if name.startswith("lastgood")))
"""


def test_the_runner_imports_where_only_httpx_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_UNDER_A_GUARD], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "lastgood.runner.generation" in done.stdout
    assert "lastgood.rules.canonical" not in done.stdout
