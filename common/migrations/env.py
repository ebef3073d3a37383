"""Runs migrations over the connection that the caller hands in (`common.migrations.run`)."""

from alembic import context

from common.models import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    compare_type=True,
    compare_server_default=True,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
