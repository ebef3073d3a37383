"""An error while parameters are encoded must not leave a pooled connection one reply out of step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from common.db import Role, ask, error_name, retried, statement, transaction, user_transaction
from common.errors import Unavailable
from tests.conftest import Database, Person, add_person

TRIGGERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a lone surrogate": ("select :value", {"value": "\ud800"}),
    "a value that cannot be serialised": ("select :value", {"value": {"a": object()}}),
    "too many parameters": (
        "select " + ", ".join(f":p{n}" for n in range(66_000)),
        {f"p{n}": n for n in range(66_000)},
    ),
}


Way = Callable[[Connection, str, dict[str, Any]], Any]


def by_execute(connection: Connection, sql: str, values: dict[str, Any]) -> Any:
    return connection.execute(sa.text(sql), values).scalar()


def by_ask(connection: Connection, sql: str, values: dict[str, Any]) -> Any:
    (row,) = ask(connection, statement("value", sql), values)
    return row.value


both_ways = pytest.mark.parametrize("way", [by_execute, by_ask])


def notes_of(engine: Engine, person: Person) -> list[str]:
    with user_transaction(person.user_id, source=engine) as connection:
        return list(connection.execute(sa.text("select name from sites")).scalars())


@pytest.fixture(scope="module")
def people(module_database: Database) -> tuple[Person, Person]:
    alice, bob = add_person(module_database, "alice@x.example"), add_person(module_database, "bob@x.example")
    for person in (alice, bob):
        module_database.run(
            "update sites set name = :email where user_id = :id", email=person.email, id=person.user_id
        )
    return alice, bob


@pytest.mark.parametrize("trigger", TRIGGERS, ids=list(TRIGGERS))
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("autocommit", [False, True])
@both_ways
def test_later_reads_of_two_users_are_right(
    module_database: Database,
    people: tuple[Person, Person],
    trigger: str,
    times: int,
    autocommit: bool,
    way: Way,
) -> None:
    alice, bob = people
    engine = module_database.engine("app", pool_size=1)
    sql, values = TRIGGERS[trigger]
    used = engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else engine
    for _ in range(times):
        with pytest.raises(Exception), used.connect() as connection:  # noqa: B017 - the driver raises what it will
            way(connection, sql, values)
    for _ in range(3):
        assert notes_of(engine, alice) == [alice.email]
        assert notes_of(engine, bob) == [bob.email]


@both_ways
def test_an_error_of_the_servers_keeps_the_connection(
    module_database: Database, people: tuple[Person, Person], way: Way
) -> None:
    engine = module_database.engine("app", pool_size=1)

    def backend() -> int:
        with engine.begin() as connection:
            return int(connection.scalar(sa.text("select pg_backend_pid()")))

    before = backend()
    with pytest.raises(sa.exc.DBAPIError) as raised, engine.begin() as connection:
        way(connection, "select 1 / cast(:secret as int)", {"secret": 0})
    assert error_name(raised.value) == "22012"
    assert backend() == before
    assert notes_of(engine, people[0]) == [people[0].email]


@both_ways
def test_where_the_server_ends_one_connection_all_of_the_pool_are_made_anew(
    module_database: Database, people: tuple[Person, Person], way: Way
) -> None:
    engine = module_database.engine("app", pool_size=2)
    with engine.connect() as one, engine.connect() as other:
        ended = [int(way(c, "select pg_backend_pid() + :none", {"none": 0})) for c in (one, other)]
    module_database.run(
        "select pg_terminate_backend(pid) from unnest(cast(:ended as int[])) as pid", ended=ended
    )
    with pytest.raises(Unavailable), transaction("app", source=engine) as connection:
        way(connection, "select pg_backend_pid() + :none", {"none": 0})
    with engine.connect() as one, engine.connect() as other:
        made = {int(way(c, "select pg_backend_pid() + :none", {"none": 0})) for c in (one, other)}
    assert len(made) == 2
    assert not made & set(ended)
    assert notes_of(engine, people[0]) == [people[0].email]


@pytest.mark.parametrize("role", ["app", "jobs", "sweep", "admin_read"])
def test_the_server_limits_statements_and_idle_transactions(module_database: Database, role: Role) -> None:
    with module_database.engine(role).begin() as connection:
        assert connection.scalar(sa.text("show statement_timeout")) == "30s"
        assert connection.scalar(sa.text("show idle_in_transaction_session_timeout")) == "1min"


def test_who_stands_in_anothers_way_is_tried_again_and_is_no_fault_of_ours_in_the_end(
    module_database: Database,
) -> None:
    waits: list[float] = []
    tries: list[str] = []

    def deadlock() -> None:
        tries.append("")
        with transaction("app", source=module_database.engine("app")) as connection:
            connection.execute(sa.text("do $$ begin raise exception 'x' using errcode = '40P01'; end $$"))

    with pytest.raises(Unavailable):
        retried(deadlock, attempts=3, sleep=waits.append)
    assert len(tries) == 3
    assert waits == [0.2, 0.8]
