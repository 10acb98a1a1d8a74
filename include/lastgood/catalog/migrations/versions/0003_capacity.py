"""Capacity states and the proofs that room can be made."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
