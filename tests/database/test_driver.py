"""Statements in one round trip, prepared once a connection; what nobody waits for goes with the next one."""

from __future__ import annotations

import contextlib
import io
import threading
from typing import Any

import pg8000
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from common import driver
from common.db import (
    ask,
    ask_with_next,
    binary,
    commit_with_next,
    copy_out,
    error_name,
    heard,
    in_user_transaction,
    set_local,
    set_user,
    statement,
    transaction,
    user_transaction,
)
from common.errors import Unavailable
from tests.conftest import Database, Person, add_person


def prepared(connection: Connection) -> list[str]:
    """The statements that the server keeps for this connection, by its own view."""
    return list(
        connection.exec_driver_sql("select statement from pg_prepared_statements order by name").scalars()
    )


def opened(connection: Connection) -> driver.Connection:
    found: Any = connection.connection.driver_connection
    assert isinstance(found, driver.Connection)
    return found


@pytest.fixture
def person(database: Database) -> Person:
    return add_person(database, "alice@x.example")


def test_a_statement_is_prepared_once_and_gives_the_same_each_time(database: Database) -> None:
    statement = sa.text("select cast(:n as int) + 1 as more, cast(:t as text) as said")
    with transaction("app", source=database.engine("app", 1)) as connection:
        for n in range(3):
            row = connection.execute(statement, {"n": n, "t": None if n else "x"}).one()
            assert (row.more, row.said) == (n + 1, None if n else "x")
        assert len(prepared(connection)) == 1


