"""The migrations make exactly the tables that the models describe, and every table is under row level security."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from common.migrations import run as migrations
from common.models import Base
from tests.conftest import Database


def test_the_head_equals_the_models(module_database: Database) -> None:
    with module_database.engine("owner").connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == migrations.head()


def test_migrating_again_changes_nothing(module_database: Database) -> None:
    migrations.migrate(module_database.engine("owner"))
    assert migrations.current(module_database.engine("owner")) == migrations.head()


def test_every_table_is_under_forced_row_level_security(module_database: Database) -> None:
    open_tables = module_database.rows(
        "select relname from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"
        " and relname <> 'alembic_version' and not (relrowsecurity and relforcerowsecurity)"
    )
    assert open_tables == []
