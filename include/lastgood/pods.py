"""Restores in pods: Airflow's own pod operator runs what the validation planned.

The operator is used for what it is good at: the connection, the pod's template, labels, waiting,
retried requests. The output of a command is not streamed into Airflow's log, because a
command that prints without end would fill it: its last lines are read when it has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.log import mask_secret

from lastgood.rules.contract_pod import COMMAND, DRILL, FETCH

if TYPE_CHECKING:  # every Airflow process reads the DAG file, and with it this one
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    from lastgood.flows.validation.pod_document import PodPlan
    from lastgood.flows.validation.pod_outcome import PodRun

_log = logging.getLogger(__name__)
_LINES, _LINE_CHARACTERS, _TAIL_BYTES = 40, 500, 64 << 10
_GRACE = timedelta(minutes=1)  # beyond the pod's own deadline, should its node be dead
_LOOK_SECONDS = 1.0
_ENDED = ("Succeeded", "Failed")
_DELETE_GRACE_SECONDS = 5


class RestoreInPod(BaseOperator):
    """Restore one copy that is still due by its contract, in a pod, and write the receipt."""

    template_fields: Sequence[str] = ()

    def __init__(self, *, project: str, copy_id: int, **options: Any) -> None:
        super().__init__(**options)
        self.project = project
        self.copy_id = copy_id
        self._pods: OperatorPods | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Answers what `scheduled.restore_copy` does."""
        from lastgood.flows import scheduled

        self._pods = OperatorPods(context)
        return dict(scheduled.restore_copy(self.project, self.copy_id, self._pods))

    def on_kill(self) -> None:
        """Whoever stops the task stops its pod."""
        if self._pods is not None:
            self._pods.stop()


class OperatorPods:
    """Runs pods, one after another, as the task whose context this is."""

    def __init__(
        self, context: Any, *, look_seconds: float = _LOOK_SECONDS, grace: timedelta = _GRACE
    ) -> None:
        self._context = context
        self._look_seconds = look_seconds
        self._grace = grace
        self._running: KubernetesPodOperator | None = None

    def run(self, plan: PodPlan) -> PodRun:
        """Run a pod to its end and delete it. See `flows.pod_level.Pods`."""
        seen = _Seen(plan)
        mask_secret(plan.secret)  # the client logs a pod that it could not make
        operator = self._operator(plan, seen)
        self._running = operator
        error = None
        try:
            with _ended_by(plan.deadline + self._grace, operator, seen):
                operator.execute_sync(self._context)
        except Exception as raised:  # a cluster has many ways to fail, and none proves anything
            error = f"{type(raised).__name__}: {raised}"
        finally:
            seen.look(operator)
            self._running = None
            _forget(operator)
        return seen.told(error)

    def stop(self) -> None:
        """Delete the pod that runs now."""
        if self._running is not None:
            self._running.on_kill()

    def _operator(self, plan: PodPlan, seen: _Seen) -> KubernetesPodOperator:
        from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
        from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

        look_seconds, startup = self._look_seconds, plan.pod.startup

        class EndedByItsPhase(KubernetesPodOperator):
            """The operator itself waits for a start, which a long fetching is not, and then for its
            container, which never runs if the first one fails."""

            def await_pod_start(self, pod: Any) -> None:
                """Nothing: the start is a part of what is waited for."""

            def await_pod_completion(self, pod: Any) -> None:  # type: ignore[override]
                moved = time.monotonic()
                while (found := self.pod_manager.read_pod(pod)).status.phase not in _ENDED:
                    if _moves(found):
                        moved = time.monotonic()
                    elif time.monotonic() - moved > startup.total_seconds():
                        raise TimeoutError(f"it waited for more than {startup}")
                    time.sleep(look_seconds)

        pod = plan.pod
        connection: dict[str, Any] = {}
        if pod.connection is not None:
            connection["kubernetes_conn_id"] = pod.connection
        return EndedByItsPhase(
            task_id=self._context["ti"].task_id,
            namespace=pod.namespace,
            labels=dict(plan.labels),
            pod_template_file=pod.template,
            full_pod_spec=PodGenerator.deserialize_model_dict(dict(plan.document)),
            base_container_name=COMMAND,
            durable=False,  # its lease ends with this process: a pod of before is of no use
            get_logs=False,
            log_events_on_failure=True,
            log_pod_spec_on_failure=False,  # the token of the lease stands there
            on_finish_action="keep_pod",  # it is looked at once more, and then deleted here
            termination_grace_period=_DELETE_GRACE_SECONDS,
            callbacks=seen,  # type: ignore[arg-type]
            deferrable=False,
            **connection,
        )