def test_a_connection_keeps_a_bounded_number_of_statements(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PREPARED", 3)
    with transaction("app", source=database.engine("app", 1)) as connection:
        for n in range(6):
            assert connection.scalar(sa.text(f"select cast(:n as int) + {n}"), {"n": 1}) == 1 + n
        assert [text[-1] for text in prepared(connection)] == ["3", "4", "5"]
        assert connection.scalar(sa.text("select cast(:n as int) + 0"), {"n": 1}) == 1


def test_what_is_dropped_or_asked_twice_leaves_no_statement_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PREPARED", 3)
    engine = database.engine("app", 1)
    for n in range(6):
        with transaction("app", source=engine) as connection:
            for more in range(3):
                connection.execute(sa.text(f"select cast(:n as int) + {10 * n + more}"), {"n": 1})
        with transaction("app", source=engine) as connection:
            set_local(connection, {"app.user_id": ""})
        with transaction("app", source=engine) as connection:
            set_local(connection, {"app.user_id": ""})
            set_local(connection, {"app.user_id": ""})
            connection.execute(sa.text("select cast(:n as int)"), {"n": 1})
    with transaction("app", source=engine) as connection:
        connection.execute(sa.text("select 0 + cast(:n as int)"), {"n": 1})
        assert len(prepared(connection)) <= 3


def test_a_statement_that_the_server_refused_is_not_kept(database: Database) -> None:
    engine = database.engine("app", 1)
    divide = sa.text("select 1 / cast(:n as int) as ratio")
    for _ in range(2):
        with pytest.raises(sa.exc.DBAPIError, match="22012"), transaction("app", source=engine) as connection:
            connection.execute(divide, {"n": 0})
        with transaction("app", source=engine) as connection:
            assert connection.scalar(divide, {"n": 1}) == 1
    with pytest.raises(sa.exc.DBAPIError, match="42601"), transaction("app", source=engine) as connection:
        connection.execute(sa.text("select from where :n"), {"n": 1})
    with transaction("app", source=engine) as connection:
        assert len(prepared(connection)) == 1


def test_a_setting_holds_for_its_transaction_alone(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)
    with transaction("app", source=engine) as connection:
        set_local(connection, {"app.user_id": str(person.user_id), "lock_timeout": "1234"})
        assert connection.scalar(sa.text("select count(*) from sites")) == 1
        assert connection.scalar(sa.text("show lock_timeout")) == "1234ms"
    with transaction("app", source=engine) as connection:
        assert connection.scalar(sa.text("select count(*) from sites")) == 0
        assert connection.scalar(sa.text("show lock_timeout")) == "0"


def test_a_setting_that_the_server_refuses_stops_the_statement_after_it(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 1)
    update = sa.text("update sites set name = 'changed' where user_id = :user_id")

    def set_and_update(connection: Connection) -> None:
        set_local(connection, {"lock_timeout": "no number"})
        connection.execute(update, {"user_id": person.user_id})

    with pytest.raises(sa.exc.DBAPIError, match="22023"):
        in_user_transaction(person.user_id, set_and_update, source=engine)
    assert database.scalar("select name from sites") == "Club"
    with user_transaction(person.user_id, source=engine) as connection:
        assert connection.execute(update, {"user_id": person.user_id}).rowcount == 1


def test_a_transaction_in_which_nothing_is_asked_is_not_begun(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)
    with user_transaction(person.user_id, source=engine) as connection:
        mine = opened(connection)
        assert mine.waiting
    assert not mine.waiting
    assert not mine._in_transaction
    with pytest.raises(LookupError), user_transaction(person.user_id, source=engine):
        raise LookupError
    assert not mine.waiting
    with transaction("app", source=engine) as connection:
        assert connection.scalar(sa.text("select count(*) from sites")) == 0


def test_a_savepoint_undoes_what_came_after_it_and_no_more(database: Database, person: Person) -> None:
    rename = sa.text("update sites set name = :name where user_id = :user_id")
    with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
        connection.execute(rename, {"name": "kept", "user_id": person.user_id})
        undone = connection.begin_nested()
        connection.execute(rename, {"name": "undone", "user_id": person.user_id})
        with pytest.raises(sa.exc.DBAPIError, match="22012"):
            connection.execute(sa.text("select 1 / cast(:n as int)"), {"n": 0})
        undone.rollback()
        with connection.begin_nested():
            assert connection.scalar(sa.text("select name from sites")) == "kept"
    assert database.scalar("select name from sites") == "kept"


def test_a_table_that_changed_under_a_prepared_statement_is_read_by_a_new_connection(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 1)

    def read(connection: Connection) -> list[str]:
        read_all = sa.text("select * from sites where user_id = :user_id")
        return list(connection.execute(read_all, {"user_id": person.user_id}).keys())

    before = in_user_transaction(person.user_id, read, source=engine)
    database.run("alter table sites add column motto text")
    assert in_user_transaction(person.user_id, read, source=engine) == [*before, "motto"]


def test_an_answer_of_many_pieces_is_read_whole(database: Database) -> None:
    with transaction("app", source=database.engine("app", 1)) as connection:
        large = connection.scalar(sa.text("select repeat(cast(:text as text), 300000)"), {"text": "é"})
        assert large == "é" * 300_000
        rows = connection.execute(
            sa.text("select generate_series(1, cast(:n as int))"), {"n": 50_000}
        ).scalars()
        assert sum(rows) == 50_000 * 50_001 // 2


def test_a_savepoint_that_the_server_will_not_release_is_known_at_once(
    database: Database, person: Person
) -> None:
    def fail_within_two(connection: Connection) -> None:
        with connection.begin_nested(), connection.begin_nested(), contextlib.suppress(sa.exc.DBAPIError):
            connection.execute(sa.text("select 1 / cast(:n as int)"), {"n": 0})

    with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
        connection.execute(_RENAME, {"name": "Kept", "user_id": person.user_id})
        with pytest.raises(sa.exc.DBAPIError, match="25P02"):
            fail_within_two(connection)
    assert database.scalar("select name from sites") == "Kept"


def test_any_number_of_savepoints_may_follow_each_other(database: Database) -> None:
    with transaction("app", source=database.engine("app", 1)) as connection:
        for _ in range(2 * driver.WAITING):
            with connection.begin_nested():
                assert len(opened(connection).waiting) <= driver.WAITING
        assert connection.scalar(sa.text("select cast(:n as int)"), {"n": 1}) == 1


def test_a_percent_sign_in_quotes_is_no_placeholder(database: Database) -> None:
    with transaction("app", source=database.engine("app", 1)) as connection:
        statement = sa.text("select 'a%s %', cast(:n as int)")
        assert tuple(connection.execute(statement, {"n": 7}).one()) == ("a%s %", 7)


def test_what_waits_outside_a_transaction_does_not_wait_for_the_next_user(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(pg8000.ProgrammingError):
            set_user(connection, person.user_id)
        mine = opened(connection)
        assert not mine.waiting
        with pytest.raises(sa.exc.DBAPIError, match="25P01"):
            connection.exec_driver_sql("SAVEPOINT nowhere")
    with transaction("app", source=engine) as connection:
        assert opened(connection) is mine
        assert connection.scalar(sa.text("select count(*) from sites")) == 0


def test_the_commit_of_a_failed_transaction_is_refused_and_costs_no_connection(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 2)
    with transaction("app", source=engine) as other:
        kept = opened(other)

    def work(connection: Connection) -> None:
        tries.append(connection)
        with contextlib.suppress(sa.exc.DBAPIError):
            connection.execute(sa.text("select 1 / cast(:n as int)"), {"n": 0})

    tries: list[Connection] = []
    with pytest.raises(sa.exc.DBAPIError) as caught:
        in_user_transaction(person.user_id, work, source=engine)
    assert error_name(caught.value) == "25P02"
    assert len(tries) == 1
    with transaction("app", source=engine) as other:
        assert opened(other) is kept


def test_whoever_reads_is_woken_when_another_thread_closes_the_connection(database: Database) -> None:
    engine = database.engine("app", 1)
    said: list[BaseException] = []

    def read() -> None:
        try:
            with transaction("app", source=engine) as connection:
                taken.append(connection)
                asking.set()
                connection.execute(sa.text("select pg_sleep(25), cast(:n as int)"), {"n": 1})
        except Exception as exc:
            said.append(exc)

    taken: list[Connection] = []
    asking = threading.Event()
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert asking.wait(20)
    _wait_until_it_sleeps(database)
    taken[0].invalidate()
    reader.join(15)
    assert [type(error) for error in said] == [Unavailable]


def _wait_until_it_sleeps(database: Database) -> None:
    sleeping = (
        "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
    )
    while not database.scalar(sleeping):
        pass


class _Dribble:
    """A socket that gives one byte at a time."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def recv(self, _size: int) -> Any:
        return self.real.recv(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_an_answer_that_comes_byte_by_byte_is_read_whole(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)
    with user_transaction(person.user_id, source=engine) as connection:
        mine: Any = opened(connection)
        real, mine._usock = mine._usock, _Dribble(mine._usock)
        try:
            for _ in range(2):
                rows = connection.execute(
                    sa.text("select name, cast(:t as text) as t from sites"), {"t": "é"}
                ).all()
                assert [tuple(row) for row in rows] == [("Club", "é")]
        finally:
            mine._usock = real


@pytest.mark.parametrize("nth", [1, 2])
def test_a_read_that_is_interrupted_costs_the_connection(
    database: Database, person: Person, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    engine = database.engine("app", 1)
    read_name = sa.text("select name from sites where user_id = :user_id")
    receive, calls = driver.Connection._receive, []

    def interrupted(connection: driver.Connection) -> None:
        calls.append(connection)
        if len(calls) == nth:
            raise KeyboardInterrupt
        receive(connection)

    def read(connection: Connection) -> None:
        mine: Any = opened(connection)
        used.append(mine)
        mine._usock = _Dribble(mine._usock)
        with monkeypatch.context() as patched:
            patched.setattr(driver.Connection, "_receive", interrupted)
            connection.execute(read_name, {"user_id": person.user_id})

    used: list[driver.Connection] = []
    with pytest.raises(KeyboardInterrupt):
        in_user_transaction(person.user_id, read, source=engine)
    with transaction("app", source=engine) as connection:
        assert opened(connection) is not used[0]
        assert connection.execute(read_name, {"user_id": person.user_id}).all() == []


def test_a_commit_goes_with_the_last_statement(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)
    with user_transaction(person.user_id, source=engine) as connection:
        commit_with_next(connection)
        assert connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id}).scalar() == "Later"
        assert database.scalar("select name from sites") == "Later"
        assert not opened(connection)._in_transaction
    with user_transaction(person.user_id, source=engine) as connection:
        assert connection.scalar(sa.text("select name from sites")) == "Later"


def test_nothing_is_committed_where_the_last_statement_fails(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)

    def work(connection: Connection) -> None:
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        commit_with_next(connection)
        connection.execute(sa.text("select 1 / cast(:n as int)"), {"n": 0})

    with pytest.raises(sa.exc.DBAPIError, match="22012"):
        in_user_transaction(person.user_id, work, source=engine)
    assert database.scalar("select name from sites") == "Club"
    with user_transaction(person.user_id, source=engine) as connection:
        assert connection.scalar(sa.text("select name from sites")) == "Club"


_RENAMED = statement("id", "update sites set name = :name where user_id = :user_id returning id")
_QUOTIENT = statement("quotient", "select 1 / cast(:n as int) as quotient")


@pytest.mark.parametrize("n", [0, 1])
def test_what_goes_in_one_flight_is_one_transaction(database: Database, person: Person, n: int) -> None:
    """The server is not told of its beginning and its end, and keeps all of it or nothing."""
    engine = database.engine("app", 1)
    engine.connect().close()
    asked: list[str] = []

    def work(connection: Connection) -> Any:
        renamed = ask_with_next(connection, _RENAMED, {"name": "Later", "user_id": person.user_id})
        commit_with_next(connection)
        return ask(connection, _QUOTIENT, {"n": n})[0].quotient, renamed()

    with heard(lambda _role, sql: asked.append(sql)):
        if n == 0:
            with pytest.raises(sa.exc.DBAPIError, match="22012"):
                in_user_transaction(person.user_id, work, source=engine)
        else:
            assert in_user_transaction(person.user_id, work, source=engine)[0] == 1
    assert len(asked) == 3
    assert not any(word in sql for sql in asked for word in ("begin", "commit", "rollback"))
    assert database.scalar("select name from sites") == ("Club" if n == 0 else "Later")
    with transaction(
        "app", source=engine
    ) as connection:  # on the same connection, which has forgotten the user
        assert connection.scalar(sa.text("select count(*) from sites")) == 0


def test_a_savepoint_before_the_last_statement_is_in_a_transaction(
    database: Database, person: Person
) -> None:
    with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
        nested = connection.begin_nested()
        commit_with_next(connection)
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        nested.commit()
    assert database.scalar("select name from sites") == "Later"


def test_a_binary_value_stands_among_others(database: Database) -> None:
    asked = statement("a b c", "select cast(:a as int) as a, cast(:b as bytea) as b, cast(:c as text) as c")
    with transaction("app", source=database.engine("app", 1)) as connection:
        for a, b, c in ((None, b"\x00\xff", "text"), (7, b"", None)):
            (row,) = ask(connection, asked, {"a": a, "b": binary(b), "c": c})
            assert (row.a, bytes(row.b), row.c) == (a, b, c)


def test_a_commit_that_goes_with_its_statement_and_is_refused_is_an_error(database: Database) -> None:
    engine = database.engine("owner", 1)
    database.run("create table public.deferred (n int unique deferrable initially deferred)")
    database.run("grant all on public.deferred to memberintel_owner")

    def insert_twice() -> None:
        with transaction("owner", source=engine) as connection:
            commit_with_next(connection)
            connection.execute(sa.text("insert into public.deferred values (:n), (:n)"), {"n": 1})

    with pytest.raises(sa.exc.DBAPIError, match="23505"):
        insert_twice()
    with transaction("owner", source=engine) as connection:
        assert connection.scalar(sa.text("select count(*) from public.deferred")) == 0


def test_a_commit_is_not_left_to_the_next_transaction(database: Database, person: Person) -> None:
    engine = database.engine("app", 1)
    with user_transaction(person.user_id, source=engine) as connection:
        commit_with_next(connection)
    with user_transaction(person.user_id, source=engine) as connection:
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        connection.rollback()
    assert database.scalar("select name from sites") == "Club"


def test_a_refused_setting_does_not_stand_in_the_way_of_a_rollback(
    database: Database, person: Person
) -> None:
    def work(connection: Connection) -> None:
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        set_local(connection, {"lock_timeout": "no number"})
        raise LookupError

    with pytest.raises(LookupError):
        in_user_transaction(person.user_id, work, source=database.engine("app", 1))
    assert database.scalar("select name from sites") == "Club"


def test_a_commit_that_a_refused_setting_stopped_ends_its_transaction(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 1)
    with engine.connect() as connection:
        set_user(connection, person.user_id)
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        set_local(connection, {"lock_timeout": "no number"})
        with pytest.raises(sa.exc.DBAPIError, match="22023"):
            connection.commit()
        assert not opened(connection)._in_transaction
    with user_transaction(person.user_id, source=engine) as connection:
        assert connection.scalar(sa.text("select name from sites")) == "Club"


def test_a_rollback_to_a_savepoint_brings_no_commit(database: Database, person: Person) -> None:
    def work(connection: Connection) -> None:
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        with connection.begin_nested():
            connection.execute(_RENAME, {"name": "Last", "user_id": person.user_id})
            commit_with_next(connection)
            raise LookupError

    with pytest.raises(LookupError):
        in_user_transaction(person.user_id, work, source=database.engine("app", 1))
    assert database.scalar("select name from sites") == "Club"


def test_a_failed_statement_without_parameters_does_not_end_the_transaction(
    database: Database, person: Person
) -> None:
    with user_transaction(person.user_id, source=database.engine("app", 1)) as connection:
        connection.execute(_RENAME, {"name": "Later", "user_id": person.user_id})
        undone = connection.begin_nested()
        commit_with_next(connection)
        with pytest.raises(sa.exc.DBAPIError, match="22012"):
            connection.execute(sa.text("select 1 / 0"))
        undone.rollback()
        assert connection.scalar(sa.text("select name from sites")) == "Later"
    assert database.scalar("select name from sites") == "Later"


def test_no_commit_goes_with_a_copy_or_with_a_statement_for_many_rows(
    database: Database, person: Person
) -> None:
    engine = database.engine("app", 1)
    with user_transaction(person.user_id, source=engine) as connection:
        commit_with_next(connection)
        copied = io.BytesIO()
        copy_out(connection, "copy (select name from sites) to stdout", copied)
        assert copied.getvalue() == b"Club\n"
    with user_transaction(person.user_id, source=engine) as connection:
        commit_with_next(connection)
        connection.execute(_RENAME, [{"name": name, "user_id": person.user_id} for name in ("One", "Two")])
    assert database.scalar("select name from sites") == "Two"


_RENAME = sa.text("update sites set name = :name where user_id = :user_id returning name")


def test_the_row_of_what_went_with_the_next_statement_is_told_afterwards(
    database: Database, person: Person
) -> None:
    one = statement("n said", "select cast(:n as int) + 1, cast(:said as text)")
    none = statement("n", "select 1 where cast(:said as text) is null")
    with transaction("app", source=database.engine("app", 1)) as connection:
        for n in range(2):  # the second time they are prepared already
            asked = [
                ask_with_next(connection, one, {"said": "100%", "n": n}),
                ask_with_next(connection, none, {"said": "x"}),
            ]
            assert connection.scalar(sa.text("select cast(:n as int)"), {"n": 7}) == 7
            assert [answer() for answer in asked] == [(n + 1, "100%"), None]


def test_what_went_with_the_next_statement_and_was_refused_is_raised_by_that_one(
    database: Database, person: Person
) -> None:
    def ask() -> None:
        with transaction("app", source=database.engine("app", 1)) as connection:
            ask_with_next(connection, statement("n", "select 1 / cast(:n as int)"), {"n": 0})
            connection.execute(sa.text("update users set email = :e"), {"e": "x"})

    with pytest.raises(sa.exc.DBAPIError) as refused:
        ask()
    assert error_name(refused.value) == "22012"
    assert database.scalar("select email from users") == person.email
