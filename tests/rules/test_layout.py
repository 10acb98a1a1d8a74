from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import InvalidInput
from lastgood.rules import layout
from lastgood.rules.layout import AttemptKey, AttemptPart, ControlKey, ControlKind, parse_key
from lastgood.rules.names import AttemptId, CheckpointId, ManifestDigest, StageId
from lastgood.rules.paths import PATH_BYTES_LIMIT
from tests.rules.test_names import CHECKPOINTS, STAGES
from tests.rules.test_paths import PATHS

ATTEMPTS = st.uuids().map(lambda value: AttemptId(str(value)))
NUMBERS = st.integers(0, 10**20 - 1)
ATTEMPT_KEYS = st.one_of(
    st.builds(AttemptKey, CHECKPOINTS, ATTEMPTS, st.just(AttemptPart.OBJECT), PATHS),
    st.builds(
        AttemptKey,
        CHECKPOINTS,
        ATTEMPTS,
        st.sampled_from([AttemptPart.MANIFEST, AttemptPart.MARKER]),
    ),
)
CONTROL_KEYS = st.one_of(
    st.just(ControlKey(ControlKind.CATALOG)),
    st.builds(ControlKey, st.just(ControlKind.INCARNATION), st.none(), NUMBERS),
    st.builds(
        ControlKey, st.sampled_from([ControlKind.GENERATION, ControlKind.EVENT]), STAGES, NUMBERS
    ),
    st.builds(
        ControlKey,
        st.just(ControlKind.DIGEST),
        st.none(),
        NUMBERS,
        STAGES.map(lambda stage: stage.project),
    ),
)
CHECKPOINT = CheckpointId.parse("lab/llm-7b/sft/3.14")
ATTEMPT = AttemptId("6f1d9c3e-1111-4222-8333-444455556666")
PREFIX = "checkpoints/lab/llm-7b/sft/00000003.000000000014/6f1d9c3e-1111-4222-8333-444455556666/"


def test_keys_look_as_they_are_documented() -> None:
    stage = CHECKPOINT.stage_id
    prefix = layout.attempt_prefix(CHECKPOINT, ATTEMPT)
    assert prefix == PREFIX
    assert layout.object_key(prefix, "rank0/a.bin") == PREFIX + "objects/rank0/a.bin"
    assert layout.manifest_key(prefix) == PREFIX + "manifest.json"
    assert layout.marker_key(prefix) == PREFIX + "COMMITTED"
    assert layout.incarnation_key(2) == "control/incarnation/00000000000000000002"
    assert layout.generation_key(stage, 3) == (
        "control/stages/lab/llm-7b/sft/generation/00000000000000000003"
    )
    assert layout.event_key(stage, 7) == (
        "control/stages/lab/llm-7b/sft/event/00000000000000000007"
    )
    assert layout.digest_key("lab", 7) == "control/digests/lab/00000000000000000007"


@given(st.one_of(ATTEMPT_KEYS, CONTROL_KEYS))
def test_every_key_reads_back_from_its_text(key: AttemptKey | ControlKey) -> None:
    assert parse_key(str(key)) == key


@given(
    st.one_of(
        st.text(),
        st.from_regex(layout._ATTEMPT_KEY, fullmatch=True),
        st.from_regex(layout._CONTROL_KEY, fullmatch=True),
    )
)
def test_whatever_reads_is_written_back_the_same(text: str) -> None:
    key = parse_key(text)
    assert key is None or str(key) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "checkpoints/",
        PREFIX,
        PREFIX + "objects/",
        PREFIX + "objects/../manifest.json",
        PREFIX + "objects//a",
        PREFIX + "objects/a\n",
        PREFIX + "manifest.json\n",
        PREFIX + "COMMITTED/x",
        PREFIX + "other",
        "/" + PREFIX + "manifest.json",
        PREFIX.replace("00000003", "3") + "manifest.json",
        PREFIX.replace("00000003", "00000000") + "manifest.json",
        PREFIX.replace("00000003", "\N{ARABIC-INDIC DIGIT THREE}" * 8) + "manifest.json",
        PREFIX.replace("6f1d", "6F1D") + "manifest.json",
        PREFIX.replace("lab", "Lab") + "manifest.json",
        PREFIX.replace("lab/llm-7b", "lab/x/llm-7b") + "manifest.json",
        "control/incarnation/2",
        "control/incarnation/000000000000000000002",
        "control/stages/lab/llm-7b/sft/generation/x",
        "control/stages/../llm-7b/sft/event/00000000000000000007",
        "control/other.json",
        "\ud800",
    ],
)
def test_what_we_could_not_have_written_is_not_ours(text: str) -> None:
    assert parse_key(text) is None


def test_keys_in_order_of_text_are_in_order_of_history() -> None:
    stage = StageId.parse("p/w/s")
    places = [(1, 2), (1, 9000), (1, 10000), (2, 0), (10, 1), (99_999_999, 999_999_999_999)]
    keys = [layout.attempt_prefix(CheckpointId.of(stage, *place), ATTEMPT) for place in places]
    assert keys == sorted(keys)


def test_longest_key_fits_s3() -> None:
    name = "x" * 63
    stage = StageId.of(name, name, name)
    prefix = layout.attempt_prefix(CheckpointId.of(stage, 99_999_999, 999_999_999_999), ATTEMPT)
    assert len(layout.object_key(prefix, "x" * PATH_BYTES_LIMIT)) <= 1024


def test_marker_reads_back() -> None:
    digest = ManifestDigest("ab" * 32)
    assert layout.parse_marker(layout.marker_bytes(digest)) == digest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"format_version":1}',
        b'{"format_version":2,"manifest":"' + b"0" * 64 + b'"}',
        b"[" * 100_000,
    ],
)
def test_other_content_is_no_marker(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        layout.parse_marker(content)
