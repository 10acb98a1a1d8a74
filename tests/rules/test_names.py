from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import InvalidInput, InvalidName
from lastgood.rules.names import (
    GENERATION_LIMIT,
    SEQUENCE_LIMIT,
    CheckpointId,
    StageId,
    check_attempt_id,
    check_digest,
    check_name,
)

NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
STAGES = st.builds(StageId.of, NAMES, NAMES, NAMES)
CHECKPOINTS = st.builds(
    CheckpointId.of, STAGES, st.integers(1, GENERATION_LIMIT), st.integers(0, SEQUENCE_LIMIT)
)


@pytest.mark.parametrize("name", ["a", "0", "llm-7b", "a.b_c-d", "x" * 63, "a.."])
def test_good_name_is_returned(name: str) -> None:
    assert check_name(name, "here") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "_a",
        "A",
        "a/b",
        "a b",
        "a\n",
        "a\0",
        "é",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "\N{FULLWIDTH LATIN SMALL LETTER A}",
        "x" * 64,
        None,
        3,
        ["a"],
    ],
)
def test_bad_name_is_refused_with_its_place(name: object) -> None:
    with pytest.raises(InvalidName) as caught:
        check_name(name, "$.project")
    assert caught.value.facts["where"] == "$.project"


def test_error_shows_no_megabytes_of_a_hostile_name() -> None:
    with pytest.raises(InvalidName) as caught:
        check_name("a" * 5_000_000, "here")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "", None, 7])
def test_only_lower_hex_sha256_is_a_digest(text: object) -> None:
    with pytest.raises(InvalidInput):
        check_digest(text, "here")


@pytest.mark.parametrize(
    "text",
    [
        "6F1D9C3E-0000-4000-8000-000000000000",
        "{6f1d9c3e-0000-4000-8000-000000000000}",
        "6f1d9c3e000040008000000000000000",
        "../../../etc/passwd",
        None,
    ],
)
def test_only_lower_uuid_text_is_an_attempt_id(text: object) -> None:
    with pytest.raises(InvalidInput):
        check_attempt_id(text, "here")


@given(CHECKPOINTS)
def test_checkpoint_reads_back_from_its_text(checkpoint: CheckpointId) -> None:
    assert CheckpointId.parse(str(checkpoint)) == checkpoint


@given(CHECKPOINTS)
def test_short_form_reads_back_within_its_project(checkpoint: CheckpointId) -> None:
    short = str(checkpoint).partition("/")[2]
    assert CheckpointId.parse(short, project=checkpoint.project) == checkpoint
    assert CheckpointId.parse(str(checkpoint), project=checkpoint.project) == checkpoint


@pytest.mark.parametrize(
    "text",
    [
        "p/w/s",
        "p/w/s/3",
        "p/w/s/3.",
        "p/w/s/.3",
        "p/w/s/3.1.2",
        "p/w/s/03.1",
        "p/w/s/3.01",
        "p/w/s/-3.1",
        "p/w/s/+3.1",
        "p/w/s/3.1 ",
        "p/w/s/3.1\n",
        "p/w/s/0.1",
        "p/w/s/100000000.1",
        "p/w/s/1.1000000000000",
        "p/w/s/\N{ARABIC-INDIC DIGIT THREE}.1",
        "p/w/s/t/3.1",
        "w/s/3.1",
        "//s/3.1",
        "",
        "/",
    ],
)
def test_other_text_is_no_checkpoint(text: str) -> None:
    with pytest.raises(InvalidInput):
        CheckpointId.parse(text)


def test_full_form_of_another_project_is_refused() -> None:
    with pytest.raises(InvalidInput):
        CheckpointId.parse("theirs/w/s/3.1", project="ours")


@given(CHECKPOINTS, st.integers(1, GENERATION_LIMIT), st.integers(0, SEQUENCE_LIMIT))
def test_order_within_a_stage_is_that_of_the_integers(
    one: CheckpointId, generation: int, sequence: int
) -> None:
    other = CheckpointId.of(one.stage_id, generation, sequence)
    assert (one < other) == ((one.generation, one.sequence) < (generation, sequence))


def test_sequence_10000_follows_9000_although_its_text_does_not() -> None:
    earlier, later = CheckpointId.parse("p/w/s/1.9000"), CheckpointId.parse("p/w/s/1.10000")
    assert earlier < later
    assert str(later) < str(earlier)
