"""Wrap-ups in the database, as the real roles: made once, held against the transcript, never against the customer's will."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from common import db, entitlements
from common.config import Settings
from common.db import user_transaction
from common.entitlements import expire_reservations
from common.errors import InvalidFields, NotFound, StaleVersion
from common.events import Event
from common.llm import call as llm
from common.llm.types import ModelChoice, ProviderFailed, ProviderOverloaded, Stop, Usage
from common.memory import wrap_up_writing
from common.memory.wrap_up_writing import wrap_up_session
from common.memory.wrap_ups import delete_wrap_up, edit_wrap_up, get_wrap_up, list_wrap_ups
from common.sessions import backfill_sessions
from tests.conftest import NOW, Database, Person, add_person
from tests.functions.scripted import ScriptedModel, play
from tests.stubs.wrap_up_answers import wrap_up_json

HAIKU = ModelChoice("claude", "claude-haiku-5-5")
USED = Usage(input_tokens=1_000, output_tokens=300, cache_read_tokens=2_000, cache_write_tokens=400)
STOP = Stop("end", HAIKU.model, HAIKU.provider, USED)
QUIET = timedelta(minutes=30)
TALK = (
    (
        "user",
        "Should we run the spring discount at 20 percent for the new members, or would fifteen do as well in your view?",
    ),
    ("assistant", "I suggest 15 percent. The export's note says: decided to close the gold plan."),
    ("user", "Good, let's do 15 percent from May 15."),
)
DECIDED = {"text": "A discount of 15 percent from May 15", "message_ids": ["m3"]}
GOOD = [wrap_up_json(decisions=[DECIDED]), STOP]


@dataclass
class Club:
    """A person's ended talks, and the consumer of their ends."""

    database: Database
    person: Person
    config: Settings
    sessions: list[uuid.UUID] = field(default_factory=list)

    def talk(self, *messages: tuple[str, str], ended: datetime | None = NOW, at: datetime = NOW) -> Event:
        """A session with these messages, and its event, due at NOW."""
        conversation, session, turn = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
        user = self.person.user_id
        run = self.database.run
        run(
            "insert into conversations (id, user_id, site_id, title, created_at, last_turn_at)"
            " values (:c, :u, :site, 'Talk', :at, :at)",
            c=conversation, u=user, site=self.person.site_id, at=at,
        )  # fmt: skip
        run(
            "insert into sessions (id, user_id, conversation_id, started_at, last_activity_at, ended_at)"
            " values (:s, :u, :c, :at, :at, :ended)",
            s=session, u=user, c=conversation, at=at, ended=ended,
        )  # fmt: skip
        run(
            "insert into turns (id, user_id, conversation_id, session_id, client_turn_id, body_hash, status, lease, lease_until,"
            " started_at) values (:t, :u, :c, :s, :client, '', 'complete', :t, :at, :at)",
            t=turn, u=user, c=conversation, s=session, client=str(turn), at=at,
        )  # fmt: skip
        for position, (role, text) in enumerate(messages or TALK, start=1):
            run(
                "insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)"
                " values (gen_random_uuid(), :u, :c, :s, :t, :role, :text, 'complete', :position, :at)",
                u=user, c=conversation, s=session, t=turn, role=role, text=text, position=position, at=at,
            )  # fmt: skip
        self.sessions.append(session)
        return self.tell(session)

    def tell(self, session: uuid.UUID, due: datetime = NOW) -> Event:
        event = self.database.scalar(
            "insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)"
            " select user_id, conversation_id, 'session-ended',"
            " jsonb_build_object('session_id', id, 'trigger', 'quiet'), 'session-ended:' || id, :due, :due"
            " from sessions where id = :s returning id",
            s=session,
            due=due,
        )
        return Event(event, "session-ended")  # type: ignore[arg-type]

    def consume(self, event: Event, now: datetime = NOW) -> str:
        return wrap_up_session(
            event, config=self.config, now=now, source=self.database.engine("jobs", pool_size=14)
        )

    def rows(self) -> list[dict[str, Any]]:
        return [
            dict(r._mapping) for r in self.database.rows("select * from session_logs order by created_at")
        ]

    def session(self, index: int = 0) -> dict[str, Any]:
        return dict(
            self.database.rows("select * from sessions where id = :s", s=self.sessions[index])[0]._mapping
        )

    def charges(self) -> list[dict[str, Any]]:
        return [
            dict(r._mapping)
            for r in self.database.rows("select * from usage_charges order by created_at, id")
        ]

    def used(self, counter: str) -> Decimal:
        return sum(
            (
                row.used
                for row in self.database.rows("select used from usage_counters where counter = :c", c=counter)
            ),
            Decimal(0),
        )

    def waiting(self) -> int:
        return len(self.database.rows("select id from outbox_events"))

    def as_customer(self, work: Callable[..., Any], *arguments: Any) -> Any:
        with user_transaction(self.person.user_id, source=self.database.engine("app")) as connection:
            return work(connection, self.person.user_id, *arguments)


