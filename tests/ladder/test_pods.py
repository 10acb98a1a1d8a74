"""A contract's command in a pod, started by Airflow's own pod operator against a stand-in cluster.

The cluster's API and kubelet are ours (`cluster.py`); operator, client, coordinator, catalog and
the command are the real ones.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lastgood.catalog.jobs.copies import Copy
from lastgood.flows.validation import pod_document, validate
from lastgood.flows.validation.levels import Ladder
from lastgood.pods import OperatorPods
from lastgood.runner import fetch
from lastgood.stack.ports import held_port
from tests.coordinator.conftest import Server
from tests.ladder.cluster import Cluster, Pod
from tests.ladder.conftest import LOSS, PROGRAM, commit_restorable, receipts_of
from tests.retention.world import World
from tests.waiting import wait_for

pytest.importorskip("airflow.providers.cncf.kubernetes", reason="the extra `kubernetes` has it")

CONTRACT = """\
name: tiny
version: "1"
command: ["{{python}}", -Iu, {program}, "{{parameters.mode}}", "{{checkpoint}}", "{{report}}",
          "{{step}}", "{{world_size}}"]
parameters:
  mode: {{type: text, pattern: "[a-zA-Z()$_-]+"}}
world_size: 2
timeout: 20s
memory: 200MB
disk: 8MB
executor: kubernetes
pod: {{image: "train:1", fetch_image: "lastgood:1", namespace: drills, connection: cluster,
       coordinator: "{url}", startup: {startup}, resources: {{nvidia.com/gpu: "2", cpu: 500m}}}}
