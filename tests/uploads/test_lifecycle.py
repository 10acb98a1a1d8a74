"""The bucket's own rule: checked, proposed, applied beside those of others, and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from lastgood.catalog.cleaning import lifecycle_checks
from lastgood.catalog.settings import projects
from lastgood.catalog.settings.projects import StoreRow
from lastgood.errors import InvalidInput
from lastgood.flows.cleaning import lifecycle
from lastgood.flows.cleaning.lifecycle import Ensured, RuleNotKept
from lastgood.flows.overview import overview
from lastgood.rules.lifecycle import ABORT
from lastgood.stores.base import AccessRefused
from lastgood.stores.lifecycle import LifecycleUnsupported
from lastgood.stores.s3 import S3Store
from tests.retention.world import World
from tests.uploads.conftest import PREFIX
from tests.uploads.test_listings import REFUSED, Pages
from tests.uploads.writers import begin, clean

OTHERS: list[dict[str, Any]] = [
    {
        "ID": "logs",
        "Status": "Enabled",
        "Filter": {"Prefix": "logs/"},
        "Expiration": {"Days": 30},
    },
    {
        "ID": "their uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": "else/"},
        ABORT: {"DaysAfterInitiation": 1},
    },
]


def ensure(world: World, *, apply: bool = False) -> Ensured:
    return lifecycle.ensure(world.catalog, world.stores, "cloud", apply=apply, actor="operator:ann")


def rules_of(store: S3Store) -> list[Any]:
    return list(store.lifecycle().read().rules)


@pytest.mark.parametrize("where", ["s3_world", "ceph_world"])
def test_the_rule_is_proposed_applied_and_read_back_beside_all_others(
    request: pytest.FixtureRequest, where: str
) -> None:
    world: World = request.getfixturevalue(where)
    store: Any = world.store
    store._client.put_bucket_lifecycle_configuration(
        Bucket=store.bucket, LifecycleConfiguration={"Rules": OTHERS}
    )
    before = rules_of(store)

    checked = ensure(world)
    assert (checked.applied, checked.assessment.state.value) == (False, "absent")
    assert rules_of(store) == before

    applied = ensure(world, apply=True)
    assert (applied.applied, applied.assessment.state.value) == (True, "kept")
    after = {rule["ID"]: rule for rule in rules_of(store)}
    ours = after.pop("lastgood-cloud-abort-incomplete-uploads")
    assert [after[rule["ID"]] for rule in before] == before
    assert len(after) == len(before)
    assert ours[ABORT] == {"DaysAfterInitiation": 1}
    assert ours["Filter"]["Prefix"] == f"{PREFIX}/checkpoints/"

    again = ensure(world, apply=True)
    assert (again.applied, again.assessment.proposal) == (False, None)


def test_a_longer_threshold_asks_for_more_days(s3_world: World) -> None:
    ensure(s3_world, apply=True)
    s3_world.promote({"uploads": {"abort_after": "50h", "lifecycle_days": 3}})
    found = ensure(s3_world)
    assert found.assessment.state.value == "too-short"
    assert "not longer than the threshold of 2 days, 2:00:00" in found.assessment.says
    assert ensure(s3_world, apply=True).assessment.days == 3


def test_measured_uploads_ask_for_more_days_too(s3_world: World) -> None:
    begun = begin(s3_world).send()
    s3_world.advance(timedelta(hours=20))
    s3_world.owner.execute(
        "UPDATE lastgood.attempts SET lease_expires_at = lastgood.catalog_clock() + '1 hour'"
    )
    begun.commit()
    assert ensure(s3_world).assessment.needed_days == 2


def test_a_server_that_drops_the_rule_is_found_out(s3_world: World, bucket: S3Store) -> None:
    Pages(bucket, "PutBucketLifecycleConfiguration", (200, ""))
    with pytest.raises(RuleNotKept, match="is not there"):
        ensure(s3_world, apply=True)


@pytest.mark.parametrize(
    ("answer", "error", "state"),
    [
        (
            (501, "<Error><Code>NotImplemented</Code><Message>no</Message></Error>"),
            LifecycleUnsupported,
            "unsupported",
        ),
        (REFUSED, AccessRefused, "refused"),
    ],
)
def test_a_server_without_rules_or_without_leave_is_told_clearly(
    s3_world: World,
    bucket: S3Store,
    answer: tuple[int, str],
    error: type[Exception],
    state: str,
) -> None:
    failing = Pages(bucket, "GetBucketLifecycleConfiguration", *[answer] * 20)
    with pytest.raises(error, match=r"lifecycle|NotImplemented"):
        ensure(s3_world)
    told = clean(s3_world)
    assert len(told["warnings"]) == 1
    assert told["failed"] == {}
    with s3_world.catalog.transaction() as tx:
        assert lifecycle_checks.newest(tx)["cloud"].state == state
    failing.stop()


def test_clean_up_and_status_warn_until_the_rule_is_as_it_should_be(
    s3_world: World, bucket: S3Store
) -> None:
    said = clean(s3_world)["warnings"]
    assert said == [
        f"cloud: no rule aborts incomplete uploads below '{PREFIX}/checkpoints/'; see `lastgood"
        " store ensure-lifecycle cloud`"
    ]
    assert any(said[0] in alert for alert in alerts(s3_world))
    ensure(s3_world, apply=True)
    assert clean(s3_world)["warnings"] == []
    assert not any("ensure-lifecycle" in alert for alert in alerts(s3_world))
    assert s3_world.row("SELECT count(*) FROM lastgood.lifecycle_checks") == (2,)
    add_rule(bucket, {"ID": "all", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}})
    (said,) = clean(s3_world)["warnings"]
    assert any("rule 'all' deletes objects" in alert for alert in alerts(s3_world))
    assert "no checkpoint is safe from it" in said


def add_rule(store: S3Store, rule: dict[str, Any]) -> None:
    rules = [*rules_of(store), {"Status": "Enabled", **rule}]
    store._client.put_bucket_lifecycle_configuration(
        Bucket=store.bucket, LifecycleConfiguration={"Rules": rules}
    )


def alerts(world: World) -> list[str]:
    return list(overview(world.catalog, world.stores).alerts)


def test_a_file_store_has_no_such_rule(world: World) -> None:
    with pytest.raises(InvalidInput, match="local is a file store"):
        lifecycle.ensure(world.catalog, world.stores, "local", apply=True, actor="operator:ann")
    assert clean(world)["warnings"] == []


def test_the_command_checks_shows_and_applies(
    s3_world: World, bucket: S3Store, catalog_dsn: str, moto_s3: str
) -> None:
    config = {"name": "cloud", "root": bucket.bucket, "prefix": PREFIX}
    with s3_world.catalog.transaction() as tx:
        projects.put_store(tx, StoreRow("cloud", "s3", config, "rack-1", "fast"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from lastgood.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "LASTGOOD_CATALOG": catalog_dsn,
                "LASTGOOD_OPERATOR": "ann",
                "AWS_ENDPOINT_URL": moto_s3,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
            },
        )

    shown = run("store", "ensure-lifecycle", "cloud")
    assert shown.returncode == 1, shown.stderr
    assert "no rule aborts incomplete uploads below" in shown.stdout
    assert '"DaysAfterInitiation": 1' in shown.stdout
    add_rule(bucket, {"ID": "all", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}})
    kept = run("store", "ensure-lifecycle", "cloud", "--apply")
    assert kept.returncode == 1
    assert "! rule 'all' deletes objects" in kept.stdout
    bucket._client.delete_bucket_lifecycle(Bucket=bucket.bucket)
    applied = run("store", "ensure-lifecycle", "cloud", "--apply", "--json")
    assert applied.returncode == 0, applied.stderr
    document = json.loads(applied.stdout)
    assert (document["applied"], document["state"], document["days"]) == (True, "kept", 1)
    (row,) = s3_world.owner.execute(
        "SELECT DISTINCT actor FROM lastgood.lifecycle_checks WHERE state = 'kept'"
    ).fetchall()
    assert row == ("operator:ann",)
