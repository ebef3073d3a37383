"""The turn that begins in one round trip, and the same turn where something is not as its process took for granted: then there comes of it
what comes of any turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pg8000 import InterfaceError

from common import clock, db, driver
from common.config import settings
from common.entitlements import LIMITS
from common.llm import call as llm
from common.turns import usual
from local.issuer import ISSUER
from tests.conftest import Person, add_person
from tests.functions.conftest import System
from tests.functions.scripted import play

Change = Callable[[System, Person], dict[str, Any]]


def run(sql: str) -> Change:
    """A change by SQL in which `:id` is the user's."""

    def change(system: System, person: Person) -> dict[str, Any]:
        system.database.run(sql, id=person.user_id)
        return {}

    return change


def request(**body: Any) -> Change:
    """No change, but another request."""
    return lambda _system, _person: body


def swap(system: System, person: Person) -> dict[str, Any]:
    """The identity is another's by now."""
    database, email = system.database, f"new-{person.email}"
    somebody = add_person(database, email, issuer=ISSUER)
    database.run("update users set subject = 'gone-' || cast(id as text) where id = :id", id=person.user_id)
    database.run("update users set subject = :email where id = :id", id=somebody.user_id, email=person.email)
    return {}


# For each: the status, where our id names the conversation and where the client's does.
CHANGES: dict[str, tuple[Change, int, int]] = {
    "nothing": (lambda _system, _person: {}, 200, 200),
    "an email": (run("update users set email = 'new@demo.example' where id = :id"), 200, 200),
    "the tenant pays less": (
        run("update tenants set tier = 'free' where id = (select tenant_id from users where id = :id)"),
        200,
        200,
    ),
    "the tenant pays less and has had its turns": (
        run(
            "with less as (update tenants t set tier = 'free' from users u where u.tenant_id = t.id and u.id = :id)"
            " update usage_counters c set used = 40 from users u"
            " where c.tenant_id = u.tenant_id and c.counter = 'turns' and u.id = :id"
        ),
        429,
        429,
    ),
    "the tenant has had its turns": (
        run(
            "update usage_counters c set used = 400 from users u"
            " where c.tenant_id = u.tenant_id and c.counter = 'turns' and u.id = :id"
        ),
        429,
        429,
    ),
    "no request is left": (
        run("update request_counts set requests = 100000 where user_id = :id"),
        429,
        429,
    ),
    "the session has ended": (
        run("update sessions set ended_at = now(), end_reason = 'client' where user_id = :id"),
        200,
        200,
    ),
    "the conversation is gone": (run("delete from conversations where user_id = :id"), 404, 200),
    "another turn runs": (
        run(
            "update turns set status = 'running', finished_at = null, lease_until = now() + interval '5 minutes' where user_id = :id"
        ),
        409,
        409,
    ),
    "another turn has crashed": (
        run(
            "update turns set status = 'running', finished_at = null, lease_until = now() - interval '5 minutes' where user_id = :id"
        ),
        200,
        200,
    ),
    "the identity is nobody's": (
        run("update users set subject = 'gone-' || cast(id as text) where id = :id"),
        403,
        403,
    ),
    "the user is gone": (run("delete from users where id = :id"), 403, 403),
    "the turn was there": (request(turn_id="first"), 422, 422),
    "the site is not theirs": (request(site_id=str(uuid.uuid4())), 404, 404),
    "the identity is another's": (swap, 404, 200),
}


def left_behind(system: System, person: Person) -> dict[str, Any]:
    """What the database has of `person`, but for ids and times."""
    asked = {
        "turns": "select status, error, client_turn_id = 'first' as is_first from turns where user_id = :id order by 3 desc",
        "messages": "select role, text, status, position from messages where user_id = :id order by position",
        "conversations": "select version from conversations where user_id = :id",
        "sessions": "select ended_at is null from sessions where user_id = :id order by 1",
        "charges": "select kind, state, count(*) from usage_charges where user_id = :id group by 1, 2 order by 1, 2",
        "counters": "select counter, used from usage_counters c join users u using (tenant_id) where u.id = :id order by 1",
        "requests": "select requests from request_counts where user_id = :id",
        "events": "select type, payload->>'trigger' from outbox_events where user_id = :id order by 1, 2",
    }
    return {
        what: [tuple(row) for row in system.database.rows(sql, id=person.user_id)]
        for what, sql in asked.items()
    }


def _note(heard: list[str], _role: str, sql: str) -> None:
    heard.append(sql)


def usual_beginnings(heard: list[str]) -> int:
    return sum("insert into turns" in sql and "not_as_expected" in sql for sql in heard)


def send(
    system: System, person: Person, named: str, chat: str, text: str, turn_id: str, site_id: str | None = None
) -> Any:
    """A turn of the conversation `chat`: our id or the client's own, which then sends what `useChat` does."""
    body: dict[str, Any] = {"message": text, "turn_id": turn_id, "conversation_id": chat or None}
    if named == "theirs":
        said = {"id": turn_id, "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": "chat-1", "messages": [said]}
    headers = {**system.token(person), "Accept": "application/json"}
    return system.client("chat").post("/chat", json={**body, "site_id": site_id}, headers=headers)


