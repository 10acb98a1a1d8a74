"""The order under pressure and the proof of reach, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.rules.pressure import Going, in_order
from lastgood.rules.reach import Held, Proof, Returning, by_sweep, helps, merged, summed

GB, TB = 10**9, 10**12
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def going(
    copy_id: int,
    size: int,
    proofs: int | None = 1,
    *,
    needs: tuple[int, ...] = (),
    age: timedelta = HOUR,
) -> Going:
    return Going(copy_id, size, proofs, NOW - age, frozenset(needs))


@pytest.mark.parametrize(
    ("found", "order"),
    [
        # more bytes first, where the risk is equal
        ([going(1, 100), going(2, 600)], [2, 1]),
        # 300 GB with three proofs standing are less risk than 600 GB with one
        ([going(1, 600, 1), going(2, 300, 3)], [2, 1]),
        ([going(1, 600, 1), going(2, 300, 2)], [1, 2]),  # equal: the lower id
        ([going(2, 300, 2), going(1, 600, 1, age=MINUTE)], [2, 1]),  # equal: the older
        # without a proof it comes last, however large: the gate will keep it
        ([going(1, 10**6, 0), going(2, 1, 1)], [2, 1]),
        # a stage that has reached its end stands on nothing
        ([going(1, 600, 9), going(2, 1, None)], [2, 1]),
        # what another needs goes after it, although it frees more
        ([going(1, 600, 9), going(2, 10, 1, needs=(1,))], [2, 1]),
        ([going(1, 600, 9), going(2, 10, needs=(1,)), going(3, 20, needs=(2,))], [3, 2, 1]),
        # what it needs beside the candidates is no matter of the order
        ([going(1, 600, needs=(7,)), going(2, 900)], [2, 1]),
    ],
)
def test_what_frees_most_per_risk_goes_first(found: list[Going], order: list[int]) -> None:
    assert [one.copy_id for one in in_order(found)] == order
    assert [one.copy_id for one in in_order(reversed(found))] == order


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 3), st.sets(st.integers(0, 9), max_size=3)),
        max_size=10,
    ).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(range(len(rows)))))
)
def test_order_is_total_and_puts_dependents_first(
    drawn: tuple[list[tuple[int, int, set[int]]], list[int]],
) -> None:
    rows, shuffled = drawn
    found = [
        going(number, size, proofs, needs=tuple(each for each in needs if each < number))
        for number, (size, proofs, needs) in enumerate(rows)
    ]
    order = [one.copy_id for one in in_order(found)]
    assert sorted(order) == list(range(len(rows)))
    assert order == [one.copy_id for one in in_order(found[at] for at in shuffled)]
    for one in found:
        for needed in one.needs:
            assert order.index(one.copy_id) < order.index(needed)


def test_bytes_come_back_with_the_sweep_after_their_grace() -> None:
    found = [
        Returning(1, NOW - HOUR),
        Returning(2, NOW),
        Returning(4, NOW + timedelta(seconds=1)),
        Returning(8, NOW + 15 * MINUTE),
        Returning(16, NOW + 3 * 24 * HOUR),
    ]
    assert by_sweep(found, NOW) == (
        (NOW, 3),
        (NOW + 15 * MINUTE, 12),
        (NOW + 72 * HOUR, 16),
    )


def proof(claimed: int, returning: list[Returning], *, expected: int = 0) -> Proof:
    """In a store of 10 TB with checkpoints of 600 GB: soft 7.5 TB, hard 8.5 TB."""
    soft, hard = 7500 * GB, 8500 * GB
    return Proof(
        at=NOW,
        claimed_bytes=claimed,
        soft_bytes=soft,
        hard_bytes=hard,
        expected_bytes=expected,
        needed_bytes=max(0, claimed + expected - hard),
        over_soft_bytes=max(0, claimed - soft),
        returning=by_sweep(returning, NOW),
        blocked={"newer_passed": 1800 * GB},
        kept={"role anchor": 4200 * GB},
        helps=(),
    )


@pytest.mark.parametrize(
    ("claimed", "expected", "returning", "by", "open_by"),
    [
        # below hard with the next saves: nothing must come back, but something for soft
        (7600 * GB, 600 * GB, [], NOW, None),
        (7600 * GB, 600 * GB, [Returning(600 * GB, NOW + HOUR)], NOW, NOW + HOUR),
        # 1 TB above soft and three jobs that save next: 1.8 TB more, so that 1.8 TB must come back
        (8500 * GB, 1800 * GB, [Returning(1799 * GB, NOW)], None, NOW),
        (
            8500 * GB,
            1800 * GB,
            [Returning(600 * GB, NOW + hours * HOUR) for hours in (1, 2, 72)],
            NOW + 72 * HOUR,
            NOW + 2 * HOUR,
        ),
        # above hard
        (9100 * GB, 0, [], None, None),
        (9100 * GB, 0, [Returning(600 * GB, NOW + 72 * HOUR)], NOW + 72 * HOUR, None),
    ],
)
def test_proof_says_whether_and_when_the_room_is_there(
    claimed: int,
    expected: int,
    returning: list[Returning],
    by: datetime | None,
    open_by: datetime | None,
) -> None:
    found = proof(claimed, returning, expected=expected)
    assert (found.reaches, found.by, found.open_by) == (by is not None, by, open_by)
    assert Proof.from_json(found.to_json()) == found


def test_proof_reads_as_sentences() -> None:
    text = str(proof(8500 * GB, [Returning(1200 * GB, NOW)], expected=1800 * GB))
    assert "8.5 TB are claimed of 8.5 TB hard" in text
    assert "1.8 TB must come back, and collection gives back 1.2 TB: not enough" in text
    assert "kept back by newer_passed: 1.8 TB" in text
    assert "kept as role anchor: 4.2 TB" in text


def test_what_would_help_is_what_one_deed_alone_frees() -> None:
    receipt = {"newer_passed", "newer_present", "prerequisite_met"}
    blocked = [
        *(Held(f"v/{stage}/sft", 600 * GB, frozenset(receipt)) for stage in ("a", "b", "c")),
        Held("v/a/sft", 600 * GB, frozenset({*receipt, "no_hold"}), "hold 7"),
        Held("v/d/sft", 500 * GB, frozenset({"no_reader"}), "reader eval (9)"),
    ]
    kept = [
        Held("v/e/sft", 100 * GB, frozenset({"unproven"})),
        Held("v/e/sft", 100 * GB, frozenset({"unproven", "newest"})),
        Held("v/f/sft", 50 * GB, frozenset({"hold"}), "held by 8"),
        Held("v/f/sft", 9 * TB, frozenset({"role anchor"})),
    ]
    validate = "validate the newest checkpoint of {} at level restore"
    assert [(one.what, one.size_bytes) for one in helps(blocked, kept)] == [
        (validate.format("v/a/sft"), 600 * GB),
        (validate.format("v/b/sft"), 600 * GB),
        (validate.format("v/c/sft"), 600 * GB),
        ("v/d/sft: end reader eval (9)", 500 * GB),
        (validate.format("v/e/sft"), 100 * GB),
        ("v/f/sft: end held by 8", 50 * GB),
    ]
    assert [one.size_bytes for one in merged(kept)] == [100 * GB, 100 * GB, 50 * GB, 9 * TB]
    assert merged([*kept, *kept])[0] == Held("v/e/sft", 200 * GB, frozenset({"unproven"}))
    assert helps(merged(blocked), merged(kept)) == helps(blocked, kept)
    assert summed(blocked) == {
        "newer_passed": 2400 * GB,
        "newer_present": 2400 * GB,
        "prerequisite_met": 2400 * GB,
        "no_hold": 600 * GB,
        "no_reader": 500 * GB,
    }
