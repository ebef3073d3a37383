"""The life of a session over HTTP, with the time in the test's hand: how it ends, what its wrap-up covers, and what the next one knows."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common import clock, db
from common.advisor import turn
from common.auth import Identity
from common.config import settings
from common.conversations import FinishedTurn, LeaseLost, Replay, TurnRequest
from common.events import Event
from common.llm.types import Stop
from common.turns.finish import finish_turn
from local.issuer import ISSUER
from tests.functions.conftest import System
from tests.functions.scripted import play
from tests.stubs.wrap_up_answers import wrap_up_json

DISCOUNT = "Let's run the spring discount at 15 percent for all new members, starting on May 15, and announce it in the newsletter."
WEBINAR = "Let's hold the summer webinar on July 3 at noon, free for every paying member, with a recording for all the others."
PRICE = "I still need to find out whether the yearly plan at 290 dollars is too expensive for the retired teachers in my club."


@dataclass
class Hands:
    """The hands of the clock. Time passes only when a test says so."""

    at: datetime = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def turn(self, **delta: float) -> None:
        self.at += timedelta(**delta)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    made = Hands()
    monkeypatch.setattr(clock, "now", made.now)
    return made


def relay_and_deliver(system: System) -> None:
    """What the minute brings: due events are published and delivered."""
    assert system.internal("relay_events", {}).status_code == 200
    system.deliver_all()


def relayed(system: System) -> list[Event]:
    """The ends of sessions that are published now, not delivered yet."""
    system.internal("relay_events", {})
    told = [event for event in system.publisher.published if event.type == "session-ended"]
    system.publisher.published = []
    return told


def say(system: System, message: str, **body: Any) -> dict[str, Any]:
    response = system.chat(message, **body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json
    return answer


def sessions(system: System) -> list[dict[str, Any]]:
    rows = system.database.rows("select * from sessions order by started_at, last_activity_at")
    return [dict(row._mapping) for row in rows]


def wrap_ups(system: System) -> list[dict[str, Any]]:
    return [
        dict(row._mapping) for row in system.database.rows("select * from session_logs order by created_at")
    ]


def texts(items: list[dict[str, Any]]) -> str:
    return " | ".join(item["text"] for item in items)


def waiting(system: System) -> int:
    return len(system.database.rows("select id from outbox_events where type = 'session-ended'"))


# -- how a session ends -----------------------------------------------------------------------------------------------------


def test_a_client_ends_its_session_with_a_message(system: System, hands: Hands) -> None:
    say(system, DISCOUNT, turn_id="t1", end_session=True)
    (session,) = sessions(system)
    assert (session["ended_at"], session["end_reason"]) == (hands.at, "client")
    say(system, DISCOUNT, turn_id="t1", end_session=True)  # a repeat is replayed
    system.deliver_all()
    (made,) = wrap_ups(system)
    assert "15 percent" in texts(made["decisions"])
    assert made["trigger"] == "client"
    assert waiting(system) == 0
    assert sessions(system)[0]["wrap_up"] == "made"


def test_a_client_ends_its_session_without_one_and_may_repeat_it(system: System, hands: Hands) -> None:
    answer = say(system, DISCOUNT)
    path = f"/v1/conversations/{answer['conversation_id']}/end"
    headers = system.token(system.owner)
    for _ in range(3):
        assert system.client("brain").post(path, json={}, headers=headers).status_code in (200, 202)
    assert sessions(system)[0]["ended_at"] == hands.at
    following = say(system, WEBINAR, conversation_id=answer["conversation_id"])
    assert following["session_id"] != answer["session_id"]
    system.deliver_all()
    assert [str(w["session_id"]) for w in wrap_ups(system)] == [answer["session_id"]]
    assert "webinar" not in texts(wrap_ups(system)[0]["decisions"])


def test_an_explicit_end_while_an_answer_is_written_waits_for_it(
    system: System, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = say(system, DISCOUNT)
    path = f"/v1/conversations/{answer['conversation_id']}/end"

    def end() -> None:
        assert (
            system.client("brain").post(path, json={}, headers=system.token(system.owner)).status_code < 300
        )
        system.deliver_all()
        assert sessions(system)[0]["ended_at"] is None

    play(monkeypatch, ["I see. ", end, "A good plan."])
    say(system, WEBINAR, conversation_id=answer["conversation_id"])
    play(monkeypatch, [wrap_up_json()])
    hands.turn(seconds=61)
    relay_and_deliver(system)
    assert sessions(system)[0]["end_reason"] == "client"
    assert len(wrap_ups(system)) == 1


def test_a_quiet_session_ends_after_half_an_hour_and_no_sooner(system: System, hands: Hands) -> None:
    say(system, DISCOUNT)
    hands.turn(minutes=29, seconds=59)
    relay_and_deliver(system)
    assert sessions(system)[0]["ended_at"] is None
    hands.turn(seconds=1)
    relay_and_deliver(system)
    assert sessions(system)[0]["ended_at"] == hands.at
    assert sessions(system)[0]["end_reason"] == "quiet"
    assert len(wrap_ups(system)) == 1


def test_it_ends_after_two_minutes_once_another_conversation_was_started(
    system: System, hands: Hands
) -> None:
    first = say(system, DISCOUNT)
    hands.turn(minutes=5)
    say(system, "Hello", person=system.other)  # another user's conversation is none of it
    hands.turn(minutes=2)
    relay_and_deliver(system)
    assert wrap_ups(system) == []
    say(system, WEBINAR)
    hands.turn(minutes=1, seconds=59)
    relay_and_deliver(system)
    assert wrap_ups(system) == []
    hands.turn(seconds=1)
    relay_and_deliver(system)
    assert [str(w["session_id"]) for w in wrap_ups(system)] == [first["session_id"]]


def test_a_turn_longer_than_the_quiet_time_keeps_its_session(
    system: System, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def pass_time() -> None:
        hands.turn(minutes=40)
        # What the heartbeat does meanwhile.
        system.database.run("update turns set lease_until = :until", until=hands.at + timedelta(seconds=60))
        relay_and_deliver(system)
        seen.append((sessions(system)[0]["ended_at"], waiting(system)))

    play(monkeypatch, ["Let me think. ", pass_time, "Done."])
    answer = say(system, DISCOUNT)
    assert seen == [(None, 1)]
    model = play(monkeypatch, [wrap_up_json()])
    hands.turn(minutes=29)
    relay_and_deliver(system)
    assert wrap_ups(system) == []
    hands.turn(minutes=1)
    relay_and_deliver(system)
    assert [str(w["session_id"]) for w in wrap_ups(system)] == [answer["session_id"]]
    assert "Let me think. Done." in model.requests[0].messages[0].text


def test_a_turn_that_comes_while_the_event_is_on_its_way_keeps_the_session(
    system: System, hands: Hands
) -> None:
    first = say(system, DISCOUNT)
    hands.turn(minutes=30)
    (event,) = relayed(system)
    second = say(system, WEBINAR, conversation_id=first["conversation_id"])
    assert system.deliver(event).json == {"outcome": "early"}
    assert second["session_id"] == first["session_id"]
    hands.turn(minutes=30)
    relay_and_deliver(system)
    (made,) = wrap_ups(system)
    assert "discount" in texts(made["decisions"])
    assert "webinar" in texts(made["decisions"])


def test_a_turn_and_the_sessions_end_at_the_same_moment_never_mix(system: System, hands: Hands) -> None:
    system.client("chat"), system.client("generate_wrap_up")
    conversation: dict[str, Any] = {}
    for _ in range(12):
        before = say(system, DISCOUNT, **conversation)
        conversation = {"conversation_id": before["conversation_id"]}
        hands.turn(minutes=30)
        told = relayed(system)
        with ThreadPoolExecutor(4) as pool:
            delivered = [pool.submit(system.deliver, event) for event in told]
            after = pool.submit(say, system, WEBINAR, **conversation).result()
            outcomes = {d.result().json["outcome"] for d in delivered}
        ended = system.database.scalar(
            "select ended_at from sessions where id = :id", id=before["session_id"]
        )
        # Either the turn came first and the session lives on with it, or the session had ended and the turn has one of its own.
        assert (ended is None) == (after["session_id"] == before["session_id"])
        assert outcomes <= {"made", "early", "running", "gone"}
    hands.turn(minutes=30)
    relay_and_deliver(system)
    assert [s["wrap_up"] for s in sessions(system)] == ["made"] * len(sessions(system))
    counted = system.database.rows(
        "select session_id from session_logs group by session_id having count(*) > 1"
    )
    assert counted == []


def test_turns_ends_and_deliveries_at_once_fail_nowhere_and_leave_each_session_one_wrap_up(
    system: System, hands: Hands
) -> None:
    for function in ("chat", "brain", "generate_wrap_up", "relay_events", "persist_tool_results"):
        system.client(function)
    tabs = [say(system, DISCOUNT)["conversation_id"] for _ in range(3)]

    def act(number: int) -> list[int]:
        tab = tabs[number % 3]
        hands.turn(minutes=11)
        said = system.chat(WEBINAR, conversation_id=tab, end_session=number % 4 == 0)
        begun = system.chat(PRICE)
        path = f"/v1/conversations/{tabs[(number + 1) % 3]}/end"
        ended = system.client("brain").post(path, json={}, headers=system.token(system.owner))
        return [
            said.status_code,
            begun.status_code,
            ended.status_code,
            *(deliver(e) for e in relayed(system)),
        ]

    def deliver(event: Event) -> int:
        return system.deliver(event).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = {status for one in pool.map(act, range(18)) for status in one}
    assert statuses <= {200, 202, 409}
    for _ in range(2):
        hands.turn(hours=3)
        relay_and_deliver(system)
    assert {s["wrap_up"] for s in sessions(system)} == {"made"}
    assert len(wrap_ups(system)) == len(sessions(system))
    late = (
        "select m.id from messages m join sessions s on s.id = m.session_id where m.created_at > s.ended_at"
    )
    assert system.database.rows(late) == []


def begin_and_crash(system: System, message: str, **fields: Any) -> turn.BegunTurn:
    """A turn whose process dies right after its first transaction."""
    identity = Identity(ISSUER, system.owner.email, system.owner.email, clock.now())
    begun = turn.begin(identity, TurnRequest(message, **fields), config=settings(), now=clock.now())
    assert not isinstance(begun, Replay)
    return begun[0]


def test_a_turn_that_crashed_in_the_last_minute_is_in_the_wrap_up(system: System, hands: Hands) -> None:
    first = say(system, DISCOUNT)
    hands.turn(minutes=29, seconds=30)
    crashed = begin_and_crash(
        system, WEBINAR, turn_id="t2", conversation_id=uuid.UUID(first["conversation_id"])
    )
    hands.turn(minutes=1)
    relay_and_deliver(system)
    assert wrap_ups(system) == []
    hands.turn(minutes=29)
    relay_and_deliver(system)
    (made,) = wrap_ups(system)
    assert "webinar" in texts(made["decisions"])
    assert system.database.scalar("select error from turns where client_turn_id = 't2'") == "crashed"

    # The process was only slow: its answer comes too late to belong to the session, and is refused.
    late = FinishedTurn("complete", "Too late", {}, {})
    stop = Stop("end", "offline-1", "offline")
    charge = turn.reserve_for("chat", crashed.account, settings(), prompt_tokens=1, now=hands.at)
    with pytest.raises(LeaseLost), db.user_transaction(system.owner.user_id) as connection:
        finish_turn(
            connection, crashed, late, settled=[(charge, stop)], now=hands.at, quiet=timedelta(minutes=30)
        )

    # The client sends it again: the session has ended, so another begins, and it holds the question too.
    again = say(system, WEBINAR, turn_id="t2", conversation_id=first["conversation_id"])
    assert again["session_id"] != first["session_id"]
    hands.turn(minutes=30)
    relay_and_deliver(system)
    assert "webinar" in texts(wrap_ups(system)[1]["decisions"])


def test_a_crash_just_before_the_quiet_time_is_over_does_not_hold_the_session(
    system: System, hands: Hands
) -> None:
    begin_and_crash(system, DISCOUNT, turn_id="t1")
    hands.turn(minutes=30)
    system.database.run("update turns set lease_until = :until", until=hands.at + timedelta(seconds=20))
    relay_and_deliver(system)
    assert (sessions(system)[0]["ended_at"], waiting(system)) == (None, 1)
    hands.turn(seconds=20)
    relay_and_deliver(system)
    assert len(wrap_ups(system)) == 1


def test_a_turn_cut_by_its_client_is_in_the_wrap_up(
    system: System, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, ["A first ", "half ", "of it", " and more"])
    headers = {**system.token(system.owner), "Accept": "text/event-stream"}
    response = system.client("chat").post(
        "/chat", json={"message": DISCOUNT}, headers=headers, buffered=False
    )
    for chunk in response.iter_encoded():
        if b"half" in chunk:
            break
    response.close()
    model = play(monkeypatch, [wrap_up_json()])
    hands.turn(minutes=30)
    relay_and_deliver(system)
    assert len(wrap_ups(system)) == 1
    assert "A first half" in model.requests[0].messages[0].text


def test_two_tabs_in_turn_end_in_one_wrap_up_each_that_covers_all_of_it(system: System, hands: Hands) -> None:
    one, other = say(system, DISCOUNT), say(system, PRICE)
    for message, tab in ((WEBINAR, one), ("Let's stop printing the yearly plan's flyers in June.", other)):
        hands.turn(minutes=1)
        say(system, message, conversation_id=tab["conversation_id"])
        relay_and_deliver(system)
    assert wrap_ups(system) == []
    hands.turn(minutes=30)
    relay_and_deliver(system)
    made = {str(w["session_id"]): w for w in wrap_ups(system)}
    assert set(made) == {one["session_id"], other["session_id"]}
    assert "discount" in texts(made[one["session_id"]]["decisions"])
    assert "webinar" in texts(made[one["session_id"]]["decisions"])
    assert "flyers" in texts(made[other["session_id"]]["decisions"])
    assert "retired teachers" in texts(made[other["session_id"]]["open_items"])
    assert "webinar" not in str(made[other["session_id"]])
    hands.turn(hours=5)
    relay_and_deliver(system)
    assert len(wrap_ups(system)) == 2


def test_a_turn_after_the_end_opens_a_session_with_a_wrap_up_of_its_own(system: System, hands: Hands) -> None:
    first = say(system, DISCOUNT)
    hands.turn(minutes=30)
    relay_and_deliver(system)
    second = say(system, WEBINAR, conversation_id=first["conversation_id"])
    hands.turn(minutes=30)
    relay_and_deliver(system)
    made = wrap_ups(system)
    assert [str(w["session_id"]) for w in made] == [first["session_id"], second["session_id"]]
    assert "discount" not in texts(made[1]["decisions"])


# -- sessions without a wrap-up ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "body", "reason"),
    [("Hello there", {}, "too_short"), (DISCOUNT, {"remember": False}, "not_remembered")],
)
def test_what_is_not_worth_or_not_meant_to_be_remembered_ends_without_one(
    system: System, hands: Hands, message: str, body: dict[str, Any], reason: str
) -> None:
    say(system, message, **body)
    hands.turn(minutes=30)
    relay_and_deliver(system)
    (session,) = sessions(system)
    assert session["ended_at"] == hands.at
    assert (session["wrap_up"], session["wrap_up_reason"]) == ("skipped", reason)
    assert (wrap_ups(system), waiting(system)) == ([], 0)
    assert system.internal("backfill_wrap_ups", {"now": "2026-05-13T02:00:00+00:00"}).json["published"] == 0


# -- what the next session knows --------------------------------------------------------------------------------------------


def test_the_next_session_opens_with_what_was_decided_and_when(system: System, hands: Hands) -> None:
    say(system, DISCOUNT, end_session=True)
    system.deliver_all()
    hands.turn(days=3)
    answer = say(system, "What did we decide last time?")
    assert "15 percent" in answer["text"]
    assert "2026-05-12" in answer["text"]
    assert answer["recalled"]["wrap_ups"] == [str(wrap_ups(system)[0]["id"])]


def test_who_has_nothing_stored_gets_nothing_invented(system: System, hands: Hands) -> None:
    say(system, DISCOUNT, end_session=True)
    system.deliver_all()
    answer = say(system, "What did we decide last time?", person=system.other)
    assert answer["recalled"]["wrap_ups"] == []
    assert "15" not in answer["text"]
    assert "2026-05" not in answer["text"]


def test_the_last_three_of_other_sessions_newest_last_under_their_days_in_the_sites_zone(
    system: System, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands.at = datetime(2026, 5, 12, 22, 30, tzinfo=UTC)  # in Berlin already the 13th
    for number in range(4):
        play(monkeypatch, ["Very well."])
        say(system, DISCOUNT, end_session=True)
        play(monkeypatch, [wrap_up_json(summary=f"It was session number {number}.")])
        hands.turn(minutes=1)
        system.deliver_all()
        hands.turn(days=1, minutes=-1)
    model = play(monkeypatch, ["I know."])
    answer = say(system, "What should I do next about the flyers?")
    sections = {section.name: section.text for section in model.requests[-1].system}
    found = sections["wrap_ups"]
    assert [n for n in range(4) if f"session number {n}." in found] == [1, 2, 3]
    places = [found.index(f"Session of 2026-05-1{day}") for day in (4, 5, 6)]
    assert places == sorted(places)
    assert len(answer["recalled"]["wrap_ups"]) == 3
    names = [section.name for section in model.requests[-1].system]
    assert names.index("wrap_ups") < names.index("today")


def test_a_late_wrap_up_bears_the_day_of_its_session(system: System, hands: Hands) -> None:
    say(system, DISCOUNT)
    said_at = hands.at
    hands.turn(days=4)
    relay_and_deliver(system)
    assert wrap_ups(system)[0]["created_at"] == said_at


def test_a_deleted_wrap_up_is_forgotten_at_the_next_turn(system: System, hands: Hands) -> None:
    say(system, DISCOUNT, end_session=True)
    system.deliver_all()
    path = f"/v1/session-logs/{wrap_ups(system)[0]['id']}"
    response = system.client("brain").delete(path, headers=system.token(system.owner))
    if response.status_code in (404, 405) and response.json["type"].endswith(
        ("not-found", "method-not-allowed")
    ):
        from common.memory.wrap_ups import delete_wrap_up

        with db.user_transaction(system.owner.user_id) as connection:
            delete_wrap_up(connection, system.owner.user_id, wrap_ups(system)[0]["id"])
    answer = say(system, "What did we decide last time?")
    assert answer["recalled"]["wrap_ups"] == []
    assert "15 percent" not in answer["text"]
