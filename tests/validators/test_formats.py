"""Broken checkpoints whose bytes are what was committed: what only a look inside can see."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastgood.rules.manifest import Manifest
from lastgood.validators.formatting import FormatFinding, check_format, shown
from lastgood.validators.isolation import Limits
from tests.validators.building import (
    LIMITS,
    STEP,
    entry,
    manifest_of,
    with_size,
    write_safetensors,
    write_tensors,
)

ONES = np.ones(4, dtype="<f4").tobytes()
NAN = np.array([1, np.nan, np.inf, 2], dtype="<f4").tobytes()
MODEL = "model.safetensors"


def look_at(
    root: Path, manifest: Manifest, tmp_path: Path, limits: Limits = LIMITS, **policy: Any
) -> FormatFinding:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return check_format(root, manifest, scratch, limits, **policy)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return folder


# Each builds a checkpoint and answers its manifest; what is found must name file and tensor.
Builder = Callable[[Path], Manifest]
BROKEN: dict[str, tuple[Builder, str, str | None, str]] = {}


def broken(path: str, tensor: str | None, says: str) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        BROKEN[build.__name__.replace("_", " ")] = (build, path, tensor, says)
        return build

    return enter


@broken(MODEL, None, "the manifest says 1000")
def truncated_shard(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    return with_size(manifest_of(root), MODEL, 1000)


@broken(MODEL, "a", "shape and data_offsets are lists of whole numbers")
def shape_below_nought(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [-2, -2])}, ONES)
    return manifest_of(root)


@broken(MODEL, "b", "end at byte 32, the file's data at 16")
def tensor_beyond_the_end(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [4]), "b": entry(16, 32, [4])}, ONES)
    return manifest_of(root)


@broken(MODEL, "b", "overlap those of a")
def overlapping_offsets(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [4]), "b": entry(8, 24, [4])}, ONES * 2)
    return manifest_of(root)


@broken(MODEL, "b", "8 bytes before it belong to no tensor")
def hole_between_tensors(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 8, [2]), "b": entry(16, 32, [4])}, ONES * 2)
    return manifest_of(root)


@broken(MODEL, None, "last 16 bytes belong to no tensor")
def bytes_after_the_last_tensor(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [4])}, ONES * 2)
    return manifest_of(root)


@broken(MODEL, "a", "twice")
def duplicate_names(root: Path) -> Manifest:
    one = json.dumps(entry(0, 16, [4]))
    header = f'{{"a": {one}, "a": {one}}}'.encode()
    write_safetensors(root / MODEL, header, ONES)
    return manifest_of(root)


@broken(MODEL, "a", "'F33' is no dtype")
def unknown_dtype(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [4], "F33")}, ONES)
    return manifest_of(root)


@broken(MODEL, "a", "is 8 bytes, its offsets span 16")
def wrong_dtype_for_its_bytes(root: Path) -> Manifest:
    write_safetensors(root / MODEL, {"a": entry(0, 16, [4], "BF16")}, ONES)
    return manifest_of(root)


@broken(MODEL, "a", "declares BF16, the file has F32")
def wrong_dtype_against_the_manifest(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    return manifest_of(root, sharding={"tensors": {MODEL: {"a": {"dtype": "BF16"}}}})


@broken(MODEL, "a", "declares shape [8]")
def wrong_shape_against_the_manifest(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    return manifest_of(root, sharding={"tensors": {MODEL: {"a": {"shape": [8]}}}})


@broken(MODEL, "b", "the file does not have it")
def tensor_that_the_manifest_declares_is_absent(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    return manifest_of(root, sharding={"tensors": {MODEL: {"b": {}}}})


@broken(MODEL, "b", "2 values are NaN or infinite")
def nan_weights(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES, "b": NAN})
    return manifest_of(root)


@broken(MODEL, "b", "1 values are NaN or infinite")
def infinity_in_the_last_bfloat16(root: Path) -> Manifest:
    values = np.zeros(300_001, dtype="<u2")
    values[-1] = 0xFF80
    write_safetensors(root / MODEL, {"b": entry(0, 600_002, [300_001], "BF16")}, values.tobytes())
    return manifest_of(root)


@broken(MODEL, None, "header says that it has 107374182400 bytes")
def header_of_100_gigabytes(root: Path) -> Manifest:
    (root / MODEL).write_bytes((100 << 30).to_bytes(8, "little") + b"{}" + ONES)
    return manifest_of(root)


@broken(MODEL, None, "the header is not JSON")
def header_nested_without_end(root: Path) -> Manifest:
    write_safetensors(root / MODEL, b'{"a":' + b"[" * 200_000, ONES)
    return manifest_of(root)


@broken(MODEL, None, "header's length alone has 8")
def empty_file(root: Path) -> Manifest:
    (root / MODEL).write_bytes(b"")
    return manifest_of(root)


@broken(MODEL, None, "is a link")
def symlink(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    manifest = manifest_of(root)
    (root / MODEL).rename(root.parent / "elsewhere")
    (root / MODEL).symlink_to(root.parent / "elsewhere")
    return manifest


@broken("parts/model.safetensors", None, "is a link")
def symlink_to_a_folder(root: Path) -> Manifest:
    write_tensors(root / "parts" / MODEL, {"a": ONES})
    manifest = manifest_of(root)
    (root / "parts").rename(root.parent / "elsewhere")
    (root / "parts").symlink_to(root.parent / "elsewhere")
    return manifest


@broken(MODEL, None, "is not a regular file")
def pipe(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    manifest = manifest_of(root)
    (root / MODEL).unlink()
    os.mkfifo(root / MODEL)
    return manifest


@broken("rank1.safetensors", None, f"it is of step {STEP - 1}, the checkpoint of {STEP}")
def shard_of_another_step(root: Path) -> Manifest:
    write_tensors(root / "rank0.safetensors", {"a": ONES}, step=STEP)
    write_tensors(root / "rank1.safetensors", {"a": ONES}, step=STEP - 1)
    return manifest_of(root)


@broken("manifest", None, "no object is of rank 2; the world has 3 ranks")
def missing_rank(root: Path) -> Manifest:
    write_tensors(root / "rank0.safetensors", {"a": ONES})
    write_tensors(root / "rank1.safetensors", {"a": ONES})
    ranks = {"rank0.safetensors": 0, "rank1.safetensors": 1}
    return manifest_of(root, ranks=ranks, world_size=3)


@broken("manifest", None, "no object is of rank 1")
def missing_rank_where_every_rank_is_declared(root: Path) -> Manifest:
    write_tensors(root / MODEL, {"a": ONES})
    return manifest_of(root, ranks={MODEL: 0}, world_size=2, sharding={"ranks": "every"})


@broken("parts/model-00001-of-00003.bin", None, "of 3 shards number 2 is not there")
def shard_missing_by_its_number(root: Path) -> Manifest:
    (root / "parts").mkdir()
    for number in (1, 3):
        _torch_zip(root / f"parts/model-0000{number}-of-00003.bin", pickle.dumps({}), data=ONES)
    return manifest_of(root)


def _index(root: Path, weight_map: Mapping[str, str]) -> None:
    (root / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@broken("model.safetensors.index.json", "b", "in shard-2.safetensors, which is not there")
def index_naming_an_absent_shard(root: Path) -> Manifest:
    write_tensors(root / "shard-1.safetensors", {"a": ONES})
    _index(root, {"a": "shard-1.safetensors", "b": "shard-2.safetensors"})
    return manifest_of(root)


@broken("model.safetensors.index.json", "b", "in shard-2.safetensors, which does not have it")
def index_naming_a_tensor_of_an_empty_shard(root: Path) -> Manifest:
    write_tensors(root / "shard-1.safetensors", {"a": ONES})
    write_tensors(root / "shard-2.safetensors", {})
    _index(root, {"a": "shard-1.safetensors", "b": "shard-2.safetensors"})
    return manifest_of(root)


@broken("model.safetensors.index.json", "b", "in shard.dat, which is of no known format")
def index_naming_a_shard_that_nobody_reads(root: Path) -> Manifest:
    write_tensors(root / "shard-1.safetensors", {"a": ONES})
    (root / "shard.dat").write_bytes(ONES)
    _index(root, {"a": "shard-1.safetensors", "b": "shard.dat"})
    return manifest_of(root)


@broken(MODEL, "a\\x00b\\ud800\\nc", "is 16 bytes, its offsets span 8")
def name_that_a_database_refuses(root: Path) -> Manifest:
    header = b'{"a\\u0000b\\ud800\\nc": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}'
    write_safetensors(root / MODEL, header, ONES)
    return manifest_of(root)


@broken("model.safetensors.index.json", "b", "in shard-1.safetensors, which does not have it")
def index_naming_an_absent_tensor(root: Path) -> Manifest:
    write_tensors(root / "shard-1.safetensors", {"a": ONES})
    _index(root, {"a": "shard-1.safetensors", "b": "shard-1.safetensors"})
    return manifest_of(root)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/lastgood-was-owned",)


def _torch_zip(file: Path, content: bytes, *, compressed: bool = False, data: bytes = b"") -> None:
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", data)


@broken("optimizer.pt", None, "would run posix.system; it was not run")
def malicious_pickle(root: Path) -> Manifest:
    _torch_zip(root / "optimizer.pt", pickle.dumps({"state": _Evil()}))
    return manifest_of(root)


@broken("optimizer.pt", None, "would run posix.system; it was not run")
def malicious_pickle_in_the_old_form(root: Path) -> Manifest:
    (root / "optimizer.pt").write_bytes(pickle.dumps(_Evil(), protocol=2))
    return manifest_of(root)


@broken("ckpt/.metadata", None, "would run posix.system; it was not run")
def malicious_metadata(root: Path) -> Manifest:
    (root / "ckpt").mkdir()
    (root / "ckpt" / ".metadata").write_bytes(pickle.dumps(_Evil()))
    (root / "ckpt" / "__0_0.distcp").write_bytes(b"x")
    return manifest_of(root)


@broken("ckpt/.metadata", None, "is not there")
def shards_without_metadata(root: Path) -> Manifest:
    (root / "ckpt").mkdir()
    (root / "ckpt" / "__0_0.distcp").write_bytes(b"x")
    return manifest_of(root)


@broken("model.pt", "archive/data/0", "unpack to 67108864: torch.save does not compress")
def zip_bomb(root: Path) -> Manifest:
    _torch_zip(root / "model.pt", pickle.dumps({}), compressed=True, data=bytes(64 << 20))
    return manifest_of(root)


@broken("arrays.npz", "b", "a zip bomb")
def zip_bomb_with_an_impossible_size(root: Path) -> Manifest:
    np.savez_compressed(root / "arrays.npz", b=np.ones(4))
    content = bytearray((root / "arrays.npz").read_bytes())
    place = content.rindex(b"PK\x01\x02") + 24  # the unpacked size in the zip's directory
    size = content[place : place + 4]
    content[place : place + 4] = struct.pack("<I", 0xFFFF_FFF0)
    place = content.index(size + bytes(4))  # and of the entry itself
    content[place : place + 4] = struct.pack("<I", 0xFFFF_FFF0)
    (root / "arrays.npz").write_bytes(content)
    return manifest_of(root)


@broken("arrays.npz", "b.npy", "shares bytes with another entry")
def zip_whose_entries_overlap(root: Path) -> Manifest:
    with zipfile.ZipFile(root / "arrays.npz", "w") as archive:
        archive.writestr("b.npy", ONES)
        entry = (root / "arrays.npz").read_bytes()  # not yet closed: the entry alone
    with zipfile.ZipFile(root / "arrays.npz", "w") as archive:
        archive.writestr("a.npy", b"begin" + entry + b"end")
        archive.writestr("b.npy", ONES)
    begins = (root / "arrays.npz").read_bytes().index(entry[:30])
    _change_directory(root / "arrays.npz", 42, struct.pack("<I", begins))
    return manifest_of(root)


def _change_directory(file: Path, field: int, value: bytes) -> None:
    """Have the directory of a zip say something else of its last entry."""
    content = bytearray(file.read_bytes())
    place = content.rindex(b"PK\x01\x02") + field
    content[place : place + len(value)] = value
    file.write_bytes(content)


@broken("model.pt", "archive/data/0", "the directory says 8 and 8")
def zip_whose_directory_and_entry_have_two_sizes(root: Path) -> Manifest:
    _torch_zip(root / "model.pt", pickle.dumps({}), data=bytes(16))
    _change_directory(root / "model.pt", 20, struct.pack("<2I", 8, 8))
    return manifest_of(root)


@broken("model.pt", "archive/data/0", "beyond where the zip's directory begins")
def zip_whose_entry_reaches_into_the_directory(root: Path) -> Manifest:
    _torch_zip(root / "model.pt", pickle.dumps({}), data=bytes(16))
    content = (root / "model.pt").read_bytes()
    content = content.replace(struct.pack("<2I", 16, 16), struct.pack("<2I", 90, 90))
    (root / "model.pt").write_bytes(content)
    return manifest_of(root)


@broken("model.pt", "archive/data/1", "the entry itself has the name archive/data/0")
def zip_whose_directory_and_entry_have_two_names(root: Path) -> Manifest:
    _torch_zip(root / "model.pt", pickle.dumps({}), data=bytes(16))
    _change_directory(root / "model.pt", 46, b"archive/data/1")
    return manifest_of(root)


@broken("arrays.npz", "b.npy", "the directory says")
def zip64_that_lies_of_its_size(root: Path) -> Manifest:
    np.savez(root / "arrays.npz", b=np.ones(4))
    _change_directory(root / "arrays.npz", 20, struct.pack("<2I", 152, 152))
    return manifest_of(root)


@broken(MODEL, "a", "is of more than 2^62 elements")
def shape_whose_bytes_nobody_can_print(root: Path) -> Manifest:
    huge = 10**4000
    write_safetensors(root / MODEL, {"a": entry(0, 16, [huge, huge])}, ONES)
    return manifest_of(root)


@broken(MODEL, "a", "its values end at byte (a number of")
def offset_that_nobody_can_print(root: Path) -> Manifest:
    huge = 10**4200
    header = {"a": entry(huge, huge, [0])}
    write_safetensors(root / MODEL, header, b"")
    return manifest_of(root)


class _Rebuilt:
    """Stands for a tensor in a pickle of torch.save."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_tensor, self.arguments


