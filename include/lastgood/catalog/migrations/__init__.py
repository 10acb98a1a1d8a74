"""The catalog's schema, a migration for each step. The SQL stands beside each, as SQL."""

from pathlib import Path

from alembic import op


def run_sql_beside(migration: str) -> None:
    """Run the SQL file that stands beside the Python file `migration`, in its transaction."""
    cursor = op.get_bind().connection.cursor()
    cursor.execute(Path(migration).with_suffix(".sql").read_text())
