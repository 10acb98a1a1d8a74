"""`python -m lastgood.stack up|down|status|env|clean`: the embedded stack of this checkout."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from collections.abc import Callable, Sequence

import psutil

from lastgood.stack import control
from lastgood.stack.airflow import settings, write_passwords
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.processes import ProcessIdentity
from lastgood.stack.state import StackState
from lastgood.stack.supervisor import Supervisor
from lastgood.standard_streams import show_any_character

_NOT_RUNNING = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a failure, or 3 when no stack runs."""
    parser = argparse.ArgumentParser(prog="python -m lastgood.stack", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (run, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if name == "status":
            command.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    show_any_character()
    try:
        status: int = options.run(StackLayout.current(), options)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return status


def _up(layout: StackLayout, options: argparse.Namespace) -> int:
    state = control.up(layout, lambda line: print(line, flush=True))
    print(f"{state.seconds_since_start:5.1f} s  ready")
    print_access(layout, state)
    return 0


def print_access(layout: StackLayout, state: StackState) -> None:
    """Print where the stack's pages are, and who may log in."""
    assert state.addresses is not None
    passwords = write_passwords(layout)
    print(f"Airflow     {state.addresses.airflow_url}")
    print(f"Coordinator {state.addresses.airflow_url}/lastgood")
    print("Users       " + ", ".join(f"{user} / {passwords[user]}" for user in passwords))
    print(f"Logs        {layout.logs}")


def _down(layout: StackLayout, options: argparse.Namespace) -> int:
    print("stopped" if control.down(layout) else "nothing runs")
    return 0


def _status(layout: StackLayout, options: argparse.Namespace) -> int:
    state = control.running(layout)
    if state is None:
        _say_how_it_ended(StackState.read(layout.state), as_json=options.json)
        return _NOT_RUNNING
    memory = {name: _resident_bytes(process) for name, process in state.processes.items()}
    if options.json:
        url = state.addresses.airflow_url if state.addresses else None
        said = {"phase": state.phase, "doing": state.doing, "url": url}
        print(json.dumps({**said, "restarts": dict(state.restarts), "resident_bytes": memory}))
    else:
        print(f"{state.phase}: {state.doing}")
        for name, process in state.processes.items():
            print(f"{name:14} pid {process.pid:<8} {memory[name] / 2**20:7.0f} MiB")
        print(f"{'together':14} {sum(memory.values()) / 2**20:20.0f} MiB")
        if state.addresses:
            print_access(layout, state)
    return 0 if state.phase == "ready" else 1


def _say_how_it_ended(last: StackState | None, *, as_json: bool) -> None:
    failed = last is not None and last.phase not in ("stopping", "stopped")
    reason = ""
    if last is not None and failed:
        reason = last.doing if last.phase == "failed" else "its supervisor was killed"
    if as_json:
        print(json.dumps({"failed": reason} if failed else {}))
    else:
        print(f"nothing runs; the last stack failed: {reason}" if failed else "nothing runs")


def _resident_bytes(process: ProcessIdentity) -> int:
    """The process and its descendants; pages that forked processes share are divided among them."""
    total = 0
    for member in process.family():
        try:
            memory = psutil.Process(member.pid).memory_full_info()
        except psutil.Error:
            continue
        total += getattr(memory, "pss", memory.rss)
    return total


def _env(layout: StackLayout, options: argparse.Namespace) -> int:
    state = control.running(layout)
    if state is None or state.addresses is None:
        print("nothing runs; start it with `make up`", file=sys.stderr)
        return _NOT_RUNNING
    for name, value in settings(layout, state.addresses).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _clean(layout: StackLayout, options: argparse.Namespace) -> int:
    control.clean(layout)
    return 0


def _supervise(layout: StackLayout, options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("alembic", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return Supervisor(layout).run()


_COMMANDS: dict[str, tuple[Callable[[StackLayout, argparse.Namespace], int], str]] = {
    "up": (_up, "start the stack in the background and wait until it is ready"),
    "down": (_down, "stop the stack and every process of it"),
    "status": (_status, "say what runs, where, and how much memory it takes"),
    "env": (_env, "print the shell settings with which `airflow` and `lastgood` use this stack"),
    "clean": (_clean, "stop the stack and delete everything that it stored"),
    "supervise": (_supervise, "run the stack in the foreground until a signal ends it"),
}

if __name__ == "__main__":
    sys.exit(main())