def _rebuild_tensor(*_: Any) -> None:
    """Is written by the name of PyTorch's own."""


_rebuild_tensor.__module__ = "torch._utils"


class _Stored:
    """A storage that a pickle refers to."""


class _Saving(pickle.Pickler):
    def persistent_id(self, one: Any) -> Any:
        return ("storage", FloatStorage, "0", "cpu", 4) if isinstance(one, _Stored) else None


class FloatStorage:
    """The kind of a storage, by PyTorch's name."""


FloatStorage.__module__ = "torch"


def _saved(root: Path, *arguments: Any) -> Manifest:
    written = io.BytesIO()
    module = types.ModuleType("torch._utils")
    module._rebuild_tensor = _rebuild_tensor  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    torch = types.ModuleType("torch")
    torch.FloatStorage = FloatStorage  # type: ignore[attr-defined]
    sys.modules.update({"torch": torch, "torch._utils": module})
    try:
        _Saving(written).dump({"weight": _Rebuilt(*arguments)})
    finally:
        for name, one in before.items():
            if one is None:
                del sys.modules[name]
            else:
                sys.modules[name] = one
    _torch_zip(root / "model.pt", written.getvalue(), data=ONES)
    return manifest_of(root)


@broken("model.pt", "weight", "its shape is 4")
def tensor_whose_shape_is_a_number(root: Path) -> Manifest:
    return _saved(root, _Stored(), 0, 4, (1,))