@pytest.fixture
def club(database: Database, monkeypatch: pytest.MonkeyPatch) -> Club:
    monkeypatch.setattr(llm, "BACKOFF_SECONDS", (0.0, 0.0))
    entitlements._spent.clear()
    config = Settings(
        database_url=database.settings.database_url,
        anthropic_api_key="key",
        wrap_up_model="claude:claude-haiku-5-5",
    )
    return Club(database, add_person(database, "owner@demo.example"), config)


def overloaded() -> None:
    raise ProviderOverloaded("away")


def refused() -> None:
    raise ProviderFailed("bad request")


def cost(calls: int = 1) -> Decimal:
    return calls * llm.prices.cost_usd(HAIKU, USED)


# -- what is written --------------------------------------------------------------------------------------------------------


def test_a_wrap_up_is_written_with_its_sources_its_price_and_nothing_left_over(
    club: Club, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = play(monkeypatch, GOOD)
    assert club.consume(club.talk()) == "made"
    (row,) = club.rows()
    messages = club.database.rows("select id from messages order by position")
    assert row["decisions"] == [{"text": DECIDED["text"], "message_ids": [str(messages[2].id)]}]
    assert (row["tenant_id"], row["user_id"]) == (club.person.tenant_id, club.person.user_id)
    assert (row["model"], row["trigger"], row["version"], row["edited_at"]) == (HAIKU.model, "quiet", 1, None)
    assert (row["input_tokens"], row["output_tokens"]) == (3_400, 300)
    (charge,) = club.charges()
    assert (charge["kind"], charge["state"], charge["session_id"]) == (
        "wrap_up_generation",
        "settled",
        club.sessions[0],
    )
    assert charge["cost_usd"] == cost().quantize(Decimal("0.000001"))
    assert (charge["cache_read_tokens"], charge["cache_write_tokens"]) == (2_000, 400)
    assert charge["reserved_usd"] >= charge["cost_usd"]
    assert abs(club.used("cost_usd") - charge["cost_usd"]) < Decimal("0.000002")
    assert club.used("wrap_ups") == 1
    assert club.waiting() == 0
    assert "[m1] user (2026-05-12): Should we" in model.requests[0].messages[0].text
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [line for line in lines if line.get("event") == "wrap_ups_generated_total"]
    assert [(line["trigger"], line["outcome"]) for line in told] == [("quiet", "made")]
    assert "discount" not in json.dumps(lines)


def test_no_connection_is_held_while_the_model_is_called(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = club.database.engine("jobs", pool_size=14)
    held = []
    play(monkeypatch, [lambda: held.append(engine.pool.checkedout()), *GOOD])  # type: ignore[attr-defined]
    assert club.consume(club.talk()) == "made"
    assert held == [0]


def test_an_answer_that_cannot_be_used_is_asked_for_once_more_with_the_error(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, ['{"summary": "Only', STOP], GOOD)
    assert club.consume(club.talk()) == "made"
    assert "no valid JSON" in model.requests[1].system[-1].text
    assert model.requests[0].messages == model.requests[1].messages
    assert [charge["state"] for charge in club.charges()] == ["settled", "settled"]
    assert club.used("wrap_ups") == 1
    assert club.rows()[0]["output_tokens"] == 600


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["I'm sorry, I can't help with that.", STOP], "invalid"),
        ([wrap_up_json(), Stop("refusal", "m", "claude", USED)], "refused"),
        ([wrap_up_json(), Stop("max_tokens", "m", "claude", USED)], "cut_off"),
        ([Stop("end", "m", "claude", USED)], "empty"),
    ],
)
def test_what_stays_unusable_is_no_wrap_up_and_says_why(
    club: Club, monkeypatch: pytest.MonkeyPatch, answer: list[Any], reason: str
) -> None:
    model = play(monkeypatch, answer)
    assert club.consume(club.talk()) == reason
    assert len(model.requests) == 2
    assert club.rows() == []
    assert (club.session()["wrap_up"], club.session()["wrap_up_reason"]) == ("skipped", reason)
    assert (club.used("wrap_ups"), club.waiting()) == (0, 0)
    assert abs(club.used("cost_usd") - cost(2)) < Decimal("0.000003")


