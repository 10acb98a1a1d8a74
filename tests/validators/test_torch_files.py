"""What PyTorch writes, read without PyTorch, and what may happen to it on the way."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastgood.validators.formats import pickles
from lastgood.validators.formats.base import Checkpoint, Problem, Tensor, installed
from lastgood.validators.formatting import check_format
from tests.validators.building import LIMITS, manifest_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch` has it")


def model_and_optimizer() -> dict[str, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 8)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}


def many_kinds() -> dict[str, Any]:
    weight = torch.nn.Parameter(torch.randn(3, 5))
    return {
        **model_and_optimizer(),
        "bf16": torch.randn(4).bfloat16(),
        "f8": torch.randn(4).to(torch.float8_e4m3fn),
        "u16": torch.ones(3, dtype=torch.uint16),
        "flags": torch.ones(2, dtype=torch.bool),
        "transposed": weight.T,
        "tied": weight,
        "again": weight,
        "part": torch.arange(100.0)[10:20:2],
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "nothing": torch.zeros(0, 3),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "random": torch.get_rng_state(),
        "plain": [1, 2.5, "text", None, {"a": (1, 2)}, {1, 2}],
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "size": torch.Size([1, 2]),
    }


def found_in(root: Path) -> tuple[dict[str, Tensor], list[Problem]]:
    """Every tensor below a folder by name, read in this process."""
    sizes = {one.path: one.size_bytes for one in manifest_of(root).objects}
    checkpoint = Checkpoint(str(root), sizes)
    problems = [
        problem
        for one in installed()
        for group in one.claims(checkpoint)
        for problem in one.check(checkpoint, group)
    ]
    return {n: t for tensors in checkpoint.tensors.values() for n, t in tensors.items()}, problems


@pytest.mark.parametrize("new_form", [True, False], ids=["zip", "old form"])
def test_all_that_torch_saves_is_read_as_torch_itself_reads_it(
    tmp_path: Path, new_form: bool
) -> None:
    content = many_kinds()
    if not new_form:
        del content["f8"], content["u16"]
    torch.save(content, tmp_path / "all.pt", _use_new_zipfile_serialization=new_form)

    tensors, problems = found_in(tmp_path)

    assert not problems
    loaded = torch.load(tmp_path / "all.pt", weights_only=True)
    shapes = {name: tuple(one.shape) for name, one in _flat(loaded)}
    assert {name: one.shape for name, one in tensors.items()} == shapes
    assert tensors["bf16"].dtype == "BF16"
    assert tensors["scalar"].dtype == "F64"
    assert tensors["random"].dtype == "U8"
    if new_form:
        assert tensors["f8"].dtype == "F8_E4M3"
        assert tensors["u16"].dtype == "U16"


def _flat(value: Any, name: str = "") -> Any:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _flat(one, f"{name}.{key}" if name else str(key))


def test_a_nan_names_the_tensor_of_a_state_dict(tmp_path: Path) -> None:
    content = model_and_optimizer()
    content["optimizer"]["state"][1]["exp_avg"][2] = float("nan")
    torch.save(content, tmp_path / "all.pt")

    _, problems = found_in(tmp_path)

    assert [(one.path, one.tensor) for one in problems] == [("all.pt", "optimizer.state.1.exp_avg")]


def test_nothing_that_weights_only_builds_from_is_refused() -> None:
    from torch._weights_only_unpickler import _get_allowed_globals

    assert [name for name in _get_allowed_globals() if not pickles.is_harmless(name)] == []


@pytest.mark.parametrize("new_form", [True, False], ids=["zip", "old form"])
def test_a_tensor_with_an_attribute_is_looked_at_like_any_other(
    tmp_path: Path, new_form: bool
) -> None:
    weight = torch.tensor([1.0, float("nan")])
    weight.shard = 3
    torch.save({"w": weight}, tmp_path / "all.pt", _use_new_zipfile_serialization=new_form)

    tensors, problems = found_in(tmp_path)

    assert tensors == {"w": Tensor("F32", (2,))}
    assert [(one.tensor, one.problem) for one in problems] == [
        ("w", "1 values are NaN or infinite")
    ]


def test_keys_that_come_to_the_same_name_are_different_tensors(tmp_path: Path) -> None:
    one, two = torch.ones(1), torch.ones(2)
    content = {"a": {"b": one}, "a.b": two, (0, 1): one, (0, 2): two, 7: one, "7": two}
    torch.save(content, tmp_path / "all.pt")

    tensors, problems = found_in(tmp_path)

    assert not problems
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "a.b": (1,), "a.b (2)": (2,), "?": (1,), "? (2)": (2,), "7": (1,), "7 (2)": (2,),
    }  # fmt: skip


def test_a_class_of_the_job_is_refused_as_weights_only_refuses_it(tmp_path: Path) -> None:
    import argparse

    torch.save({"args": argparse.Namespace(lr=1)}, tmp_path / "all.pt")
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    finding = check_format(tmp_path, manifest_of(tmp_path), scratch, LIMITS)

    assert finding.verdict == "fail"
    assert "argparse.Namespace" in finding.reason
    with pytest.raises(Exception, match=r"argparse\.Namespace"):
        torch.load(tmp_path / "all.pt", weights_only=True)


# --- PyTorch Distributed Checkpoint -----------------------------------------------------------


@pytest.fixture
def distributed(tmp_path: Path) -> Path:
    """A checkpoint of DCP with one rank's file."""
    import torch.distributed.checkpoint as dcp

    root = tmp_path / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(model_and_optimizer(), checkpoint_id=root)
    return root


