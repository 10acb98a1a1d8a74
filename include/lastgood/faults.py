"""Points at which a test kills the process, to prove that the next run finishes or undoes the work.

Nothing happens unless both LASTGOOD_FAULTS_ALLOWED=1 and LASTGOOD_FAULT=<point> are set.
"""

from __future__ import annotations

import os
import signal

COMMIT_POINTS = (
    "acquire.after-transaction",
    "prepare.after-transaction",
    "prepare.before-uploads-are-recorded",
    "prepare.after-uploads",
    "commit.after-seal",
    "commit.after-complete",
    "commit.after-verify",
    "commit.after-manifest",
    "commit.in-transaction",
    "commit.after-transaction",
    "commit.after-marker",
    "commit.after-control-key",
)
SWEEP_POINTS = (
    "sweep.after-quarantine-transaction",
    "sweep.after-quarantine",
    "sweep.after-intent",
    "sweep.after-marker",
    "sweep.after-some-objects",
    "sweep.after-objects",
    "sweep.after-manifest",
    "sweep.after-listing",
    "sweep.after-proof",
)
CLEANUP_POINTS = (
    "cleanup.after-look",
    "cleanup.after-aborting",
    "cleanup.after-aborts",
    "cleanup.after-intent",
    "cleanup.after-some-objects",
    "cleanup.after-objects",
    "cleanup.after-proof",
)
UNDO_POINTS = (
    "undo.after-decision",
    "undo.after-store",
)
REBUILD_POINTS = (
    "rebuild.after-incarnation",
    "rebuild.after-identity",
    "rebuild.after-checkpoint",
    "rebuild.after-checkpoints",
    "rebuild.after-gone",
    "rebuild.after-stage",
    "rebuild.after-control-keys",
    "rebuild.after-end",
)
POINTS = COMMIT_POINTS + SWEEP_POINTS + CLEANUP_POINTS + UNDO_POINTS + REBUILD_POINTS
"""Every point of the code. A test walks over all of them."""


def point(name: str) -> None:
    """Die here, as by a power cut, if this point was asked for. `name` is one of POINTS."""
    assert name in POINTS, f"{name} is not registered in lastgood.faults"
    allowed = os.environ.get("LASTGOOD_FAULTS_ALLOWED") == "1"
    if allowed and os.environ.get("LASTGOOD_FAULT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