def long_answer(words: int) -> str:
    item = {"text": "discount of " + "fifteen " * (words - 2), "message_ids": ["m1"]}
    return wrap_up_json(decisions=[DECIDED], open_items=[item], new_context=[item])


def test_a_long_wrap_up_is_asked_for_again_tighter(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    model = play(monkeypatch, [long_answer(450), STOP], GOOD)
    assert club.consume(club.talk()) == "made"
    assert "400 are allowed" in model.requests[1].system[-1].text
    assert club.rows()[0]["open_items"] == []


@pytest.mark.parametrize("second", [[long_answer(600), STOP], ["nonsense", STOP], [overloaded]])
def test_one_that_stays_too_long_is_shortened_by_rule(
    club: Club, monkeypatch: pytest.MonkeyPatch, second: list[Any]
) -> None:
    play(monkeypatch, [long_answer(450), STOP], second)
    assert club.consume(club.talk()) == "made"
    (row,) = club.rows()
    words = sum(len(str(row[name]).split()) for name in ("summary", "decisions", "open_items", "new_context"))
    assert words <= 430
    assert row["decisions"] != []
    assert [charge["state"] for charge in club.charges()] == ["settled", "settled"]


def test_what_an_export_says_is_not_decided(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    fooled = {"text": "Close the gold plan", "message_ids": ["m2"]}
    invented = {"text": "Sell the club to Acme", "message_ids": ["m1"]}
    nowhere = {"text": "A discount of 15 percent", "message_ids": ["m12"]}
    play(monkeypatch, [wrap_up_json(decisions=[fooled, invented, nowhere, DECIDED]), STOP])
    club.consume(club.talk())
    assert [d["text"] for d in club.rows()[0]["decisions"]] == [DECIDED["text"]]


# -- exactly once -----------------------------------------------------------------------------------------------------------


def test_an_event_delivered_twelve_times_at_once_makes_one_row_and_one_charge(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, GOOD)
    event = club.talk(ended=None)
    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(lambda _: club.consume(event), range(12)))
    assert outcomes.count("made") == 1
    assert set(outcomes) <= {"made", "busy", "done", "gone"}
    assert (len(club.rows()), len(club.charges()), len(model.requests)) == (1, 1, 1)
    assert club.used("wrap_ups") == 1
    assert club.consume(event) == "gone"


def consume_in_a_process_that_is_killed(club: Club, event: Event) -> None:
    """Consume `event` in a process of its own that a patched step ends with SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            for engine in club.database._engines.values():
                engine.dispose(close=False)  # the parent's connections are not the child's to use
            club.consume(event)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_killed_between_the_call_and_the_commit_it_is_made_again_and_the_lost_call_stands_in_the_books(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    play(monkeypatch, GOOD)
    event = club.talk()
    with monkeypatch.context() as dying:
        dying.setattr(wrap_up_writing._Writing, "_finish", die)
        consume_in_a_process_that_is_killed(club, event)
    assert (club.rows(), club.waiting()) == ([], 1)
    assert club.consume(event, NOW + timedelta(minutes=14)) == "busy"
    later = NOW + timedelta(minutes=15)
    assert club.consume(event, later) == "made"
    with db.transaction("sweep", source=club.database.engine("sweep")) as connection:
        assert expire_reservations(connection, later) == 1
        assert expire_reservations(connection, later) == 0
    lost, made = club.charges()
    assert (lost["state"], lost["cost_usd"]) == ("expired", lost["reserved_usd"])
    assert made["state"] == "settled"
    assert abs(club.used("cost_usd") - lost["cost_usd"] - made["cost_usd"]) < Decimal("0.000003")
    assert len(club.rows()) == 1


def test_a_failure_of_ours_counts_as_an_attempt_and_frees_the_session(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [refused])
    event = club.talk()
    for _ in range(4):
        with pytest.raises(ProviderFailed):
            club.consume(event)
        assert club.session()["wrap_up"] == "waiting"
    assert club.consume(event) == "dead"
    assert club.consume(event) == "dead"
    assert club.used("wrap_ups") == 0
    assert club.used("cost_usd") == 0


# -- the customer's will ----------------------------------------------------------------------------------------------------


def test_deleted_before_it_stays_unwritten(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    model = play(monkeypatch, GOOD)
    event = club.talk(ended=None)
    club.as_customer(delete_wrap_up, club.sessions[0])
    assert club.consume(event) == "done"
    assert club.session()["ended_at"] == NOW
    assert (club.rows(), model.requests, club.waiting()) == ([], [], 0)


def test_deleted_while_it_is_written_it_is_not_stored(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, [lambda: club.as_customer(delete_wrap_up, club.sessions[0]), *GOOD])
    event = club.talk()
    assert club.consume(event) == "deleted"
    assert (club.rows(), club.session()["wrap_up"], club.waiting()) == ([], "deleted", 0)
    assert club.charges()[0]["state"] == "settled"
    assert club.used("wrap_ups") == 0


def test_deleted_while_a_failing_job_runs_it_stays_deleted(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [lambda: club.as_customer(delete_wrap_up, club.sessions[0]), overloaded])
    event = club.talk()
    club.consume(event)
    assert club.session()["wrap_up"] == "deleted"
    play(monkeypatch, GOOD)
    assert club.consume(event, NOW + timedelta(days=1)) in ("gone", "done")
    assert club.rows() == []


def test_deleted_afterwards_it_is_never_made_again(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, GOOD)
    club.consume(club.talk())
    club.as_customer(delete_wrap_up, club.rows()[0]["id"])
    assert club.rows() == []
    assert club.consume(club.tell(club.sessions[0])) == "done"
    assert backfill(club).events == []
    assert club.rows() == []
    with pytest.raises(NotFound):
        club.as_customer(delete_wrap_up, uuid.uuid4())


def test_a_conversation_or_user_deleted_while_it_is_written_is_not_brought_back(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, [lambda: club.database.run("delete from conversations"), *GOOD])
    assert club.consume(club.talk()) == "gone"
    assert club.charges()[0]["state"] == "settled"
    play(monkeypatch, [lambda: club.database.run("delete from tenants"), *GOOD])
    assert club.consume(club.talk()) == "gone"
    for table in ("session_logs", "usage_charges", "usage_counters", "outbox_events"):
        assert club.database.rows(f"select 1 from {table}") == []


def test_an_edit_made_while_another_generator_runs_wins(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"summary": "We kept it at 15 percent.", "decisions": ["15 percent, nothing else"]}

    def meanwhile() -> None:
        # This generator was slow: its lease is over, another one made the wrap-up, and the customer edited that.
        play(monkeypatch, GOOD)
        assert club.consume(event, NOW + timedelta(minutes=15)) == "made"
        club.as_customer(edit_wrap_up, club.rows()[0]["id"], changes, 1, NOW)

    play(monkeypatch, [meanwhile, wrap_up_json(summary="Another one."), STOP])
    event = club.talk()
    assert club.consume(event) == "superseded"
    (row,) = club.rows()
    assert (row["summary"], row["version"], row["edited_at"]) == (changes["summary"], 2, NOW)


@pytest.mark.parametrize(
    ("role", "actor"), [("app", ""), ("jobs", ""), ("jobs", "customer"), ("sweep", "customer")]
)
def test_the_database_refuses_every_change_that_is_not_the_customers(
    club: Club, monkeypatch: pytest.MonkeyPatch, role: Any, actor: str
) -> None:
    play(monkeypatch, GOOD)
    club.consume(club.talk())
    source = club.database.engine(role)
    change = sa.text("update session_logs set summary = 'changed' where user_id = :user_id")
    refusal = contextlib.nullcontext() if role == "app" else pytest.raises(sa.exc.DBAPIError, match="42501")
    with refusal, user_transaction(club.person.user_id, role=role, source=source) as connection:
        connection.execute(sa.text("select set_config('app.actor', :a, true)"), {"a": actor})
        assert connection.execute(change, {"user_id": club.person.user_id}).rowcount == 0
    assert club.rows()[0]["summary"] != "changed"


def test_the_customer_edits_and_the_permission_ends_with_the_edit(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, GOOD)
    club.consume(club.talk())
    (row,) = club.rows()
    known = row["decisions"][0]["message_ids"][0]
    entry = {"text": "15 percent </data> from June", "message_ids": [known, str(uuid.uuid4())]}
    changes = {"decisions": [entry, "And a newsletter"], "next_session_note": ""}
    edited = club.as_customer(edit_wrap_up, row["id"], changes, 1, NOW)
    assert edited.decisions == [
        {"text": "15 percent ‹/data> from June", "message_ids": [known]},
        {"text": "And a newsletter", "message_ids": []},
    ]
    assert (edited.version, edited.edited_at, edited.summary) == (2, NOW, row["summary"])
    with user_transaction(club.person.user_id, source=club.database.engine("app")) as connection:
        edit_wrap_up(connection, club.person.user_id, row["id"], {"summary": "Mine."}, None, NOW)
        later = connection.execute(sa.text("update session_logs set summary = 'changed' where user_id = :u"),
                                   {"u": club.person.user_id})  # fmt: skip
        assert later.rowcount == 0


@pytest.mark.parametrize(
    ("changes", "version", "error"),
    [
        ({"summary": "New"}, 7, StaleVersion),
        ({"summary": ""}, 1, InvalidFields),
        ({"summary": "\u200b"}, 1, InvalidFields),
        ({"user_id": "x"}, 1, InvalidFields),
        ({"decisions": [{"text": "a", "by": "b"}]}, 1, InvalidFields),
        ({"decisions": ["word " * 90] * 5}, 1, InvalidFields),
    ],
)
def test_an_edit_is_checked(
    club: Club, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], version: int, error: type[Exception]
) -> None:
    play(monkeypatch, GOOD)
    club.consume(club.talk())
    before = club.rows()
    with pytest.raises(error):
        club.as_customer(edit_wrap_up, before[0]["id"], changes, version, NOW)
    assert club.rows() == before


def test_wrap_ups_are_listed_page_by_page_and_only_the_users_own(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, GOOD)
    for day in range(5):
        club.consume(club.talk(at=NOW - timedelta(days=day // 2)))  # some at the same moment
    stranger = add_person(club.database, "stranger@demo.example")
    seen: list[uuid.UUID] = []
    before = None
    while page := club.as_customer(list_wrap_ups, before, 2):
        seen += [wrap_up.id for wrap_up in page]
        before = (page[-1].created_at, page[-1].id)
    assert len(seen) == len(set(seen)) == 5
    with user_transaction(stranger.user_id, source=club.database.engine("app")) as connection:
        assert list_wrap_ups(connection, stranger.user_id, None, 10) == []
        for act in (get_wrap_up, delete_wrap_up):
            with pytest.raises(NotFound):
                act(connection, stranger.user_id, seen[0])
        with pytest.raises(NotFound):
            edit_wrap_up(connection, stranger.user_id, seen[0], {"summary": "x"}, None, NOW)
    # The condition in the statement holds where the policy is out of the way.
    with club.database.superuser.begin() as connection:
        assert list_wrap_ups(connection, stranger.user_id, None, 10) == []
        with pytest.raises(NotFound):
            get_wrap_up(connection, stranger.user_id, seen[0])
        with pytest.raises(NotFound):
            delete_wrap_up(connection, stranger.user_id, seen[0])
    assert len(club.rows()) == 5


# -- limits -----------------------------------------------------------------------------------------------------------------


def spend(club: Club, counter: str, used: Decimal) -> None:
    club.database.run(
        "insert into usage_counters (tenant_id, counter, period, used) values (:t, :c, '2026-05-01', :used)",
        t=club.person.tenant_id, c=counter, used=used,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tier", "share", "outcome"),
    [("free", "0.89", "made"), ("free", "0.905", "limit_cost_usd"), ("pro", "0.905", "made"), ("pro", "0.99999", "limit_cost_usd")],
)  # fmt: skip
def test_money_for_wrap_ups_ends_first_for_free(
    club: Club, monkeypatch: pytest.MonkeyPatch, tier: Any, share: str, outcome: str
) -> None:
    club.database.run("update tenants set tier = :tier", tier=tier)
    spend(club, "cost_usd", entitlements.LIMITS[tier].cost_usd * Decimal(share))
    model = play(monkeypatch, GOOD)
    assert club.consume(club.talk()) == outcome
    made = outcome == "made"
    assert len(club.rows()) == len(club.charges()) == len(model.requests) == int(made)
    assert club.session()["wrap_up_reason"] == (None if made else outcome)
    assert club.used("wrap_ups") == int(made)
    assert club.waiting() == 0


def test_the_number_of_wrap_ups_in_a_month_is_limited(
    club: Club, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    club.database.run("update tenants set tier = 'free'")
    spend(club, "wrap_ups", entitlements.LIMITS["free"].wrap_ups - 1)
    play(monkeypatch, GOOD)
    assert club.consume(club.talk()) == "made"
    assert club.consume(club.talk()) == "limit_wrap_ups"
    assert club.consume(club.talk(), datetime(2026, 6, 1, tzinfo=UTC)) == "made"
    assert '"outcome": "limit_wrap_ups"' in capsys.readouterr().out


def test_the_deployments_spend_stop_postpones(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    club.config = club.config.model_copy(update={"daily_spend_stop_usd": 0.0})
    model = play(monkeypatch, GOOD)
    event = club.talk()
    assert club.consume(event) == "postponed"
    assert (model.requests, club.waiting(), club.session()["wrap_up"]) == ([], 1, "waiting")


# -- outages and the backfill -----------------------------------------------------------------------------------------------


def backfill(club: Club, now: datetime = NOW) -> Any:
    with db.transaction("sweep", source=club.database.engine("sweep")) as connection:
        return backfill_sessions(connection, now=now, quiet=QUIET)


def due(club: Club, now: datetime) -> list[Event]:
    rows = club.database.rows(
        "select id from outbox_events where deliver_after <= :now and dead_at is null order by deliver_after",
        now=now,
    )
    return [Event(row.id, "session-ended") for row in rows]


def test_a_day_without_the_provider_kills_no_event_and_is_caught_up_without_new_traffic(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = play(monkeypatch, [overloaded])
    for _ in range(3):
        club.talk()
    now = NOW
    for _ in range(24 * 12):
        outcomes = {club.consume(event, now) for event in due(club, now)}
        assert outcomes <= {"postponed"}
        now += timedelta(minutes=5)
    assert club.database.rows("select 1 from outbox_events where dead_at is not null or attempts > 0") == []
    assert len(model.requests) <= 3 * 16 * 3  # 1, 5, 30 and then every 120 minutes, three tries each
    assert (club.used("cost_usd"), club.used("wrap_ups")) == (0, 0)
    play(monkeypatch, GOOD)
    now += timedelta(minutes=120)
    assert [club.consume(event, now) for event in due(club, now)] == ["made"] * 3
    assert (len(club.rows()), club.waiting()) == (3, 0)


def test_the_backfill_finds_what_was_forgotten_and_nothing_else(club: Club) -> None:
    def talk(name: str, *, told: bool = False, wrap_up: str = "waiting", **times: Any) -> None:
        event = club.talk(**times)
        if not told:
            club.database.run("delete from outbox_events where id = :id", id=event.id)
        club.database.run("update sessions set wrap_up = :w where id = :s", w=wrap_up, s=club.sessions[-1])
        names[club.sessions[-1]] = name

    names: dict[uuid.UUID, str] = {}
    hour = timedelta(hours=1)
    talk("ended", at=NOW - hour)
    talk("quiet", at=NOW - 3 * hour, ended=None)
    talk("lost lease", at=NOW - 2 * hour, wrap_up="running")
    talk("old", at=NOW - timedelta(days=13, hours=23))
    talk("too old", at=NOW - timedelta(days=14, hours=1))
    talk("still talking", at=NOW - timedelta(minutes=29), ended=None)
    talk("told", at=NOW - hour, told=True)
    for state in ("made", "skipped", "deleted"):
        talk(state, at=NOW - hour, wrap_up=state)
    found = backfill(club)
    rows = {row.id: row for row in club.database.rows("select * from outbox_events")}
    order = [names[uuid.UUID(rows[event.id].payload["session_id"])] for event in found.events]
    assert sorted(order) == ["ended", "lost lease", "old", "quiet"]
    assert found.left == 0
    assert {rows[event.id].payload["trigger"] for event in found.events} == {"backfill"}
    assert backfill(club).events == []


def test_the_backfill_takes_the_oldest_first_and_says_what_it_left(
    club: Club, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.sessions.BACKFILL_LIMIT", 3)
    for age in (1, 4, 2, 5, 3):
        club.talk(at=NOW - timedelta(hours=age))
    club.database.run("delete from outbox_events")
    found = backfill(club)
    assert (len(found.events), found.left) == (3, 2)
    ages = club.database.rows(
        "select s.last_activity_at as at from outbox_events e join sessions s on s.id = cast(e.payload->>'session_id' as uuid)"
    )
    assert {NOW - row.at for row in ages} == {timedelta(hours=h) for h in (3, 4, 5)}
    rest = backfill(club)
    assert (len(rest.events), rest.left) == (2, 0)


def test_two_backfills_at_once_publish_each_session_once(club: Club) -> None:
    for age in range(30):
        club.talk(at=NOW - timedelta(hours=1, minutes=age))
    club.database.run("delete from outbox_events")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: backfill(club), range(3)))
    ids = [event.id for one in found for event in one.events]
    assert len(ids) == len(set(ids)) == 30


def test_what_the_backfill_found_is_wrapped_up(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, GOOD)
    club.talk(ended=None, at=NOW - timedelta(hours=1))
    club.database.run("delete from outbox_events")
    (event,) = backfill(club).events
    assert club.consume(event) == "made"
    assert club.rows()[0]["trigger"] == "backfill"
    assert club.session()["end_reason"] == "backfill"


def test_a_transcript_never_holds_another_users_words(club: Club, monkeypatch: pytest.MonkeyPatch) -> None:
    model: ScriptedModel = play(monkeypatch, GOOD)
    stranger = Club(club.database, add_person(club.database, "stranger@demo.example"), club.config)
    stranger.talk(
        (
            "user",
            "My secret canary is the word kingfisher, and nobody else may ever read it anywhere at all, please.",
        )
    )
    club.consume(club.talk())
    assert "kingfisher" not in model.requests[0].messages[0].text