def look_at(root: Path) -> Any:
    scratch = root.parent / "scratch"
    scratch.mkdir()
    return check_format(root, manifest_of(root), scratch, LIMITS)


def test_distributed_checkpoint_is_read_whole(distributed: Path) -> None:
    tensors, problems = found_in(distributed)

    assert not problems
    assert tensors["model.0.weight"] == Tensor("F32", (4, 8))
    assert tensors["optimizer.state.0.exp_avg"] == Tensor("F32", (4, 8))
    assert look_at(distributed).verdict == "pass"


def _remove(shard: Path) -> None:
    shard.unlink()


def _cut(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-5000])


def _spoil(shard: Path) -> None:
    """Overwrite the beginning of the last item: no zip begins there any more."""
    content = shard.read_bytes()
    place = content.rindex(b"PK\x03\x04", 0, content.rindex(b"/data.pkl"))
    shard.write_bytes(content[:place] + b"\0" * 4 + content[place + 4 :])


@pytest.mark.parametrize(
    ("harm", "path", "says"),
    [
        (_remove, ".metadata", "is said to be in __0_0.distcp, which is not there"),
        (_cut, "__0_0.distcp", "it ends at byte"),
        (_spoil, "__0_0.distcp", "zip"),
    ],
)
def test_harmed_distributed_checkpoint_fails_naming_file_and_tensor(
    distributed: Path, harm: Callable[[Path], None], path: str, says: str
) -> None:
    harm(distributed / "__0_0.distcp")

    finding = look_at(distributed)

    assert finding.verdict == "fail"
    problem = finding.problems[0]
    assert problem["path"] == path
    assert says in problem["problem"]
    assert problem["tensor"]


def test_what_is_no_tensor_has_to_lie_somewhere_too(distributed: Path) -> None:
    """The metadata without the place of one thing that it declares: PyTorch does not load it."""
    file = distributed / ".metadata"
    metadata = pickle.loads(file.read_bytes())
    metadata.storage_data = {
        index: place for index, place in metadata.storage_data.items() if index.fqn != "step"
    }
    file.write_bytes(pickle.dumps(metadata))

    finding = look_at(distributed)

    assert finding.verdict == "fail"
    assert ".metadata, tensor step: it is declared, but is in no file" in finding.reason


def test_nan_in_a_distributed_checkpoint_names_its_tensor(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    content = model_and_optimizer()
    content["model"]["1.weight"][0, 2] = float("inf")
    root = tmp_path / "checkpoint"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(content, checkpoint_id=root)

    finding = look_at(root)

    assert finding.verdict == "fail"
    assert finding.problems[0]["tensor"] == "model.1.weight"