class _Seen:
    """What is seen of a pod before it is deleted."""

    def __init__(self, plan: PodPlan) -> None:
        self._plan = plan
        self._name = plan.name
        self._made = False
        self._status: Mapping[str, Any] = {}
        self._node: str | None = None
        self._lines: Sequence[str] = ()

    def told(self, error: str | None) -> PodRun:
        from lastgood.flows.validation.pod_outcome import PodRun

        return PodRun(self._name, self._status, error, self._node, self._lines, self._made)

    def look(self, operator: Any) -> None:
        """Remember the pod as it is now; what cannot be learnt just now is not."""
        if operator.pod is None:
            return
        self._made, self._name = True, operator.pod.metadata.name
        with suppress(Exception):
            found = operator.pod_manager.read_pod(operator.pod)
            seen = operator.client.api_client.sanitize_for_serialization(found)
            self._status, self._node = seen.get("status") or {}, found.spec.node_name
            container = COMMAND if self._began(COMMAND) else FETCH
            self._lines = _last_lines(operator, container)

    def _began(self, container: str) -> bool:
        return any(
            one["name"] == container and not (one.get("state") or {}).get("waiting")
            for one in self._status.get("containerStatuses") or ()
        )

    def on_pod_manifest_created(self, *, pod_request: Any, client: Any, **_: Any) -> None:
        """The operator calls back before it makes the pod: remove what a killed drill of the same
        copy left behind."""
        namespace = pod_request.metadata.namespace
        selector = f"{DRILL}={self._plan.labels[DRILL]}"
        for left in client.list_namespaced_pod(namespace, label_selector=selector).items:
            _log.warning("pod %s is of a drill that was killed: deleting it", left.metadata.name)
            _delete(client, left)

    def __getattr__(self, name: str) -> Any:
        """The operator calls back at more moments than are of interest."""
        if name.startswith(("on_", "progress_")):
            return _nothing
        raise AttributeError(name)


def _moves(pod: Any) -> bool:
    """Whether one of its containers runs."""
    statuses = [*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ())]
    return any(one.state is not None and one.state.running is not None for one in statuses)


def _nothing(**_: Any) -> None:
    """No interest."""


def _last_lines(operator: Any, container: str) -> list[str]:
    pod = operator.pod.metadata
    text = operator.client.read_namespaced_pod_log(
        pod.name,
        pod.namespace,
        container=container,
        tail_lines=_LINES,
        limit_bytes=_TAIL_BYTES,
        _preload_content=False,
        _request_timeout=(10, 30),
    ).data.decode(errors="replace")
    lines = text.replace("\0", "\\0").splitlines()[-_LINES:]
    return [line[:_LINE_CHARACTERS] for line in lines]


@contextmanager
def _ended_by(limit: timedelta, operator: KubernetesPodOperator, seen: _Seen) -> Iterator[None]:
    """Delete the pod if it is there for longer than its node should have allowed."""

    def end() -> None:
        seen.look(operator)
        _forget(operator)

    timer = threading.Timer(limit.total_seconds(), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _forget(operator: KubernetesPodOperator) -> None:
    """Delete the pod, if it was made and is still there. Whatever fails here is left to the pod's
    own deadline, and to the next drill of the copy."""
    if operator.pod is not None:
        with suppress(Exception):
            _delete(operator.client, operator.pod)


def _delete(client: Any, pod: Any) -> None:
    from kubernetes.client.exceptions import ApiException

    try:
        client.delete_namespaced_pod(
            pod.metadata.name,
            pod.metadata.namespace,
            grace_period_seconds=_DELETE_GRACE_SECONDS,
            _request_timeout=(10, 30),
        )
    except ApiException as error:
        if error.status != 404:
            raise
