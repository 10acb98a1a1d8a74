"""Alembic's entry: runs the migrations on the connection that `lastgood.catalog.migrate` made."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="alembic_version",
    version_table_schema="public",
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
