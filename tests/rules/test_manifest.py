from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import (
    BadManifest,
    InvalidInput,
    InvalidName,
    PathAbsolute,
    PathControlCharacter,
    PathDuplicate,
    PathTooLong,
    PathTraversal,
    SizeInvalid,
    UnknownManifestVersion,
)
from lastgood.rules.canonical import canonical_bytes, digest, parse_canonical
from lastgood.rules.manifest import (
    CheckpointKind,
    Manifest,
    ManifestLimits,
    ManifestObject,
    ResumedFrom,
    RuntimeFact,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64


def document() -> dict[str, Any]:
    """A manifest that uses every field."""
    return {
        "format_version": 1,
        "project": "lab",
        "workload": "llm-7b",
        "stage": "sft",
        "generation": 3,
        "sequence": 14,
        "step": 1400,
        "kind": "incremental",
        "world_size": 2,
        "sharding": {"tensor": 2, "mesh": [[0], [1]], "note": None},
        "objects": [
            {
                "path": "rank0/model.safetensors",
                "bytes": 25,
                "sha256": A,
                "rank": 0,
                "part_bytes": 10,
                "part_sha256": [A, B, C],
            },
            {
                "path": "rank1/empty.bin",
                "bytes": 0,
                "sha256": B,
                "rank": 1,
                "part_bytes": 10,
                "part_sha256": [B],
            },
            {
                "path": "trainer.json",
                "bytes": 7,
                "sha256": C,
                "rank": None,
                "part_bytes": None,
                "part_sha256": None,
            },
        ],
        "runtime": {
            "model_config": {"value": {"layers": 12, "rope": 1e4}},
            "tokenizer": {"digest": f"sha256:{A}"},
            "optimizer": None,
            "rng_state": {"path": "trainer.json"},
            "data_cursor": {"value": 17},
            "code_version": {"value": "f00"},
            "container_digest": None,
        },
        "runtime_contract_version": "2",
        "restore": {"contract": "torchrun", "parameters": {"nodes": 2, "fast": True, "lr": 0.1}},
        "metrics": {"eval/loss": 2.25, "tokens": 10**9},
        "resumed_from": {"generation": 2, "sequence": 99, "manifest": B},
        "dependencies": [C],
        "outputs": ["s3://bucket/export"],
        "final": False,
    }


def test_every_field_is_read() -> None:
    manifest = Manifest.parse(document())
    assert str(manifest.checkpoint) == "lab/llm-7b/sft/3.14"
    assert manifest.kind is CheckpointKind.INCREMENTAL
    assert manifest.objects[0] == ManifestObject("rank0/model.safetensors", 25, A, 0, 10, (A, B, C))
    assert manifest.size_bytes == 32
    assert manifest.runtime.rng_state == RuntimeFact("path", "trainer.json")
    assert manifest.runtime.optimizer is None
    assert manifest.resumed_from == ResumedFrom(2, 99, B)
    assert manifest.dependencies == (C,)
    assert manifest.to_json() == document()


def test_least_manifest_is_written_with_every_field() -> None:
    manifest = Manifest("lab", "w", "s", 1, 0, 0, (ManifestObject("a", 0, A),))
    assert Manifest.parse(manifest.to_json()) == manifest
    assert manifest.to_json().keys() == document().keys()


def _set(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        value[path[-1]] = to

    return change


def _drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        del value[path[-1]]

    return change


REFUSED: list[tuple[Callable[[dict[str, Any]], None], type[InvalidInput], str]] = [
    (_set("format_version", to=2), UnknownManifestVersion, "$.format_version"),
    (_set("format_version", to="1"), UnknownManifestVersion, "$.format_version"),
    (_set("format_version", to=True), UnknownManifestVersion, "$.format_version"),
    (_set("format_version", to=1.0), UnknownManifestVersion, "$.format_version"),
    (_drop("format_version"), BadManifest, "$"),
    (_drop("final"), BadManifest, "$"),
    (_set("extra", to=1), BadManifest, "$"),
    (_set("project", to="Lab"), InvalidName, "$.project"),
    (_set("workload", to="../x"), InvalidName, "$.workload"),
    (_set("stage", to=None), InvalidName, "$.stage"),
    (_set("generation", to=0), BadManifest, "$.generation"),
    (_set("generation", to=True), BadManifest, "$.generation"),
    (_set("generation", to=1.0), BadManifest, "$.generation"),
    (_set("generation", to=10**8), BadManifest, "$.generation"),
    (_set("sequence", to=-1), BadManifest, "$.sequence"),
    (_set("sequence", to="14"), BadManifest, "$.sequence"),
    (_set("step", to=2**53), BadManifest, "$.step"),
    (_set("step", to=10**400), BadManifest, "$.step"),
    (_set("kind", to="delta"), BadManifest, "$.kind"),
    (_set("kind", to=["full"]), BadManifest, "$.kind"),
    (_set("world_size", to=0), BadManifest, "$.world_size"),
    (_set("sharding", to=[]), BadManifest, "$.sharding"),
    (_set("sharding", to={"x": float("nan")}), BadManifest, "$.sharding.x"),
    (_set("sharding", to={"x": [1, 2**53]}), BadManifest, "$.sharding.x[1]"),
    (_set("sharding", to={"x": b"bytes"}), BadManifest, "$.sharding.x"),
    (_set("sharding", to={1: 2}), BadManifest, "$.sharding"),
    (_set("sharding", to={"\ud800": 2}), BadManifest, "$.sharding"),
    (_set("sharding", to={"a b": {"c": "\ud800"}}), BadManifest, "$.sharding['a b'].c"),
    (_set("objects", to=[]), BadManifest, "$.objects"),
    (_set("objects", to={}), BadManifest, "$.objects"),
    (_set("objects", 1, to=None), BadManifest, "$.objects[1]"),
    (_drop("objects", 1, "rank"), BadManifest, "$.objects[1]"),
    (_set("objects", 1, "mode", to=0o644), BadManifest, "$.objects[1]"),
    (_set("objects", 0, "path", to="../x"), PathTraversal, "$.objects[0].path"),
    (_set("objects", 0, "path", to="/x"), PathAbsolute, "$.objects[0].path"),
    (_set("objects", 0, "path", to="a\0b"), PathControlCharacter, "$.objects[0].path"),
    (_set("objects", 0, "path", to="x" * 2000), PathTooLong, "$.objects[0].path"),
    (_set("objects", 1, "path", to="rank0/model.safetensors"), PathDuplicate, "$.objects[1].path"),
    (_set("objects", 0, "path", to="z"), BadManifest, "$.objects[1]"),
    (_set("objects", 2, "bytes", to=-1), SizeInvalid, "$.objects[2].bytes"),
    (_set("objects", 2, "bytes", to=True), SizeInvalid, "$.objects[2].bytes"),
    (_set("objects", 2, "sha256", to="A" * 64), BadManifest, "$.objects[2].sha256"),
    (_set("objects", 2, "sha256", to="a" * 63), BadManifest, "$.objects[2].sha256"),
    (_set("objects", 2, "rank", to=2), BadManifest, "$.objects[2].rank"),
    (_set("objects", 2, "rank", to=True), BadManifest, "$.objects[2].rank"),
    (_set("objects", 2, "part_bytes", to=7), BadManifest, "$.objects[2].part_sha256"),
    (_set("objects", 0, "part_bytes", to=13), BadManifest, "$.objects[0].part_sha256"),
    (_set("objects", 0, "part_bytes", to=0), BadManifest, "$.objects[0].part_bytes"),
    (_set("objects", 0, "part_sha256", to=[A, B]), BadManifest, "$.objects[0].part_sha256"),
    (_set("objects", 0, "part_sha256", 1, to="x"), BadManifest, "$.objects[0].part_sha256[1]"),
    (_set("objects", 1, "part_sha256", to=[C]), BadManifest, "$.objects[1].part_sha256"),
    (_set("objects", 1, "part_sha256", to=[]), BadManifest, "$.objects[1].part_sha256"),
    (_drop("runtime", "optimizer"), BadManifest, "$.runtime"),
    (_set("runtime", "lr", to=None), BadManifest, "$.runtime"),
    (_set("runtime", "optimizer", to="adam"), BadManifest, "$.runtime.optimizer"),
    (_set("runtime", "optimizer", to={}), BadManifest, "$.runtime.optimizer"),
    (
        _set("runtime", "optimizer", to={"value": 1, "path": "trainer.json"}),
        BadManifest,
        "$.runtime.optimizer",
    ),
    (
        _set("runtime", "rng_state", to={"path": "absent"}),
        BadManifest,
        "$.runtime.rng_state.path",
    ),
    (_set("runtime", "tokenizer", to={"digest": A}), BadManifest, "$.runtime.tokenizer.digest"),
    (
        _set("runtime", "tokenizer", to={"digest": "sha256:x"}),
        BadManifest,
        "$.runtime.tokenizer.digest",
    ),
    (_set("runtime_contract_version", to=2), BadManifest, "$.runtime_contract_version"),
    (_set("restore", "command", to="rm -rf"), BadManifest, "$.restore"),
    (_set("restore", "contract", to=""), BadManifest, "$.restore.contract"),
    (_set("restore", "parameters", "x", to=[1]), BadManifest, "$.restore.parameters.x"),
    (_set("restore", "parameters", "x", to=None), BadManifest, "$.restore.parameters.x"),
    (_set("metrics", "eval/loss", to=float("nan")), BadManifest, "$.metrics['eval/loss']"),
    (_set("metrics", "eval/loss", to=float("inf")), BadManifest, "$.metrics['eval/loss']"),
    (_set("metrics", "eval/loss", to=True), BadManifest, "$.metrics['eval/loss']"),
    (_set("metrics", "eval/loss", to="2.25"), BadManifest, "$.metrics['eval/loss']"),
    (_set("metrics", "", to=1), BadManifest, "$.metrics['']"),
    (_set("resumed_from", "generation", to=4), BadManifest, "$.resumed_from"),
    (
        _set("resumed_from", to={"generation": 3, "sequence": 14, "manifest": B}),
        BadManifest,
        "$.resumed_from",
    ),
    (_set("resumed_from", "manifest", to=None), BadManifest, "$.resumed_from.manifest"),
    (_drop("resumed_from", "manifest"), BadManifest, "$.resumed_from"),
    (_set("dependencies", to=[]), BadManifest, "$.dependencies"),
    (_set("dependencies", to=[C, C]), BadManifest, "$.dependencies"),
    (_set("dependencies", to=[f"sha256:{C}"]), BadManifest, "$.dependencies[0]"),
    (_set("outputs", to=["", "x"]), BadManifest, "$.outputs[0]"),
    (_set("outputs", to="x"), BadManifest, "$.outputs"),
    (_set("final", to=0), BadManifest, "$.final"),
    (_set("final", to=None), BadManifest, "$.final"),
]


@pytest.mark.parametrize(("change", "error", "where"), REFUSED)
def test_wrong_manifest_is_refused_with_its_json_path(
    change: Callable[[dict[str, Any]], None], error: type[InvalidInput], where: str
) -> None:
    wrong = copy.deepcopy(document())
    change(wrong)
    with pytest.raises(InvalidInput) as caught:
        Manifest.parse(wrong)
    assert type(caught.value) is error
    assert caught.value.facts["where"] == where
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("value", [None, [], "x", 1, True])
def test_what_is_no_object_is_no_manifest(value: object) -> None:
    with pytest.raises(BadManifest):
        Manifest.parse(value)


def test_full_checkpoint_may_have_no_dependencies() -> None:
    full = document() | {"kind": "full", "dependencies": []}
    assert Manifest.parse(full).kind is CheckpointKind.FULL


@pytest.mark.parametrize(
    ("limits", "where"),
    [
        (ManifestLimits(objects=2), "$.objects"),
        (ManifestLimits(parts=2), "$.objects[0]"),
        (ManifestLimits(free_depth=1), "$.sharding.mesh[0]"),
        (ManifestLimits(free_bytes=30), None),
        (ManifestLimits(entries=1), "$.restore.parameters"),
    ],
)
def test_limits_hold(limits: ManifestLimits, where: str | None) -> None:
    with pytest.raises(BadManifest) as caught:
        Manifest.parse(document(), limits)
    if where is not None:
        assert caught.value.facts["where"] == where


def test_endless_nesting_does_not_exhaust_the_stack() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadManifest, match="deeper"):
        Manifest.parse(document() | {"sharding": {"x": deep}})


def test_many_empty_values_count_against_the_limit() -> None:
    with pytest.raises(BadManifest, match="larger"):
        Manifest.parse(document() | {"sharding": {"x": [[] for _ in range(600_000)]}})


def test_parsed_manifest_does_not_follow_its_source() -> None:
    source = document()
    manifest = Manifest.parse(source)
    source["sharding"]["mesh"][0].append(9)
    assert manifest.sharding["mesh"] == [[0], [1]]


# --- canonical form ---------------------------------------------------------------------------


def test_canonical_bytes_read_back_and_keep_their_digest() -> None:
    manifest = Manifest.parse(document())
    content = canonical_bytes(manifest)
    assert parse_canonical(content) == manifest
    assert digest(content) == digest(canonical_bytes(Manifest.parse(json.loads(content))))
    # pinned: a change of these bytes is a change of the identity of every stored manifest
    assert digest(content) == "6770bcfeb9dc495a90d75decaaecc4a7a41ff5e172a63bbdc7b9a238a116c371"


def test_canonical_bytes_are_sorted_json_without_spaces() -> None:
    plain = document()
    plain["runtime"]["model_config"]["value"]["rope"] = 10000
    content = canonical_bytes(Manifest.parse(document()))
    assert content == json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " ",
        lambda text: " " + text,
        lambda text: text.replace(":", ": "),
        lambda text: text.replace('"final":false', '"final":false,"final":false'),
        lambda text: text.replace("2.25", "2.250"),
        lambda text: text.replace("10000", "1e4"),
        lambda text: text.replace("lab", "\\u006cab"),
        lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
    ],
)
def test_other_bytes_of_the_same_manifest_are_refused(change: Callable[[str], str]) -> None:
    text = canonical_bytes(Manifest.parse(document())).decode()
    assert change(text) != text
    with pytest.raises(BadManifest):
        parse_canonical(change(text).encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"nul", b"\xef\xbb\xbf{}", b'{"a":NaN}', b"[" * 1_000_000, b"1" * 10_000],
)
def test_bytes_that_are_no_manifest_are_refused(content: bytes) -> None:
    with pytest.raises(BadManifest):
        parse_canonical(content)


FREE_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**53) + 1, 2**53 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner),
    ),
    max_leaves=8,
)


@given(
    FREE_JSON,
    st.dictionaries(
        st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
            min_size=1,
            max_size=8,
        ),
        st.floats(allow_nan=False, allow_infinity=False),
        max_size=3,
    ),
)
def test_free_values_and_numbers_survive_the_canonical_form(
    free: object, metrics: dict[str, float]
) -> None:
    manifest = Manifest.parse(document() | {"sharding": {"x": free}, "metrics": metrics})
    content = canonical_bytes(manifest)
    assert parse_canonical(content) == manifest
    assert canonical_bytes(parse_canonical(content)) == content
