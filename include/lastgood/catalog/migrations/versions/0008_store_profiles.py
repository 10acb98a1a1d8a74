"""What stores were found to do, and the store that is this database."""

from lastgood.catalog.migrations import run_sql_beside

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run_sql_beside(__file__)


def downgrade() -> None:
    raise NotImplementedError("history is append-only: restore a dump instead")