@pytest.fixture(autouse=True)
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted by the minute."""
    moment = datetime.now(UTC).replace(second=30)
    monkeypatch.setattr(clock, "now", lambda: moment)


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("named", ["ours", "theirs"])
def test_what_comes_of_it_is_what_comes_of_any_turn(
    system: System, monkeypatch: pytest.MonkeyPatch, what: str, named: str
) -> None:
    change, *statuses = CHANGES[what]
    found = []
    for person, tried in ((system.owner, True), (system.other, False)):
        play(monkeypatch, ["One."])
        chat = send(system, person, named, "", "First?", "first").json["conversation_id"]
        again = {"turn_id": "second", **change(system, person)}
        if not tried:
            usual._latest.clear()
        play(monkeypatch, ["Two."])
        heard: list[str] = []
        with db.heard(partial(_note, heard)):
            second = send(system, person, named, chat, "Second?", **again)
        assert usual_beginnings(heard) == tried
        assert second.status_code == statuses[named == "theirs"], second.text
        found.append((second.json.get("type"), left_behind(system, person)))
    assert found[0] == found[1]


@pytest.mark.parametrize("named", ["ours", "theirs"])
def test_a_usual_turn_is_begun_by_one_round_trip(
    system: System, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    last_of_flights: list[str] = []
    exchange = driver.Connection._exchange

    def noted(connection: driver.Connection, request: Any) -> Any:
        last_of_flights.append(request.context.statement)
        return exchange(connection, request)

    chat = send(system, system.owner, named, "", "First?", "first").json["conversation_id"]
    monkeypatch.setattr(driver.Connection, "_exchange", noted)
    assert send(system, system.owner, named, chat, "Second?", "second").status_code == 200
    assert [n for n, sql in enumerate(last_of_flights) if "insert into turns" in sql] == [0]


def test_where_there_is_money_for_one_call_the_turn_begins_with_that(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Decimal("0.50")
    monkeypatch.setattr(llm, "ceiling_usd", lambda *_choices, **_tokens: one)
    conversation = system.chat("First?").json["conversation_id"]
    left = LIMITS["pro"].cost_usd - one
    system.database.run("update usage_counters set used = :used where counter = 'cost_usd'", used=left)
    assert system.chat("Second?", conversation_id=conversation).status_code == 200
    found = left_behind(system, system.owner)
    assert found["requests"] == [(2,)]
    assert found["counters"] == [("cost_usd", left), ("turns", 2)]


def test_once_the_deployment_has_spent_its_days_limit_no_turn_is_tried(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = system.chat("First?").json["conversation_id"]
    monkeypatch.setenv("MEMBERINTEL_DAILY_SPEND_STOP_USD", "0")
    settings.cache_clear()
    heard: list[str] = []
    with db.heard(partial(_note, heard)):
        assert system.chat("Second?", conversation_id=conversation).status_code == 503
    assert usual_beginnings(heard) == 0
    assert len(left_behind(system, system.owner)["turns"]) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_one_that_was_committed_unheard_goes_on_in_its_session(
    system: System, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    exchange, cuts = driver.Connection._exchange, []

    def unheard(connection: driver.Connection, request: Any) -> Any:
        found = exchange(connection, request)
        if usual_beginnings([request.context.statement]):
            cuts.append(1)
            if ended:
                system.database.run("update sessions set ended_at = now(), end_reason = 'client'")
            raise InterfaceError("network error")
        return found

    first = system.chat("First?").json
    monkeypatch.setattr(driver.Connection, "_exchange", unheard)
    play(monkeypatch, ["Two."])
    second = system.chat("Second?", conversation_id=first["conversation_id"], turn_id="second").json
    assert (cuts, second["text"], second["session_id"]) == ([1], "Two.", first["session_id"])
    left = left_behind(system, system.owner)
    assert [turn[0] for turn in left["turns"]] == ["complete"] * 2
    assert [message[3] for message in left["messages"]] == [1, 2, 3, 4]
    assert left["requests"] == [(2,)]
    assert ("turns", 2) in left["counters"]
    assert all(state == "settled" for _, state, _ in left["charges"])
    monkeypatch.setattr(driver.Connection, "_exchange", exchange)
    model = play(monkeypatch, ["Three."])
    assert system.chat("Third?", conversation_id=first["conversation_id"]).status_code == 200
    assert len(model.requests[-1].messages) == 5


def test_of_many_usual_turns_at_once_one_runs_at_a_time(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = system.chat("First?").json["conversation_id"]
    play(monkeypatch, *[["Yes."]] * 40)
    heard: list[str] = []
    with db.heard(partial(_note, heard)), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: system.chat(f"{n}?", conversation_id=conversation), range(40)))
    assert usual_beginnings(heard) > 1
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 409}
    done = statuses.count(200)
    assert done > 0
    left = left_behind(system, system.owner)
    assert [turn[0] for turn in left["turns"]] == ["complete"] * (done + 1)
    positions = [message[3] for message in left["messages"]]
    assert positions == list(range(1, 2 * done + 3))
    assert left["requests"] == [(41,)]
    assert ("turns", done + 1) in left["counters"]


def test_a_request_whose_connection_had_died_is_counted_once(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = system.chat("First?").json["conversation_id"]
    monkeypatch.setitem(db.retried.__kwdefaults__, "sleep", lambda _seconds: None)
    for n in range(2, 5):
        system.database.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where usename like 'memberintel_app%' and datname = current_database()"
        )
        assert system.chat("And now?", conversation_id=conversation).status_code == 200
        assert left_behind(system, system.owner)["requests"] == [(n,)]
