"""Policies with rules for some workloads only, and marks of a million checkpoints."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