@broken("model.pt", "weight", "rebuilt from what no tensor is made of")
def tensor_that_is_rebuilt_from_nothing(root: Path) -> Manifest:
    return _saved(root, "not a storage", 0, (4,), (1,))


@broken("model.pt", "weight", "(a number of")
def tensor_of_more_elements_than_can_be_printed(root: Path) -> Manifest:
    return _saved(root, _Stored(), 0, (2, 1 << 40_000), (1, 1))


def _pickled(root: Path, content: bytes) -> Manifest:
    with zipfile.ZipFile(root / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return manifest_of(root)


@broken("model.pt", None, "only 1 remain")
def pickle_that_claims_bytes_beyond_memory(root: Path) -> Manifest:
    return _pickled(root, b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b".")


@broken("model.pt", None, "by LONG_BINPUT")
def pickle_that_remembers_more_than_it_names(root: Path) -> Manifest:
    return _pickled(root, b"\x80\x04Nr" + struct.pack("<I", 0xFFFF_FFF0) + b".")


@broken("state.npy", "state.npy.inner.loss", "1 values are NaN or infinite")
def nan_in_a_record_of_records(root: Path) -> Manifest:
    inner = np.dtype([("step", "<i4"), ("loss", ">f8", (2,))])
    records = np.zeros(3, dtype=[("name", "S5"), ("inner", inner)])
    records["inner"]["loss"][1, 1] = np.nan
    np.save(root / "state.npy", records)
    return manifest_of(root)


@broken("state.npy", "state.npy", "2 values are NaN or infinite")
def nan_in_a_long_double(root: Path) -> Manifest:
    np.save(root / "state.npy", np.array([1, np.nan, -np.inf, 3], dtype=np.longdouble))
    return manifest_of(root)


@broken("state.npy", "state.npy", "the file has datetime64[s]")
def instants_that_the_manifest_calls_doubles(root: Path) -> Manifest:
    np.save(root / "state.npy", np.zeros(2, dtype="<M8[s]"))
    return manifest_of(root, sharding={"tensors": {"state.npy": {"state.npy": {"dtype": "F64"}}}})


@broken("state.npy", "state.npy", "1 values are NaN or infinite")
def nan_in_a_complex_long_double(root: Path) -> Manifest:
    np.save(root / "state.npy", np.array([1, complex(0, np.inf)], dtype=np.clongdouble))
    return manifest_of(root)


@broken("state.npy", "state.npy", "1 values are NaN or infinite")
def nan_in_a_half(root: Path) -> Manifest:
    np.save(root / "state.npy", np.array([1, np.nan, 2], dtype=np.float16))
    return manifest_of(root)


def _one_of(dtype: str, pattern: bytes) -> Builder:
    def build(root: Path) -> Manifest:
        data = bytes(len(pattern) * 3) + pattern
        header = {"a": entry(0, len(data), [4], dtype)}
        write_safetensors(root / MODEL, header, data)
        return manifest_of(root)

    build.__name__ = f"not_finite_{dtype}_{pattern.hex()}"
    return build


for _dtype, _pattern in (
    ("F16", b"\x00\x7c"),
    ("F16", b"\x01\xfe"),
    ("BF16", b"\x80\x7f"),
    ("BF16", b"\xc0\xff"),
    ("F8_E5M2", b"\x7c"),
    ("F8_E5M2", b"\xff"),
    ("F8_E4M3", b"\x7f"),
    ("F8_E4M3", b"\xff"),
    ("F8_E4M3FNUZ", b"\x80"),
    ("F8_E5M2FNUZ", b"\x80"),
    ("F8_E8M0", b"\xff"),
    ("C64", struct.pack("<2f", 0, float("inf"))),
):
    broken(MODEL, "a", "1 values are NaN or infinite")(_one_of(_dtype, _pattern))


@broken("model.pt", None, "not a whole zip file")
def truncated_zip(root: Path) -> Manifest:
    _torch_zip(root / "model.pt", pickle.dumps({}), data=bytes(1000))
    (root / "model.pt").write_bytes((root / "model.pt").read_bytes()[:600])
    return manifest_of(root)


@broken("state.npy", "state.npy", "array of objects")
def array_of_objects(root: Path) -> Manifest:
    np.save(root / "state.npy", np.array([_Evil()], dtype=object), allow_pickle=True)
    return manifest_of(root)


@broken("state.npy", "state.npy", "is 80 bytes, there are 72")
def truncated_array(root: Path) -> Manifest:
    np.save(root / "state.npy", np.ones(10))
    (root / "state.npy").write_bytes((root / "state.npy").read_bytes()[:-8])
    return manifest_of(root)


@broken("arrays.npz", "b", "1 values are NaN or infinite")
def nan_in_a_packed_big_endian_array(root: Path) -> Manifest:
    np.savez_compressed(root / "arrays.npz", a=np.ones(3), b=np.array([1, np.nan], dtype=">f8"))
    return manifest_of(root)


@broken(MODEL, None, "the header is not JSON")
def header_of_another_encoding(root: Path) -> Manifest:
    header = json.dumps({"a": entry(0, 4, [1])}).encode("utf-16")
    write_safetensors(root / MODEL, header, bytes(4))
    return manifest_of(root)


@broken("config.json", None, "it is not JSON")
def half_a_json_file(root: Path) -> Manifest:
    (root / "config.json").write_text('{"layers": 2, ')
    return manifest_of(root)


@broken("config.json", "layers", "stands twice")
def json_with_a_key_twice(root: Path) -> Manifest:
    (root / "config.json").write_text('{"layers": 2, "layers": 3}')
    return manifest_of(root)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_checkpoint_fails_and_the_reason_names_file_and_tensor(
    name: str, root: Path, tmp_path: Path
) -> None:
    build, path, tensor, says = BROKEN[name]

    finding = look_at(root, build(root), tmp_path)

    assert finding.verdict == "fail", finding
    problems = [one for one in finding.problems if says in one["problem"]]
    assert problems, finding.problems
    assert (problems[0]["path"], problems[0]["tensor"]) == (path, tensor)
    assert shown(finding.problems[0]) in finding.reason
    assert not Path("/tmp/lastgood-was-owned").exists()


def test_sound_checkpoint_of_many_formats_passes(root: Path, tmp_path: Path) -> None:
    write_tensors(root / "shard-1.safetensors", {"a": ONES}, step=STEP)
    write_tensors(root / "shard-2.safetensors", {"b": ONES * 1000}, step=STEP)
    _index(root, {"a": "shard-1.safetensors", "b": "shard-2.safetensors"})
    np.savez(root / "loader.npz", order=np.arange(100), empty=np.zeros((0, 3)))
    np.save(root / "scalar.npy", np.float64(3))
    np.save(root / "record.npy", np.zeros(2, dtype=[("größe Ж", "<f4")]))
    (root / "trainer_state.json").write_text('{"loss": NaN}')
    (root / "notes.txt").write_text("not looked into")
    sharding = {"tensors": {"shard-1.safetensors": {"a": {"dtype": "F32", "shape": [4]}}}}

    finding = look_at(root, manifest_of(root, sharding=sharding), tmp_path)

    assert finding.verdict == "pass", finding
    assert [(one["path"], one["severity"]) for one in finding.problems] == [("notes.txt", "warn")]
    assert finding.reason == "6 tensors in 7 files, every value read; 1 file of no known format"
    assert finding.bytes_read > 16 * 1001 + 800


@pytest.mark.parametrize(
    ("non_finite", "verdict", "severities"),
    [("fail", "fail", ["fail"]), ("warn", "pass", ["warn"]), ("ignore", "pass", [])],
)
def test_policy_says_what_a_nan_means(
    root: Path, tmp_path: Path, non_finite: str, verdict: str, severities: list[str]
) -> None:
    write_tensors(root / MODEL, {"a": NAN})

    finding = look_at(root, manifest_of(root), tmp_path, non_finite=non_finite)

    assert finding.verdict == verdict
    assert [one["severity"] for one in finding.problems] == severities


def test_objects_of_one_rank_alone_are_no_missing_ranks(root: Path, tmp_path: Path) -> None:
    write_tensors(root / MODEL, {"a": ONES})

    finding = look_at(root, manifest_of(root, ranks={MODEL: 0}, world_size=8), tmp_path)

    assert finding.verdict == "pass"
    (problem,) = finding.problems
    assert problem["severity"] == "warn"
    assert problem["problem"].startswith("only rank 0 of 8 owns objects")


def test_a_name_that_claims_shards_without_end_costs_no_time(root: Path, tmp_path: Path) -> None:
    write_tensors(root / "m-000000001-of-999999999.safetensors", {"a": ONES})

    finding = look_at(root, manifest_of(root), tmp_path)

    assert finding.verdict == "fail"
    assert "number 2, 3, 4" in finding.reason


def test_notes_that_are_numbered_are_no_shards(root: Path, tmp_path: Path) -> None:
    (root / "part-00001-of-00003.json").write_text("{}")
    write_tensors(root / "eval-1-of-3.safetensors", {"a": ONES})

    assert look_at(root, manifest_of(root), tmp_path).verdict == "pass"


def test_a_policy_may_name_a_global_as_harmless(root: Path, tmp_path: Path) -> None:
    _torch_zip(root / "training_args.bin", pickle.dumps({"config": io.StringIO("x")}))
    manifest = manifest_of(root)

    assert look_at(root, manifest, tmp_path).verdict == "fail"
    (tmp_path / "scratch").rename(tmp_path / "before")
    named = ["_io.StringIO"]
    assert look_at(root, manifest, tmp_path, pickle_globals=named).verdict == "pass"


def test_files_of_no_known_format_prove_nothing(root: Path, tmp_path: Path) -> None:
    (root / "weights.onnx").write_bytes(b"?")

    finding = look_at(root, manifest_of(root), tmp_path)

    assert finding.verdict == "inconclusive"
    assert "no file is of a format that is known here" in finding.reason


def test_a_file_that_may_not_be_read_proves_nothing(root: Path, tmp_path: Path) -> None:
    write_tensors(root / MODEL, {"a": ONES})
    manifest = manifest_of(root)
    (root / MODEL).chmod(0)

    finding = look_at(root, manifest, tmp_path)

    if finding.verdict == "pass":
        pytest.skip("root reads everything")
    assert finding.verdict == "inconclusive"
    assert "Permission denied" in finding.reason


def test_a_limit_that_is_reached_proves_nothing(root: Path, tmp_path: Path) -> None:
    (root / "huge.json").write_bytes(b"[" + b",".join([b"{}"] * 6_000_000) + b"]")
    limits = Limits(memory_bytes=64 << 20, time=LIMITS.time)

    finding = look_at(root, manifest_of(root), tmp_path, limits)

    assert finding.verdict == "inconclusive"
    assert "limit of memory" in finding.reason


def test_a_name_without_end_neither_hides_a_problem_nor_fills_a_receipt(
    root: Path, tmp_path: Path
) -> None:
    write_safetensors(root / MODEL, {"a" * 20_000_000: entry(0, 8, [4])}, ONES)

    found = look_at(root, manifest_of(root), tmp_path)

    assert found.verdict == "fail"
    assert MODEL in found.reason
    assert len(found.reason) < 2000


def test_a_probe_that_dies_is_told_with_the_file_that_it_was_at(root: Path, tmp_path: Path) -> None:
    (root / "sound.json").write_text("{}")
    _pickled(root, b"\x80\x04]" + b"N2" * 5_000_000 + b"0.")

    found = look_at(root, manifest_of(root), tmp_path, Limits(memory_bytes=32 << 20))

    assert found.verdict == "inconclusive"
    assert "model.pt" in found.reason


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.longdouble(text) for text in ("1e4932", "-1e-4940", "0", "1")]),
        np.array([65504, -1], dtype=np.float16),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
)
def test_great_and_small_numbers_are_finite(root: Path, tmp_path: Path, values: Any) -> None:
    np.save(root / "state.npy", values)

    assert look_at(root, manifest_of(root), tmp_path).verdict == "pass"


