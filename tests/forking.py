"""Processes that are forked from one that has imported what they need: importing takes far longer
than what they do."""

from __future__ import annotations

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        "pytest",
        "lastgood.catalog.connect",
        "lastgood.catalog.migrate",
        "lastgood.cli.app",
        "lastgood.coordinator.serve",
        "lastgood.flows.rebuilding.rebuild",
        "lastgood.flows.scheduled",
        "tests.cli.conftest",
        "tests.coordinator.serving",
    ]
)