"""


class Task:
    """What the operator asks of the task that it runs in."""

    dag_id, task_id, run_id, map_index, try_number = "validate_restores", "pod", "run", 0, 1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    @property
    def context(self) -> dict[str, Any]:
        return {"ti": self, "run_id": self.run_id, "dag": SimpleNamespace()}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "nodes").mkdir()
    made = Cluster(tmp_path / "nodes")
    connect(monkeypatch, made.kubeconfig())
    yield made
    made.close()


def connect(monkeypatch: pytest.MonkeyPatch, kubeconfig: dict[str, Any]) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", connection_of(kubeconfig))


def connection_of(kubeconfig: dict[str, Any]) -> str:
    """An Airflow connection by which a cluster is reached."""
    extra = {"kube_config": json.dumps(kubeconfig)}
    return json.dumps({"conn_type": "kubernetes", "extra": extra})


@pytest.fixture
def coordinator(world: World, catalog_dsn: str) -> Iterator[str]:
    with Server(catalog_dsn) as url:
        yield url


@pytest.fixture
def contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coordinator: str
) -> Callable[..., None]:
    """Registers the contract `tiny` for pods."""
    program = tmp_path / "restore.py"
    program.write_text(PROGRAM)
    folder = tmp_path / "config" / "contracts"
    folder.mkdir(parents=True)
    monkeypatch.setenv("LASTGOOD_CONFIG", str(folder.parent))

    def register(*, startup: str = "10s", more: str = "") -> None:
        text = CONTRACT.format(program=program, url=coordinator, startup=startup) + more
        (folder / "tiny.yaml").write_text(text)

    register()
    return register


def restore(world: World, copy: Copy) -> dict[str, Any]:
    pods = OperatorPods(Task().context, look_seconds=0.05, grace=timedelta(seconds=30))
    ladder = Ladder(pods=pods)
    return validate.run(world.catalog, world.stores, copy.copy_id, "restore", ladder=ladder)


def test_a_pod_takes_the_step_and_leaves_a_receipt(
    world: World, contract: Any, cluster: Cluster
) -> None:
    copy = commit_restorable(world, 1)

    told = restore(world, copy)

    assert told["verdict"] == "pass", told["reason"]
    (receipt,) = receipts_of(world, copy)
    topology = receipt.body["topology"]
    assert receipt.reason == f"step 101 has loss {LOSS!r}, recorded was {LOSS!r}"
    assert receipt.body["last_lines"] == ["mode well"]
    assert topology["executor"] == "kubernetes"
    assert (topology["world_size"], topology["of_world_size"]) == (2, 8)
    assert topology["pod"] == {"name": cluster.deleted[0], "node": "node-1", "image": "train:1"}
    assert topology["seconds"]["reported"] == 0.5
    assert 0 < topology["seconds"]["download"] < 60
    assert cluster.pods == {}
    assert world.row("SELECT how FROM lastgood.reader_ends") == ("released",)


def test_the_command_of_a_pod_is_bounded_and_has_no_secret(
    world: World, contract: Any, cluster: Cluster
) -> None:
    restore(world, commit_restorable(world, 1))

    (made,) = cluster.made
    spec = made["spec"]
    fetching, running = spec["initContainers"][0], spec["containers"][0]
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 10 + 300 + 20
    assert made["metadata"]["namespace"] == "drills"
    assert running["command"][0] == "python3"
    assert running.get("args") in (None, [])
    assert {one["name"] for one in running["env"]} == {"HOME", "TMPDIR"}
    assert {one["name"] for one in fetching["env"]} == {fetch.URL, fetch.LEASE, fetch.TOKEN}
    assert running["resources"]["limits"]["memory"] == "200000000"
    assert running["resources"]["limits"]["nvidia.com/gpu"] == "2"
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in running["volumeMounts"]}
    assert mounts == {pod_document.DATA: True, pod_document.SCRATCH: False}
    for container in (fetching, running):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod_document.FETCH_CORRUPT == fetch.CORRUPT


@pytest.mark.parametrize(
    ("mode", "verdict", "says"),
    [
        ("other-step", "fail", "it went to step 102; after 100 comes the next"),
        ("nan", "fail", "the loss of step 101 is nan"),
        ("corrupt", "fail", "the optimizer is of another model"),
        ("silent", "inconclusive", "not an object with a step"),
        ("crash", "inconclusive", "ended with exit code 1"),
        ("memory", "inconclusive", "limit of memory"),
    ],
)
def test_the_report_of_a_pod_is_judged_like_any_other(
    world: World, contract: Any, cluster: Cluster, mode: str, verdict: str, says: str
) -> None:
    copy = commit_restorable(world, 1, mode)

    told = restore(world, copy)

    assert (told["verdict"], told["blocked"]) == (verdict, verdict == "fail"), told
    assert says in told["reason"]
    assert cluster.pods == {}


def test_after_a_failure_older_ones_are_tried_in_pods_too(
    world: World, contract: Any, cluster: Cluster
) -> None:
    world.promote({"gate": {"level": "restore", "receipt_max_age": "7d"}})
    good, bad = commit_restorable(world, 1), commit_restorable(world, 2, "corrupt")

    told = restore(world, bad)

    assert (told["verdict"], told["established"]) == ("fail", str(good.checkpoint))
    levels = [(one.level, one.verdict) for one in receipts_of(world, good)]
    assert levels == [("checksum", "pass"), ("format", "pass"), ("restore", "pass")]
    assert len(cluster.made) == 2
    assert cluster.pods == {}


def test_a_pod_past_its_deadline_proves_nothing(
    world: World, contract: Any, cluster: Cluster
) -> None:
    cluster.when_running = cluster.expire

    told = restore(world, commit_restorable(world, 1, "hang"))

    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    assert "limit of time" in told["reason"]
    assert cluster.pods == {}


def test_a_node_that_is_dead_does_not_hold_the_worker(
    world: World, contract: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = threading.Event()
    cluster.when_running = lambda pod: running.set()
    limits: list[float] = []

    class OnceTheCommandRuns(threading.Timer):
        """All of its time passes at that moment."""

        def run(self) -> None:
            limits.append(self.interval)
            running.wait()
            self.interval = 0
            super().run()

    monkeypatch.setattr("lastgood.pods.threading", SimpleNamespace(Timer=OnceTheCommandRuns))

    told = restore(world, commit_restorable(world, 1, "hang"))

    assert told["verdict"] == "inconclusive"
    assert "lost" in told["reason"]
    assert limits == pytest.approx([10 + 300 + 20 + 30])
    assert cluster.pods == {}


def _evict(cluster: Cluster, message: str) -> None:
    cluster.when_running = lambda pod: cluster.evict(pod, message)


def _drain(cluster: Cluster) -> None:
    cluster.when_running = lambda pod: cluster.end(pod)


def _no_room(cluster: Cluster) -> None:
    cluster.has_room = False


def _no_image(cluster: Cluster, image: str) -> None:
    cluster.unpullable.add(image)


WAITED_FOR = {"0/3 nodes are available", "no such image", "fetch ErrImagePull: no such image"}


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (lambda c: _evict(c, "The node was low on resource: memory."), "lost: the pod was Evicted"),
        (lambda c: _evict(c, "Usage of EmptyDir volume exceeds emptyDir limit"), "limit of disk"),
        (_drain, "was lost"),
        (_no_room, "0/3 nodes are available"),
        (lambda c: _no_image(c, "train:1"), "no such image"),
        (lambda c: _no_image(c, "lastgood:1"), "fetch ErrImagePull: no such image"),
    ],
    ids=["evicted", "disk", "drained", "unschedulable", "image", "fetch image"],
)
def test_what_a_cluster_does_to_a_pod_proves_nothing(
    world: World, contract: Any, cluster: Cluster, happens: Callable[[Cluster], None], says: str
) -> None:
    if says in WAITED_FOR:  # a busy machine takes long to start a process, too
        contract(startup="1s")
    happens(cluster)

    told = restore(world, commit_restorable(world, 1, "hang"))

    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    assert says in told["reason"], told["reason"]
    assert cluster.pods == {}


def test_a_cluster_that_does_not_answer_proves_nothing(
    world: World, contract: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = cluster.kubeconfig()
    with held_port() as nobody:
        elsewhere["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{nobody}"
        connect(monkeypatch, elsewhere)

        told = restore(world, commit_restorable(world, 1))

    assert (told["verdict"], told["blocked"]) == ("inconclusive", False)
    assert "could not be started" in told["reason"]


def test_other_bytes_in_the_pod_are_looked_for_in_the_store(
    world: World, contract: Any, cluster: Cluster
) -> None:
    copy = commit_restorable(world, 1)
    root: Path = world.store.root  # type: ignore[attr-defined]
    path = root / copy.prefix / "objects" / "loss.txt"
    path.chmod(0o600)
    path.write_text("0.7931471805599453")

    told = restore(world, copy)

    assert told["verdict"] == "fail"
    assert receipts_of(world, copy)[0].body["problems"][0]["path"] == "loss.txt"


def test_a_job_fills_no_variable_and_no_template_of_the_pod(
    world: World, contract: Any, cluster: Cluster
) -> None:
    told = restore(world, commit_restorable(world, 1, "$(HOME)-$$(TMPDIR)"))

    assert told["verdict"] == "pass"
    (made,) = cluster.made
    assert "$$(HOME)-$$$$(TMPDIR)" in made["spec"]["containers"][0]["command"]


def test_what_a_killed_drill_left_behind_is_removed(
    world: World, contract: Any, cluster: Cluster
) -> None:
    copy = commit_restorable(world, 1, "hang")
    running: list[Pod] = []
    cluster.when_running = running.append
    restore_in_vain(world, copy)
    wait_for(lambda: running)
    cluster.when_running = lambda pod: cluster.end(pod)

    restore(world, copy)

    assert running[0].name in cluster.deleted
    assert cluster.pods == {}


def restore_in_vain(world: World, copy: Copy) -> None:
    """A drill that nobody waits for: a pod is there, as after a worker was killed."""
    pods = OperatorPods(Task().context, look_seconds=0.05)
    ladder = Ladder(pods=pods)
    threading.Thread(
        target=lambda: validate.run(
            world.catalog, world.stores, copy.copy_id, "restore", ladder=ladder
        ),
        daemon=True,
    ).start()


def test_on_this_machine_a_contract_for_pods_proves_nothing(world: World, contract: Any) -> None:
    copy = commit_restorable(world, 1)

    told = validate.run(world.catalog, world.stores, copy.copy_id, "restore")

    assert told["verdict"] == "inconclusive"
    assert "the DAG validate_restores starts" in told["reason"]
