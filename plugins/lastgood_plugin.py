"""Mounts the coordinator and its pages in Airflow's api-server.

Every process of Airflow loads this file, and only the api-server needs the coordinator, so it is
imported when the api-server asks for the apps to mount. It is mounted as a FastAPI app itself, not
behind a shim, because Airflow runs the lifespan of mounted FastAPI apps and of nothing else.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin


class LastgoodPlugin(AirflowPlugin):
    """The coordinator under /lastgood, and its pages in the navigation."""

    name = "lastgood"
    # Without a leading slash, so that they also hold where Airflow itself is served under a path.
    external_views: ClassVar[list[dict[str, Any]]] = [
        {
            "name": "Checkpoints",
            "href": "lastgood/pages/",
            "destination": "nav",
            "url_route": "lastgood",
            "category": "browse",
        },
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # built on demand
        """The app to mount. Only the api-server reads this."""
        from lastgood.coordinator.app import create_app

        return [{"app": create_app(), "url_prefix": "/lastgood", "name": "lastgood"}]
