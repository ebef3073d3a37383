"""Two users never meet: row level security with the queries' own condition left out, and the other way round."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from common.db import Role, set_user, transaction, user_transaction
from common.memory.snapshots import recall_snapshots
from tests.conftest import NOW, Database, Person, add_person
from tests.database.rows import fill_every_table

ROLES: tuple[Role, ...] = ("app", "jobs", "sweep", "admin_read")
COMMON = Path(__file__).parents[2] / "common"


@pytest.fixture(scope="module")
def people(module_database: Database) -> tuple[Person, Person]:
    alice, bob = add_person(module_database, "alice@x.example"), add_person(module_database, "bob@x.example")
    for person in (alice, bob):
        fill_every_table(module_database, person)
    return alice, bob


def tables_with_a_user(database: Database) -> list[str]:
    return [
        row[0]
        for row in database.rows(
            "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'"
            " where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace order by 1"
        )
    ]


def readable(database: Database, role: Role, table: str) -> bool:
    return bool(
        database.scalar(
            "select has_table_privilege(:role, :table, 'select')", role=f"memberintel_{role}", table=table
        )
    )


def test_every_table_with_a_user_is_filled_for_both(
    module_database: Database, people: tuple[Person, Person]
) -> None:
    for table in tables_with_a_user(module_database):
        for person in people:
            assert module_database.scalar(
                f"select count(*) from {table} where user_id = :id", id=person.user_id
            ), table


@pytest.mark.parametrize("role", ["app", "jobs"])
def test_a_role_sees_its_users_rows_only_even_where_a_query_forgets_to_ask(
    module_database: Database, people: tuple[Person, Person], role: Role
) -> None:
    alice, bob = people
    engine = module_database.engine(role, pool_size=1)
    for person in (alice, bob, alice):
        for table in tables_with_a_user(module_database):
            if not readable(module_database, role, table) or (role == "jobs" and table == "outbox_events"):
                continue
            with user_transaction(person.user_id, role=role, source=engine) as connection:
                seen = set(connection.execute(sa.text(f"select user_id from {table}")).scalars()) - {None}
            assert seen == {person.user_id}, f"{role} on {table}"


@pytest.mark.parametrize("role", ROLES)
def test_nobody_sees_another_users_rows_after_an_exception_on_the_same_connection(
    module_database: Database, people: tuple[Person, Person], role: Role
) -> None:
    alice, _ = people
    engine = module_database.engine(role, pool_size=1)
    with pytest.raises(RuntimeError), user_transaction(alice.user_id, role=role, source=engine):
        raise RuntimeError("in the middle of it")
    with transaction(role, source=engine) as connection:
        assert connection.scalar(sa.text("select coalesce(current_setting('app.user_id', true), '')")) == ""


def test_with_no_user_set_the_app_sees_nothing(
    module_database: Database, people: tuple[Person, Person]
) -> None:
    for table in [*tables_with_a_user(module_database), "users", "tenants", "usage_counters"]:
        if not readable(module_database, "app", table):
            continue
        with transaction("app", source=module_database.engine("app")) as connection:
            condition = " where user_id is not null" if table == "brain_entries" else ""
            assert connection.scalar(sa.text(f"select count(*) from {table}{condition}")) == 0, table


def test_the_app_cannot_write_a_row_for_another_user(
    module_database: Database, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    with (
        pytest.raises(sa.exc.DBAPIError, match="row-level security"),
        user_transaction(alice.user_id, source=module_database.engine("app")) as connection,
    ):
        connection.execute(
            sa.text(
                "insert into conversations (id, user_id, title, created_at, last_turn_at)"
                " values (gen_random_uuid(), :user_id, 'x', :now, :now)"
            ),
            {"user_id": bob.user_id, "now": NOW},
        )
    with user_transaction(alice.user_id, source=module_database.engine("app")) as connection:
        touched = connection.execute(
            sa.text("update messages set text = 'mine' where user_id = :id"), {"id": bob.user_id}
        )
        assert touched.rowcount == 0


@pytest.mark.parametrize("role", ROLES)
def test_no_role_owns_a_table_or_can_bypass_a_policy(module_database: Database, role: Role) -> None:
    name = f"memberintel_{role}"
    flags = module_database.rows(
        "select rolsuper, rolbypassrls, rolcreaterole from pg_roles where rolname = :n", n=name
    )
    assert [tuple(row) for row in flags] == [(False, False, False)]
    assert (
        module_database.scalar("select count(*) from pg_class where relowner = cast(:n as regrole)", n=name)
        == 0
    )


def test_the_queries_own_condition_holds_where_row_level_security_does_not(
    module_database: Database, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    conversation = module_database.scalar("select id from conversations where user_id = :id", id=bob.user_id)
    with module_database.superuser.begin() as connection:  # bypasses every policy
        set_user(connection, alice.user_id)
        assert recall_snapshots(connection, user_id=bob.user_id, conversation_id=conversation)
        assert recall_snapshots(connection, user_id=alice.user_id, conversation_id=conversation) == []


PER_USER = (
    "sites|site_imports|memberships|members|subscriptions|transactions|conversations|sessions|turns|messages|"
    "message_tool_results|message_feedback|session_logs|brain_documents|brain_document_revisions|usage_charges"
)
STATEMENT = re.compile(r'"""(.*?)"""|"((?:select|update|delete)[^"]*)"', re.DOTALL)


def test_every_statement_on_user_data_names_the_user() -> None:
    """The second lock, read off the code: for each per-user table that it reads or changes, a statement says `user_id = :user_id`."""
    unscoped = []
    for path in sorted(COMMON.rglob("*.py")):
        if "migrations" in path.parts:
            continue
        for match in STATEMENT.finditer(path.read_text()):
            sql = match.group(1) or match.group(2)
            tables = re.findall(rf"\b(?:from|join|update)\s+(?:{PER_USER})\b", sql)
            if len(tables) > len(
                re.findall(r"\buser_id = (?:\w+\.user_id|:user_id|u\.id)|\bid = :user_id", sql)
            ):
                unscoped.append((str(path.relative_to(COMMON)), " ".join(sql.split())[:70]))
    assert [found for found in unscoped if found not in SWEEPS] == []
    assert [found for found in SWEEPS if found not in unscoped] == [], "no longer there"


# Over all users by their nature, as the role memberintel_sweep.
SWEEPS = [
    ("entitlements.py", "update usage_charges set state = 'expired', cost_usd = reserved_usd, s"),
    ("knowledge/performance.py", "select (select max(day) from entry_performance where final and day < '"),
    ("knowledge/performance.py", "with counted as ( select e.entry_id, cast(e.created_at as date) as day"),
    ("knowledge/performance.py", "with changed as ( select distinct e.entry_id, cast(e.created_at as dat"),
    ("knowledge/performance.py", "select b.id as entry_id, b.document, b.title, b.collection, b.created_"),
    ("memory/heartbeat.py", "select s.id, s.user_id, s.name, s.currency, s.timezone, s.data_as_of, "),
    ("sessions.py", "with forgotten as ( select s.id, s.user_id, s.conversation_id, count(*"),
    ("warehouse/triggers.py", "select max(wrap_ups / cost) from ( select sum(cost_usd) as cost, coale"),
    ("warehouse/triggers.py", "select coalesce(max(made), 0) from ( select count(*) as made from sess"),
    ("warehouse/triggers.py", "select percentile_cont(0.95) within group (order by cast(section ->> '"),
    ("warehouse/triggers.py", "select avg(case when missed then 1.0 else 0.0 end) from ( select trace"),
]


def test_deleting_a_user_deletes_every_row_of_theirs_in_one_statement(database: Database) -> None:
    alice, bob = add_person(database, "alice@x.example"), add_person(database, "bob@x.example")
    for person in (alice, bob):
        fill_every_table(database, person)
    before = {
        t: database.scalar(f"select count(*) from {t} where user_id = :id", id=bob.user_id)
        for t in tables_with_a_user(database)
    }
    assert database.run("delete from users where id = :id", id=alice.user_id) == 1
    for table, count in before.items():
        assert database.scalar(f"select count(*) from {table} where user_id = :id", id=alice.user_id) == 0, (
            table
        )
        assert (
            database.scalar(f"select count(*) from {table} where user_id = :id", id=bob.user_id) == count
        ), table


def test_every_table_that_holds_user_data_cascades_from_the_user(module_database: Database) -> None:
    """Whatever refers to a per-user row, directly or on the way, must itself carry the user and cascade."""
    without = module_database.rows(
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'"
        " where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and not exists ("
        "   select 1 from pg_constraint k where k.conrelid = c.oid and k.contype = 'f' and k.confdeltype = 'c'"
        "   and k.confrelid = 'users'::regclass and a.attnum = any(k.conkey))"
    )
    assert without == []
    strays = module_database.rows(
        "select distinct k.conrelid::regclass::text from pg_constraint k where k.contype = 'f'"
        " and k.confrelid in (select attrelid from pg_attribute where attname = 'user_id')"
        " and not exists (select 1 from pg_attribute a where a.attrelid = k.conrelid and a.attname = 'user_id')"
    )
    assert strays == []


def test_ids_of_the_other_user_are_unknown(module_database: Database, people: tuple[Person, Person]) -> None:
    assert isinstance(people[0].user_id, uuid.UUID)
    assert people[0].user_id != people[1].user_id
