"""The process that owns a running stack: it starts the parts in order, watches them, and ends them.

Start: PostgreSQL, then both schemas, the configuration, and Airflow's components.
Stop, in the opposite order, so that a running task can still report how it ended.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from contextlib import ExitStack
from datetime import UTC, datetime
from types import FrameType

from lastgood.stack import children as processes
from lastgood.stack import object_store
from lastgood.stack.airflow import Addresses, Component, components, environment
from lastgood.stack.children import Child
from lastgood.stack.errors import StackError
from lastgood.stack.health import waiting_for
from lastgood.stack.homes import acquire_lock
from lastgood.stack.layout import StackLayout
from lastgood.stack.postgres import EmbeddedPostgres, stop_leftover
from lastgood.stack.preparation import (
    AirflowSeeding,
    open_databases,
    prepare_catalog,
    start_server,
)
from lastgood.stack.processes import ProcessIdentity
from lastgood.stack.semaphores import require_semaphores
from lastgood.stack.state import Phase, StackState

_log = logging.getLogger(__name__)
_READY_SECONDS = 900.0  # one that ends before is noticed at once
_LOOK_SECONDS = 0.5
_RESTARTS = 5
_RESTARTS_WITHIN_SECONDS = 600.0
_API_SERVERS = ("execution-api", "api-server")


class StopRequested(Exception):
    """Somebody asked the supervisor to end."""


class Supervisor:
    """One stack from its start to its end, in the calling process."""

    def __init__(self, layout: StackLayout) -> None:
        self.layout = layout
        self._started = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._postgres: EmbeddedPostgres | None = None
        self._addresses: Addresses | None = None
        self._children: dict[str, Child] = {}
        self._restarts: dict[str, deque[float]] = {}
        self._stopping = False
        self._ports = ExitStack()  # for as long as it lives: parts that end are started again there

    def run(self) -> int:
        """Run the stack until a signal ends it; return 0 then, and 1 when it failed."""
        self.layout.create()
        with acquire_lock(self.layout.var), self._ports:
            self._take_signals()
            failure = self._run_until_asked()
            self._stop()
            self._say("failed" if failure else "stopped", failure or "stopped")
        return 1 if failure else 0

    def _run_until_asked(self) -> str | None:
        try:
            try:
                self._start()
                self._watch()
            finally:
                # From here on a further signal changes nothing, wherever it strikes.
                self._stopping = True
        except StopRequested:
            _log.info("asked to stop")
        except Exception as error:
            _log.exception("the stack failed")
            return str(error)
        return None

    def _take_signals(self) -> None:
        # A process that a script starts in the background inherits an ignored SIGINT, and so would
        # the components; a handler of ours is reset to the default in each of them.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._stopping:
            self._stopping = True
            raise StopRequested

    def _start(self) -> None:
        state = StackState.read(self.layout.state)
        former = state.addresses if state else None
        self._say("starting", "removing what a killed run left")
        processes.kill_strays(self.layout.var)
        require_semaphores()
        if self.layout.on_s3:
            self._say("starting", "the S3 store")
        object_store.start(self.layout)
        self._say("starting", "PostgreSQL")
        self._postgres = start_server(self.layout, former, self._ports)
        self._addresses = addresses = open_databases(self._postgres, former, self._ports)
        self._say("starting", "the schemas and the configuration")
        seeding = AirflowSeeding(self.layout, addresses)
        prepare_catalog(self.layout, self._postgres, addresses)
        seeding.finish()
        self._say("starting", "Airflow")
        for component in components(addresses):
            self.layout.log_of(component.name).unlink(missing_ok=True)
            self._start_component(component, addresses)
        self._wait_until_ready(addresses)
        self._say("ready", "serving")

    def _start_component(self, component: Component, addresses: Addresses) -> None:
        self._children[component.name] = Child.start(
            component,
            environment(self.layout, addresses),
            self.layout.airflow_home,
            self.layout.log_of(component.name),
        )

    def _wait_until_ready(self, addresses: Addresses) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while missing := waiting_for(addresses, self._started_at):
            self._say("starting", f"waiting for {', '.join(missing)}")
            for child in self._children.values():
                if child.exit_status() is not None:
                    raise StackError(child.death_notice())
            if time.monotonic() > deadline:
                first = missing[0]
                raise StackError(
                    f"{', '.join(missing)} not ready after {_READY_SECONDS:.0f} s; the end of "
                    f"{self.layout.log_of(first)}:\n{processes.tail(self.layout.log_of(first))}"
                )
            time.sleep(_LOOK_SECONDS)

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if self._postgres and not self._postgres.is_running():
                self._restart_postgres(self._postgres)
            for name, child in list(self._children.items()):
                if child.exit_status() is not None:
                    self._restart(name, child)

    def _restart(self, name: str, child: Child) -> None:
        self._count_restart(name, child.death_notice())
        assert self._addresses is not None
        self._start_component(child.component, self._addresses)
        self._say("ready", f"{name} was started again")

    def _restart_postgres(self, server: EmbeddedPostgres) -> None:
        self._count_restart("postgres", f"PostgreSQL ended; see {server.home}/server.log")
        server.restart()
        self._say("ready", "PostgreSQL was started again")

    def _count_restart(self, name: str, notice: str) -> None:
        recent = self._restarts.setdefault(name, deque(maxlen=_RESTARTS))
        if len(recent) == _RESTARTS and time.monotonic() - recent[0] < _RESTARTS_WITHIN_SECONDS:
            raise StackError(f"{name} ended too often\n{notice}")
        recent.append(time.monotonic())
        _log.error("%s\nstarting it again", notice)

    def _stop(self) -> None:
        self._say("stopping", "Airflow")
        serving = [c for name, c in self._children.items() if name in _API_SERVERS]
        working = [c for name, c in self._children.items() if name not in _API_SERVERS]
        for group in (working, serving):
            processes.stop(group)
        processes.kill_strays(self.layout.var)
        self._say("stopping", "PostgreSQL")
        if self._postgres is None:
            stop_leftover(self.layout.postgres)
        else:
            self._postgres.stop()
        object_store.stop(self.layout)

    def _say(self, phase: Phase, doing: str) -> None:
        supervisor = ProcessIdentity.of(os.getpid())
        assert supervisor is not None
        running = {name: child.identity for name, child in self._children.items()}
        if self._postgres is not None and (pid := self._postgres.pid):
            identity = ProcessIdentity.of(pid)
            running |= {"postgres": identity} if identity else {}
        StackState(
            phase,
            doing,
            supervisor,
            time.monotonic() - self._started,
            self._addresses,
            {} if phase in ("stopped", "failed") else running,
            {name: len(times) for name, times in self._restarts.items()},
        ).write(self.layout.state)
