"""Fixtures: one throw-away PostgreSQL a test process, and a fresh copy of the migrated database wherever one is asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from hypothesis import settings as hypothesis_settings
from sqlalchemy import Engine

from common.config import Settings
from common.db import Role, connecting, make_engine
from common.migrations import run as migrations
from local import postgres

hypothesis_settings.register_profile("untimed", deadline=None)  # no test asserts on time
hypothesis_settings.load_profile("untimed")

NOW = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.throw_away() as running:
        postgres.create_database(running, "template")
        owner = sa.create_engine(running.url("template", "memberintel_owner"), poolclass=sa.NullPool)
        migrations.migrate(owner)
        yield running


@pytest.fixture(scope="session", autouse=True)
def servers_data_goes_with_its_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The data of servers in the tests' folders, which stands outside of them where these keep the server's account out."""
    yield
    for note in tmp_path_factory.getbasetemp().rglob("postgres.where"):
        postgres.remove(note.parent)


@dataclass
class Database:
    """A migrated database of a test's own, and engines for it as each role."""

    server: postgres.Server
    name: str

    def __post_init__(self) -> None:
        self._engines: dict[tuple[str, int], Engine] = {}
        self.settings = Settings(database_url=self.server.url(self.name))

    def engine(self, role: Role, pool_size: int = 3) -> Engine:
        """An engine as the real role, with the guard and the server-side limits of production."""
        key = (role, pool_size)
        if key not in self._engines:
            self._engines[key] = make_engine(self.settings, role, pool_size=pool_size)
        return self._engines[key]

    @property
    def superuser(self) -> Engine:
        """Sees everything: for arranging and for looking afterwards, never for what is under test."""
        if ("postgres", 0) not in self._engines:
            url = sa.make_url(self.server.url(self.name))
            self._engines["postgres", 0] = sa.create_engine(url, creator=connecting(url), pool_size=3)
        return self._engines["postgres", 0]

    def rows(self, sql: str, **parameters: object) -> list[sa.Row]:
        """What `sql` returns to the superuser."""
        with self.superuser.begin() as connection:
            return list(connection.execute(sa.text(sql), parameters))

    def scalar(self, sql: str, **parameters: object) -> object:
        return self.rows(sql, **parameters)[0][0]

    def run(self, sql: str, **parameters: object) -> int:
        """Execute `sql` as the superuser; returns the number of rows it touched."""
        with self.superuser.begin() as connection:
            return connection.execute(sa.text(sql), parameters).rowcount

    def dispose(self) -> None:
        for engine in self._engines.values():
            engine.dispose()


@pytest.fixture
def database(postgres_server: postgres.Server) -> Iterator[Database]:
    """A database as empty as after the migrations."""
    yield from _copy(postgres_server)


@pytest.fixture(scope="module")
def module_database(postgres_server: postgres.Server) -> Iterator[Database]:
    """The same, shared by the tests of a module."""
    yield from _copy(postgres_server)


def _copy(server: postgres.Server) -> Iterator[Database]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = sa.create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.execute(sa.text(f"create database {name} template template owner memberintel_owner"))
    made = Database(server, name)
    try:
        yield made
    finally:
        made.dispose()
        with admin.connect() as connection:
            connection.execute(sa.text(f"drop database {name} with (force)"))


@dataclass(frozen=True)
class Person:
    """A user with a tenant and a site, as rows."""

    user_id: uuid.UUID
    tenant_id: uuid.UUID
    site_id: uuid.UUID
    email: str


def add_person(
    database: Database,
    email: str,
    *,
    tier: str = "pro",
    timezone: str = "Europe/Berlin",
    issuer: str = "local",
) -> Person:
    """A new tenant, user and site in `database`."""
    person = Person(uuid.uuid4(), uuid.uuid4(), uuid.uuid4(), email)
    database.run(
        "insert into tenants (id, name, tier) values (:id, :name, :tier)",
        id=person.tenant_id,
        name=email,
        tier=tier,
    )
    database.run(
        "insert into users (id, tenant_id, email, issuer, subject) values (:id, :tenant_id, :email, :issuer, :email)",
        id=person.user_id,
        tenant_id=person.tenant_id,
        email=email,
        issuer=issuer,
    )
    database.run(
        "insert into sites (id, user_id, name, currency, timezone, data_as_of) values (:id, :user_id, 'Club', 'USD', :timezone, :now)",
        id=person.site_id,
        user_id=person.user_id,
        timezone=timezone,
        now=NOW,
    )
    return person