def test_a_quadruple_is_looked_at_as_one(root: Path, tmp_path: Path) -> None:
    """What another platform calls a long double has the same name in a file."""
    sound, infinite = bytes(8) + b"\xff" * 6 + b"\x00\x40", bytes(14) + b"\xff\x7f"
    np.save(root / "state.npy", np.zeros(2, dtype=np.longdouble))
    content = (root / "state.npy").read_bytes()[:-32]
    (root / "state.npy").write_bytes(content + sound * 2)
    assert look_at(root, manifest_of(root), tmp_path).verdict == "pass"
    (tmp_path / "scratch").rename(tmp_path / "before")
    (root / "state.npy").write_bytes(content + sound + infinite)
    assert look_at(root, manifest_of(root), tmp_path).verdict == "fail"


def test_chunks_that_overlap_do_not_make_up_a_tensor(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "torch.distributed.checkpoint.metadata"
    names = ("Metadata", "TensorStorageMetadata", "ChunkStorageMetadata")
    kinds = {name: type(name, (), {"__module__": module}) for name in names}
    for end in ("torch", "torch.distributed", "torch.distributed.checkpoint", module):
        monkeypatch.setitem(sys.modules, end, types.ModuleType(end))
    vars(sys.modules[module]).update(kinds)

    def made(name: str, **state: Any) -> Any:
        one = kinds[name]()
        vars(one).update(state)
        return one

    chunks = [made("ChunkStorageMetadata", offsets=(at, 0), sizes=(2, 3)) for at in (0, 1)]
    tensor = made("TensorStorageMetadata", size=(4, 3), properties=None, chunks=chunks)
    metadata = made("Metadata", state_dict_metadata={"weight": tensor}, storage_data={})
    (root / ".metadata").write_bytes(pickle.dumps(metadata))
    (root / "__0_0.distcp").write_bytes(b"")

    found = look_at(root, manifest_of(root), tmp_path)

    assert found.verdict == "fail"
    assert shown(found.problems[0]) == ".metadata, tensor weight: chunk [1, 0] overlaps another one"
