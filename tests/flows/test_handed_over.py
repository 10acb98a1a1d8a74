"""A task that is handed what older code wrote says so, and takes nothing for absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lastgood.flows import scheduled, scheduled_inventories
from lastgood.flows.drills.drill import DrillFailed
from lastgood.flows.handed_over import HandedOverByOtherCode
from lastgood.flows.reconciliation.reconcile import ChecksFailed, StoreChecksFailed

BEGUN = {
    "store": "local",
    "inventory": "20260301T020000Z",
    "place": "local",
    "started_at": "2026-03-01T02:00:00+00:00",
    "shards": [],
}
OF_STORE = {"store": "local", "html": "/r.html", "store_owner": "ops", "failed_of_store": ["x"]}
OF_PROJECT = {
    "project": "vision",
    "passed": False,
    "failed": ["x"],
    "reports": [{"passed": False, "first_failed": {"name": "x", "owner": "ann"}, "html": "/r"}],
}


@pytest.mark.parametrize(
    ("task", "read"),
    [
        ("begin", lambda: scheduled_inventories.shards_of([{"store": "local"}])),
        ("begin", lambda: scheduled_inventories.list_one({"store": "local"}, [0, "", None])),
        ("begin", lambda: scheduled_inventories.list_one(BEGUN, [0, "", None, "more", 1])),
        ("begin", lambda: scheduled_inventories.complete_one({}, [])),
        ("complete", lambda: scheduled_inventories.report_project("v", None, None, ["local"])),
        (
            "reconcile",
            lambda: scheduled_inventories.fail_if_store_checks_failed(
                [{"reports": [{"store": "local", "html": "/r.html"}]}]
            ),
        ),
        ("reconcile", lambda: scheduled_inventories.fail_if_checks_failed({"project": "vision"})),
        ("restore_and_live", lambda: scheduled.fail_if_drill_failed({"drill": "7"})),
    ],
)
def test_what_older_code_did_not_say_is_an_error_that_names_the_task(
    task: str, read: Callable[[], object]
) -> None:
    with pytest.raises(HandedOverByOtherCode, match=rf"Task {task} handed .*Clear {task} in that"):
        read()


def test_what_was_said_is_judged() -> None:
    with pytest.raises(StoreChecksFailed, match="local, which ops answers for: x, see /r"):
        scheduled_inventories.fail_if_store_checks_failed(
            [{"reports": [OF_STORE]}, {"skipped": ""}]
        )
    with pytest.raises(ChecksFailed, match="first x, which ann answers for"):
        scheduled_inventories.fail_if_checks_failed(OF_PROJECT)
    with pytest.raises(DrillFailed):
        scheduled.fail_if_drill_failed(
            {"passed": False, "failed": [], "drill": "7", "project": "vision"}
        )
