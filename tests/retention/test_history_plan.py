"""The plans of the query that a mark reads its history with, and of the one for a project's now."""

from __future__ import annotations

from lastgood.catalog import history
from lastgood.catalog.retention import stage_history
from tests.retention.world import PROJECT, World


def test_a_projects_history_is_joined_by_hash_or_merge_though_its_tables_look_empty(
    world: World,
) -> None:
    with world.catalog.transaction() as tx:
        tx.execute(stage_history.FOR_ALL_ROWS)
        rows = tx.execute(
            "EXPLAIN " + stage_history.QUERY,
            {"project": PROJECT, "as_of": world.now(), "stage_id": None},
        ).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "Join" in plan
    assert "Nested Loop" not in plan


def test_settings_for_all_rows_end_with_their_transaction(world: World) -> None:
    with world.catalog.transaction() as tx:
        list(stage_history.of_project(tx, PROJECT, world.now()))
    with world.catalog.transaction() as tx:
        row = tx.execute("SHOW enable_nestloop").fetchone()
    assert row == {"enable_nestloop": "on"}


def test_a_history_that_is_not_read_to_its_end_leaves_its_connection_in_order(
    world: World,
) -> None:
    for stage in ("pretrain", "sft"):
        world.commit(1, stage=stage)
    with world.catalog.transaction() as tx:
        stages = stage_history.of_project(tx, PROJECT, world.now())
        assert next(stages).stage.stage == "pretrain"
        stages.close()  # type: ignore[attr-defined]
        again = [one.stage.stage for one in stage_history.of_project(tx, PROJECT, world.now())]
    assert again == ["pretrain", "sft"]


def test_a_projects_now_is_read_from_the_ends_of_indexes_however_long_its_history(
    world: World,
) -> None:
    with world.catalog.transaction() as tx:
        tx.execute("SET LOCAL enable_seqscan = off")  # empty tables are read whole otherwise
        rows = tx.execute("EXPLAIN " + history.PROJECT_NOW, {"project": PROJECT}).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    for table in ("events", "holds", "hold_releases", "capacity_states"):
        assert f"Index Only Scan Backward using {table}_by_time on {table}" in plan
    assert " on stages" not in plan
