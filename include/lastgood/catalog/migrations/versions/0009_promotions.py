"""Promotions of policies, and replayed marks."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
