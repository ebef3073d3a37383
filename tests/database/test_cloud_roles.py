"""The first migration on a managed PostgreSQL, where the account that migrates is no superuser."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from common.db import ROLE_NAMES
from common.migrations import run as migrations
from common.migrations.roles import make_roles
from local import postgres

MIGRATOR = "migrator@project.iam"


@pytest.fixture(scope="module")
def migrator() -> Iterator[Engine]:
    """An empty instance as the cloud hands it over: a role that may make roles, and one account that is its member."""
    with (
        tempfile.TemporaryDirectory(prefix="memberintel-test-") as folder,
        postgres.server(Path(folder), durable=False) as running,
    ):
        Path(folder).chmod(0o755)
        as_superuser = {"isolation_level": "AUTOCOMMIT", "poolclass": sa.NullPool}
        with sa.create_engine(running.url("postgres"), **as_superuser).connect() as connection:
            connection.execute(sa.text("create role cloudsqlsuperuser nologin createrole createdb"))
            connection.execute(sa.text(f'create role "{MIGRATOR}" login in role cloudsqlsuperuser'))
            connection.execute(sa.text("create database memberintel owner cloudsqlsuperuser"))
        with sa.create_engine(running.url("memberintel"), **as_superuser).connect() as connection:
            connection.execute(sa.text("create extension vector"))
        engine = sa.create_engine(sa.make_url(running.url("memberintel")).set(username=MIGRATOR))
        for _ in range(2):
            make_roles(engine)
            migrations.migrate(engine)
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
