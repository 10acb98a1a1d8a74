"""Stores that are registered no more, and those that are again."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
