"""The coordinator behind Airflow's own users, as a process: started with a DSN and a port, it
prints the token of each role once it serves."""

from __future__ import annotations

import asyncio
import json
import sys

import uvicorn
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from lastgood.coordinator.operators.auth import AirflowGuard
from lastgood.coordinator.serve import standalone


async def main(dsn: str) -> None:
    manager = init_auth_manager()
    app = standalone(dsn)
    (mounted,) = [route.app for route in app.routes]  # type: ignore[attr-defined]
    assert isinstance(mounted.state.operator_guard, AirflowGuard)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.02)
    users = [SimpleAuthManagerUser(username=role, role=role) for role in ("viewer", "op")]
    told = {
        "port": server.servers[0].sockets[0].getsockname()[1],
        "tokens": {user.username: manager.generate_jwt(user) for user in users},
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
