"""Formats are found by their entry points, ours and anybody's."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from lastgood.validators.formats.base import GROUP, installed
from tests.validators.building import manifest_of

ROOT = Path(__file__).parents[2]
MY_FORMAT = """
from lastgood.validators.formats.base import Broken, Tensor

class Shouting:
    name, version, reads_last = "shouting", "3", False

    def claims(self, checkpoint):
        return [[path] for path in checkpoint.sizes if path.endswith(".shout")]

    def check(self, checkpoint, paths):
        text = checkpoint.open(paths[0]).read().decode()
        if not text.isupper():
            raise Broken(paths[0], "line 1", "it does not shout")
        checkpoint.found(paths[0], "line 1", Tensor("U8", (len(text),)))
        return iter(())
"""
CHECK = """
import sys
from pathlib import Path
from lastgood.rules import canonical
from lastgood.validators.formatting import check_format, version
from lastgood.validators.isolation import Limits

root, scratch, manifest = sys.argv[1:]
parsed = canonical.parse_canonical(Path(manifest).read_bytes())
finding = check_format(Path(root), parsed, Path(scratch), Limits())
print(version())
print(finding.verdict, finding.reason, finding.outcome.last_lines)
"""


def test_every_format_of_ours_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert sorted(one.name for one in installed()) == sorted(project["entry-points"][GROUP])


def test_formats_that_read_last_come_last() -> None:
    assert [one.reads_last for one in installed()] == sorted(one.reads_last for one in installed())


@pytest.fixture(scope="module")
def other_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what ours has, and a package with a format of its own."""
    folder = tmp_path_factory.mktemp("environment")
    plugin = folder / "plugin"
    metadata = plugin / "shouting-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nshouting = shouting:Shouting\n")
    (plugin / "shouting.py").write_text(MY_FORMAT)
    venv.create(folder / "venv", symlinks=True)
    packages = next((folder / "venv" / "lib").glob("python*/site-packages"))
    shared = [path for path in sys.path if "site-packages" in path or path.endswith("include")]
    (packages / "shared.pth").write_text("\n".join([*shared, str(plugin)]))
    return folder / "venv" / "bin" / "python"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("LOUD", "pass 1 tensor in 1 file, every value read"),
        ("quiet", "fail 1 problem; the first: a.shout, tensor line 1: it does not shout"),
    ],
)
def test_a_users_format_is_found_and_decides(
    other_environment: Path, tmp_path: Path, text: str, verdict: str
) -> None:
    root, scratch, manifest = (tmp_path / name for name in ("root", "scratch", "manifest"))
    root.mkdir()
    scratch.mkdir()
    (root / "a.shout").write_text(text)
    from lastgood.rules.canonical import canonical_json

    manifest.write_bytes(canonical_json(manifest_of(root).to_json()))

    answer = subprocess.run(
        [other_environment, "-I", "-c", CHECK, root, scratch, manifest],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert "shouting.3" in answer[0]
    assert answer[1].startswith(verdict), answer
