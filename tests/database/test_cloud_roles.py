"""The first migration on a managed PostgreSQL, where the account that migrates is no superuser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pg8000.dbapi
import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from common import db
from common.config import settings
from common.db import ROLE_NAMES
from common.migrations import run as migrations
from local import cli, postgres

MIGRATOR = "migrator@project.iam"


class Connector:
    """Cloud SQL's connector, of which the way to the server is left out."""

    def __init__(self, server: postgres.Server) -> None:
        self._socket = str(server.socket)

    def connect(
        self, instance: str, driver: str, *, enable_iam_auth: bool, ip_type: str, db: str, **options: Any
    ) -> Any:
        assert (instance, driver, enable_iam_auth, ip_type) == ("p:r:i", "pg8000", True, "private")
        return pg8000.dbapi.connect(database=db, unix_sock=self._socket, **options)


@pytest.fixture(scope="module")
def migrator() -> Iterator[Engine]:
    """An empty instance as the cloud hands it over (a role that may make roles, and one account that is its member), after the migration
    job has run twice."""
    with postgres.throw_away() as running:
        as_superuser = {"isolation_level": "AUTOCOMMIT", "poolclass": sa.NullPool}
        with sa.create_engine(running.url("postgres"), **as_superuser).connect() as connection:
            connection.execute(sa.text("create role cloudsqlsuperuser nologin createrole createdb"))
            connection.execute(sa.text(f'create role "{MIGRATOR}" login in role cloudsqlsuperuser'))
            connection.execute(sa.text("create database memberintel owner cloudsqlsuperuser"))
        with sa.create_engine(running.url("memberintel"), **as_superuser).connect() as connection:
            connection.execute(sa.text("create extension vector"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(db, "_connector", lambda: Connector(running))
            patch.setenv("MEMBERINTEL_CLOUD_SQL_INSTANCE", "p:r:i")
            patch.setenv("MEMBERINTEL_CLOUD_SQL_USER", MIGRATOR)
            patch.delenv("MEMBERINTEL_DATABASE_URL", raising=False)
            for _ in range(2):
                settings.cache_clear()
                db.engine.cache_clear()
                assert cli.main(["migrate", "--data", str(running.folder)]) == 0
                db.engine("owner").dispose()
        settings.cache_clear()
        db.engine.cache_clear()
        engine = sa.create_engine(sa.make_url(running.url("memberintel")).set(username=MIGRATOR))
        yield engine
        engine.dispose()


def test_a_fresh_instance_is_migrated_and_a_second_time_changes_nothing(migrator: Engine) -> None:
    assert migrations.current(migrator) == migrations.head()


def test_no_account_that_logs_in_owns_a_table(migrator: Engine) -> None:
    with migrator.connect() as connection:
        owners = connection.execute(
            sa.text("select distinct tableowner from pg_tables where schemaname = 'public'")
        )
        assert owners.scalars().all() == [ROLE_NAMES["owner"]]
        assert connection.scalar(sa.text("select current_user")) == ROLE_NAMES["owner"]


def test_a_group_role_gives_no_login_and_no_way_around_a_policy(migrator: Engine) -> None:
    with migrator.connect() as connection:
        roles = connection.execute(
            sa.text("""
                select rolname from pg_roles
                where rolname = any(:names) and not (rolcanlogin or rolsuper or rolbypassrls or rolcreaterole)
            """),
            {"names": list(ROLE_NAMES.values())},
        )
        assert set(roles.scalars()) == set(ROLE_NAMES.values())
