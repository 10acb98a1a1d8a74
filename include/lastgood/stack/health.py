"""When the components of Airflow are ready to work, by their own word."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import httpx

from lastgood.stack.airflow import Addresses
from lastgood.stack.ports import LOOPBACK

_HEARTBEATS = {
    "scheduler": "latest_scheduler_heartbeat",
    "triggerer": "latest_triggerer_heartbeat",
    "dag_processor": "latest_dag_processor_heartbeat",
}


def waiting_for(addresses: Addresses, started_at: datetime) -> tuple[str, ...]:
    """Return the names of the components that are not ready; empty when all are.

    A heartbeat older than `started_at` is a former run's and does not count.
    """
    execution_url = f"http://{LOOPBACK}:{addresses.execution_port}/execution/health"
    missing = [] if _get(execution_url) is not None else ["execution-api"]
    health = _get(f"{addresses.airflow_url}/api/v2/monitor/health")
    if health is None:
        return (*missing, "api-server")
    for component, key in _HEARTBEATS.items():
        said = health[component]
        beat = said.get(key)
        if said["status"] != "healthy" or not beat or datetime.fromisoformat(beat) < started_at:
            missing.append(component.replace("_", "-"))
    return tuple(missing)


def _get(url: str) -> Mapping[str, Any] | None:
    try:
        answer = httpx.get(url, timeout=5, trust_env=False)
        answer.raise_for_status()
        content: Mapping[str, Any] = answer.json()
    except (httpx.HTTPError, ValueError):
        return None
    return content
