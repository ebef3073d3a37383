"""What the consumer of tool results reads, and that it changes nothing of an event that it did not lock."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from common import events
from common.db import set_local, transaction
from common.events import Event
from common.memory import snapshots
from tests.conftest import NOW, Database, Person, add_person
from tests.plans import rows_read


@pytest.fixture
def person(database: Database) -> Person:
    return add_person(database, "alice@x.example")


def add_result(database: Database, person: Person, messages: int = 0) -> Event:
    """An event with one result, of a conversation that has `messages` others."""
    ids = {"c": uuid.uuid4(), "s": uuid.uuid4(), "m": uuid.uuid4(), "e": uuid.uuid4(), "u": person.user_id}
    result = {
        "tool_use_id": "c1", "tool_name": "query_site_data", "tool_input": {}, "tool_output": {}, "signals": {},
        "arguments_hash": "h", "is_error": False, "position": 0, "created_at": NOW.isoformat(),
    }  # fmt: skip
    payload = {"message_id": str(ids["m"]), "site_id": str(person.site_id), "results": [result]}
    for sql in (
        "insert into conversations (id, user_id, title, created_at, last_turn_at) values (:c, :u, 't', :now, :now)",
        "insert into sessions (id, user_id, conversation_id, started_at, last_activity_at) values (:s, :u, :c, :now, :now)",
        "insert into messages (id, user_id, conversation_id, session_id, role, text, status, position, created_at)"
        " select case when n = 0 then cast(:m as uuid) else gen_random_uuid() end, :u, :c, :s, 'assistant', 'x', 'complete', n, :now"
        " from generate_series(0, :messages) n",
        "insert into outbox_events (id, user_id, conversation_id, type, payload, deliver_after, created_at)"
        " values (:e, :u, :c, 'tool-results', cast(:payload as jsonb), :now, :now)",
    ):
        given = {**ids, "now": NOW, "messages": messages, "payload": json.dumps(payload)}
        database.run(sql, **{name: given[name] for name in sa.text(sql).compile().params})
    return Event(ids["e"], "tool-results")


def test_storing_a_result_does_not_read_the_users_other_messages(database: Database, person: Person) -> None:
    event = add_result(database, person, messages=20_000)
    database.run("analyze messages, outbox_events, sites")
    with transaction("jobs", source=database.engine("jobs", 1)) as connection:
        set_local(connection, {**events.ONE_PLAN, "app.user_id": str(person.user_id)})
        given = {"event_id": event.id, "now": NOW}
        assert rows_read(connection, snapshots._PERSIST, given, "messages") == 1


def test_an_event_that_was_not_locked_has_no_effect(database: Database, person: Person) -> None:
    event = add_result(database, person)
    with ThreadPoolExecutor(1) as another, database.superuser.connect() as changing:
        with changing.begin():
            changing.execute(
                sa.text("update outbox_events set type = 'session-ended' where id = :id"), {"id": event.id}
            )
            waiting = another.submit(
                events.consume,
                event,
                snapshots.persist_snapshots,
                now=NOW,
                source=database.engine("jobs", 1),
            )
            while not database.scalar("select count(*) from pg_locks where not granted"):
                assert not waiting.done()
        assert waiting.result() == "gone"
    assert database.scalar("select count(*) from message_tool_results") == 0
    assert database.scalar("select count(*) from outbox_events") == 1
