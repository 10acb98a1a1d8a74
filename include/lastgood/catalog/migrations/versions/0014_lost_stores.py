"""Stores that were given up with what lay in them."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
