"""Cuts, repeats, crashes and outages: each test states what is in the database afterwards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from pg8000 import InterfaceError

from common import db, driver
from common.advisor import turn
from common.events import MAX_ATTEMPTS, Event
from common.llm.types import ProviderFailed, ToolCall
from common.turns import usual
from tests.functions.conftest import System, parts
from tests.functions.scripted import play
from tests.functions.site import load_small_site
from tests.functions.strange_tools import add_tool, fail, hang, nest

LIST_PLANS = ToolCall("call-1", "query_site_data", {"target": "memberships"})


def turns(system: System) -> list[tuple[str, str | None]]:
    return [tuple(row) for row in system.database.rows("select status, error from turns order by started_at")]


def said(system: System) -> list[tuple[str, str, str]]:
    rows = system.database.rows("select role, text, status from messages order by conversation_id, position")
    return [tuple(row) for row in rows]


def snapshots(system: System) -> int:
    return int(system.database.scalar("select count(*) from message_tool_results"))  # type: ignore[call-overload]


def waiting(system: System, kind: str = "tool-results") -> int:
    return int(system.database.scalar("select count(*) from outbox_events where type = :t", t=kind))  # type: ignore[call-overload]


# -- the client ---------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_mid_stream_leaves_an_interrupted_turn_with_what_was_said(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    left = threading.Event()
    play(monkeypatch, [LIST_PLANS], ["You have ", "two plans", lambda: left.wait(10), " and ", "more"])
    headers = {**system.token(system.owner), "Accept": "text/event-stream"}
    response = system.client("chat").post(
        "/chat", json={"message": "plans?", "turn_id": "t1"}, headers=headers, buffered=False
    )
    for chunk in response.iter_encoded():
        if b"two plans" in chunk:
            break
    threading.Timer(0.05, left.set).start()
    response.close()
    assert turns(system) == [("interrupted", None)]
    question, (role, text, status) = said(system)
    assert question == ("user", "plans?", "complete")
    assert (role, status) == ("assistant", "interrupted")
    assert text in ("You have two plans", "You have two plans and")
    assert waiting(system) == 1
    system.deliver_all()
    assert (snapshots(system), waiting(system)) == (1, 0)
    again = system.chat("plans?", turn_id="t1").json
    assert again["status"] == "interrupted"
    assert again["text"].startswith("You have two plans")
    assert system.database.scalar("select count(*) from usage_charges where state = 'reserved'") == 0


def test_a_client_that_leaves_before_the_first_byte_leaves_no_turn_running(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    play(monkeypatch, [lambda: left.wait(10), "Hello."])
    headers = {**system.token(system.owner), "Accept": "text/event-stream"}
    response = system.client("chat").post(
        "/chat", json={"message": "hi", "turn_id": "t1"}, headers=headers, buffered=False
    )
    first = next(iter(response.iter_encoded()))  # a server has it when it notices that nobody takes it
    assert b'"start"' in first
    threading.Timer(0.05, left.set).start()
    response.close()
    assert turns(system) == [("interrupted", None)]
    assert system.database.scalar("select count(*) from usage_charges where state = 'reserved'") == 0
    assert system.chat("hi", turn_id="t1").status_code == 200


def test_a_repeat_of_a_finished_turn_is_replayed_and_not_paid_twice(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    model = play(monkeypatch, [LIST_PLANS], ["Two plans."])
    first = system.chat("plans?", turn_id="t1").json
    calls = len(model.requests)
    for _ in range(2):  # before and after its results were persisted
        assert system.chat("plans?", turn_id="t1").json == first
        system.deliver_all()
    replayed = parts(system.chat("plans?", turn_id="t1", stream=True))
    assert [p["type"] for p in replayed] == [
        "start", "data-route", "data-recall", "start-step", "tool-input-available", "tool-output-available", "text-start",
        "text-delta", "text-end", "finish-step", "finish",
    ]  # fmt: skip
    assert len(model.requests) == calls
    assert system.database.scalar("select count(*) from usage_charges") == 2


def test_the_same_id_with_another_body_is_refused(system: System) -> None:
    system.chat("Hello", turn_id="t1")
    assert system.chat("Goodbye", turn_id="t1").status_code == 422


def test_the_same_turn_sent_twice_at_once_runs_once(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    running, go = threading.Event(), threading.Event()
    model = play(monkeypatch, [running.set, lambda: go.wait(10), "Once."])
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(system.chat, "Hello", turn_id="t1")
        assert running.wait(10)
        others = [system.chat("Hello", turn_id="t1").status_code for _ in range(3)]
        go.set()
        assert first.result().status_code == 200
    assert others == [409, 409, 409]
    assert len(model.requests) == 1
    assert len(said(system)) == 2


def test_many_first_requests_of_one_turn_at_once_make_one_turn(system: System) -> None:
    system.client("chat")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: system.chat("Hello", turn_id="t1"), range(6)))
    assert {a.status_code for a in answers} <= {200, 409}
    assert any(a.status_code == 200 for a in answers)
    assert len(turns(system)) == 1
    assert len(said(system)) == 2


def test_one_turn_at_a_time_in_a_conversation(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = system.chat("Hello").json["conversation_id"]
    running, go = threading.Event(), threading.Event()
    play(monkeypatch, [running.set, lambda: go.wait(10), "Done."])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(system.chat, "one", conversation_id=conversation)
        assert running.wait(10)
        assert system.chat("two", conversation_id=conversation).status_code == 409
        go.set()
        assert first.result().status_code == 200


def test_of_two_turns_that_begin_at_once_one_runs(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a user wait for each other from their count on, so that what the second reads is younger than the first's beginning."""
    conversation = system.chat("Hello").json["conversation_id"]
    usual._latest.clear()  # of the usual ones many are tried at once elsewhere
    read, locked, running, go = turn.find, threading.Event(), threading.Event(), threading.Event()

    def read_slowly(*arguments: Any) -> Any:
        found = read(*arguments)
        if not locked.is_set():
            locked.set()
            while not system.database.scalar("select count(*) from pg_locks where not granted"):
                assert len(second) == 0 or not second[0].done()
        return found

    second: list[Any] = []
    monkeypatch.setattr(turn, "find", read_slowly)
    play(monkeypatch, [running.set, lambda: go.wait(10), "Done."])
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(system.chat, "one", conversation_id=conversation)
        assert locked.wait(10)
        second.append(pool.submit(system.chat, "two", conversation_id=conversation))
        assert running.wait(10)
        assert second[0].result().status_code == 409
        go.set()
        assert first.result().status_code == 200
    assert [text for _, text, _ in said(system)][2:] == ["one", "Done."]


def test_a_crashed_turns_lease_blocks_until_it_is_over_and_then_nobody(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = system.chat("Hello").json["conversation_id"]
    system.database.run(
        "update turns set status = 'running', finished_at = null, lease_until = now() + interval '1 minute'"
    )
    assert system.chat("again", conversation_id=conversation).status_code == 409
    system.database.run("update turns set lease_until = now() - interval '1 second'")
    assert system.chat("again", conversation_id=conversation).status_code == 200
    assert turns(system) == [("failed", "crashed"), ("complete", None)]


def test_a_turn_that_lost_its_lease_changes_nothing(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_over() -> None:
        system.database.run("update turns set status = 'failed', error = 'crashed'")

    play(monkeypatch, ["I was ", take_over, "too slow."])
    response = system.chat("Hello")
    assert response.status_code == 409
    assert said(system) == [("user", "Hello", "complete")]


def test_a_conversation_deleted_during_its_turn_stays_deleted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, ["Too ", lambda: system.database.run("delete from conversations"), "late."])
    assert system.chat("Hello").status_code == 409
    assert (said(system), turns(system), waiting(system, "session-ended")) == ([], [], 0)


# -- the model ----------------------------------------------------------------------------------------------------------


def test_a_model_that_breaks_off_leaves_what_it_said_and_an_honest_error(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ProviderFailed("the connection was cut")

    play(monkeypatch, ["So far ", "so good", broken])
    streamed = parts(system.chat("Hello", stream=True))
    assert [p["type"] for p in streamed][-2:] == ["error", "finish"]
    assert turns(system) == [("interrupted", "model-interrupted")]
    assert said(system)[1] == ("assistant", "So far so good", "interrupted")


def test_a_model_that_never_answers_fails_the_turn_and_keeps_the_question(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise ProviderFailed("no")

    play(monkeypatch, [refused])
    response = system.chat("Hello", turn_id="t1")
    assert (response.status_code, response.json["type"]) == (503, "urn:memberintel:problem:model-unavailable")
    streamed = [p["type"] for p in parts(system.chat("Hello", turn_id="t2", stream=True))]
    assert streamed[-1] == "error", "finish is never sent for what was not stored"
    assert said(system) == [("user", "Hello", "complete")] * 2
    play(monkeypatch, ["Here I am."])
    assert system.chat("Hello", turn_id="t1").json["text"] == "Here I am.", "a failed turn may be tried again"
    assert len(said(system)) == 3


# -- events -------------------------------------------------------------------------------------------------------------


def one_event(system: System, monkeypatch: pytest.MonkeyPatch) -> Event:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS, ToolCall("call-2", "query_site_data", {"target": "members"})], ["Done."])
    assert system.chat("plans?").status_code == 200
    (event,) = system.publisher.published
    return event


def test_an_event_delivered_again_and_late_changes_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = one_event(system, monkeypatch)
    outcomes = [system.deliver(event).json["outcome"] for _ in range(3)]
    assert outcomes == ["done", "gone", "gone"]
    assert (snapshots(system), waiting(system)) == (2, 0)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("deliver_after = now() + interval '1 hour'", "early"),
        ("dead_at = now()", "dead"),
        ("type = 'session-ended'", "gone"),
    ],
)
def test_an_event_that_is_not_to_be_consumed_now_stays_and_changes_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch, change: str, outcome: str
) -> None:
    event = one_event(system, monkeypatch)
    system.database.run(f"update outbox_events set {change} where id = :id", id=event.id)
    assert system.deliver(event).json["outcome"] == outcome
    assert snapshots(system) == 0
    assert system.database.scalar("select count(*) from outbox_events where id = :id", id=event.id) == 1


def test_an_event_delivered_three_times_at_once_takes_effect_once(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = one_event(system, monkeypatch)
    system.client("persist_tool_results")
    with ThreadPoolExecutor(3) as pool:
        outcomes = [r.json["outcome"] for r in pool.map(lambda _: system.deliver(event), range(3))]
    assert sorted(outcomes) == ["done", "gone", "gone"]
    assert snapshots(system) == 2


def test_events_out_of_order_end_in_the_order_of_the_calls(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["First."], [LIST_PLANS], ["Second."])
    conversation = system.chat("plans?").json["conversation_id"]
    system.database.run("update memberships set name = 'Renamed Pack' where name = 'Starter Pack'")
    system.chat("plans?", conversation_id=conversation)
    first, second = system.publisher.published
    assert system.deliver(second).json["outcome"] == "done"
    assert system.deliver(first).json["outcome"] == "done"
    model = play(monkeypatch, ["Noted."])
    recalled = system.chat("What did you show me?", conversation_id=conversation).json["recalled"][
        "snapshots"
    ]
    assert len(recalled) == 1
    assert "Renamed Pack" in recalled[0]
    assert recalled[0] in model.prompt


def test_what_was_not_published_is_published_by_the_relay(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.publisher.fails = True
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["Done."])
    assert system.chat("plans?").status_code == 200, "an answer does not wait for the topic"
    system.publisher.fails = False
    assert system.internal("relay_events", {}).json == {"published": 0}, "not before 30 seconds have passed"
    system.database.run("update outbox_events set created_at = created_at - interval '31 seconds'")
    assert system.internal("relay_events", {}).json == {"published": 1}
    assert system.internal("relay_events", {}).json == {"published": 0}
    system.deliver_all()
    assert (snapshots(system), waiting(system)) == (1, 0)


def test_a_consumer_that_dies_after_the_acknowledgement_is_called_again(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = one_event(system, monkeypatch)
    system.publisher.published.clear()  # delivered and acknowledged, and then the consumer was killed
    system.database.run(
        "update outbox_events set published_at = now() - interval '11 minutes', created_at = now() - interval '12 minutes'"
    )
    assert system.internal("relay_events", {}).json == {"published": 1}
    assert system.publisher.published == [event]
    system.deliver_all()
    assert snapshots(system) == 2


def test_a_poisoned_event_is_dead_after_five_attempts_and_kept(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event = one_event(system, monkeypatch)
    system.database.run("alter table message_tool_results add constraint never check (false)")
    codes = [system.deliver(event).status_code for _ in range(MAX_ATTEMPTS + 1)]
    assert codes == [500] * (MAX_ATTEMPTS - 1) + [200, 200]
    assert system.database.rows(
        "select attempts, last_error, dead_at is not null from outbox_events where type = 'tool-results'"
    ) == [(MAX_ATTEMPTS, "23514", True)]
    assert '"event": "events_dead_total"' in capsys.readouterr().out
    system.database.run("alter table message_tool_results drop constraint never")
    system.database.run("update outbox_events set dead_at = null, attempts = 0")
    assert system.deliver(event).json["outcome"] == "done"
    assert snapshots(system) == 2


def test_an_unreadable_message_is_acknowledged_with_an_error_line(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    for body in ({}, {"message": {"data": "!!"}}, {"message": {"data": "bnVsbA=="}}):
        assert system.internal("persist_tool_results", body).json == {"outcome": "unreadable"}
    assert capsys.readouterr().out.count("unreadable push message") == 3


def test_only_the_newest_two_hundred_snapshots_of_a_conversation_are_kept(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = one_event(system, monkeypatch)
    system.deliver(event)
    system.database.run(
        "insert into message_tool_results (user_id, message_id, conversation_id, tool_use_id, tool_name, tool_input, tool_output,"
        " signals, arguments_hash, position, created_at) select user_id, message_id, conversation_id, 'old-' || n, tool_name,"
        " tool_input, tool_output, signals, 'h' || n, 0, created_at - make_interval(mins => n)"
        " from message_tool_results, generate_series(1, 250) n where tool_use_id = 'call-1'"
    )
    play(monkeypatch, [LIST_PLANS], ["Done."])
    conversation = system.database.scalar("select id from conversations")
    system.chat("plans?", conversation_id=str(conversation))
    system.deliver_all()
    assert snapshots(system) == 200
    assert (
        system.database.scalar("select count(*) from message_tool_results where tool_use_id = 'old-250'") == 0
    )


# -- the tools ----------------------------------------------------------------------------------------------------------

STRANGE = ToolCall("call-1", "query_strange", {})


def stored_result(system: System) -> Any:
    system.deliver_all()
    (row,) = system.database.rows("select tool_output, is_error from message_tool_results")
    return row


@pytest.mark.parametrize(("handler", "words"), [(hang, "did not answer within"), (fail, "The tool failed")])
def test_a_tool_that_hangs_or_raises_does_not_end_the_turn(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    handler: Any,
    words: str,
) -> None:
    add_tool(monkeypatch, handler, timeout=0.3)
    model = play(monkeypatch, [STRANGE], ["I could not look that up."])
    answer = system.chat("Hello").json
    assert answer["status"] == "complete"
    assert words in model.requests[-1].messages[-1].results[0].content
    output, is_error = stored_result(system)
    assert is_error
    assert words in output["error"]
    assert "canary" not in capsys.readouterr().out
    engine = db.engine("app")
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_wrong_call_is_answered_with_how_to_mend_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [ToolCall("a", "query_kpi_trend", {"metric": "happiness"}), ToolCall("b", "drop_tables", {})]
    model = play(monkeypatch, wrong, ["Sorry."])
    assert system.chat("Hello").json["status"] == "complete"
    first, second = model.requests[-1].messages[-1].results
    assert "active_members" in first.content
    assert "query_site_data" in second.content


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ({"a": "x\x00y"}, {"a": "xy"}),
        ({"a": "x\ud800y"}, {"a": "x\ufffdy"}),
        ({"a": float("nan"), "b": float("inf")}, {"a": None, "b": None}),
    ],
    ids=["NUL", "surrogate", "NaN"],
)
def test_what_a_tool_returns_is_stored_clean(
    system: System, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any], kept: dict[str, Any]
) -> None:
    add_tool(monkeypatch, lambda _context: data)
    play(monkeypatch, [STRANGE], ["Fine."])
    assert system.chat("Hello").json["status"] == "complete"
    assert stored_result(system) == (kept, False)


def test_two_thousand_levels_are_stored_with_a_note(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    add_tool(monkeypatch, lambda _context: nest(2000))
    play(monkeypatch, [STRANGE], ["Fine."])
    assert system.chat("Hello").json["status"] == "complete"
    assert "nested too deeply" in str(stored_result(system)[0])


def test_twenty_megabytes_are_cut_at_a_row_for_the_model_and_for_the_store(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"n": n, "text": "y" * 1000} for n in range(20_000)]
    add_tool(monkeypatch, lambda _context: {"rows": rows}, timeout=20)
    model = play(monkeypatch, [STRANGE], ["Fine."])
    assert system.chat("Hello").json["status"] == "complete"
    shown = model.requests[-1].messages[-1].results[0].content
    assert 30_000 < len(shown.encode()) <= 32 * 1024
    assert "of 20000 rows are shown" in shown
    output, is_error = stored_result(system)
    assert not is_error
    assert output["truncated"] is True
    assert len(output["sha256"]) == 64
    assert output["size_bytes"] > 20_000_000
    assert 250 <= len(output["rows"]) <= 256


# -- the database -------------------------------------------------------------------------------------------------------


def test_connections_that_died_during_a_turn_cost_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut() -> None:
        system.database.run(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )

    load_small_site(system.database, system.owner)
    play(monkeypatch, [cut, LIST_PLANS], [cut, "Two ", cut, "plans."])
    answer = system.chat("plans?").json
    assert (answer["status"], answer["text"]) == ("complete", "Two plans.")
    assert len(said(system)) == 2
    assert waiting(system) == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_turn_whose_beginning_was_committed_unheard_goes_on(
    system: System, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    exchange, cuts = driver.Connection._exchange, []

    def unheard(connection: driver.Connection, request: Any) -> Any:
        commits = connection.last
        found = exchange(connection, request)
        if commits and not cuts:
            cuts.append(request.context.statement)
            raise InterfaceError("network error")
        return found

    conversation = system.chat("Hello").json["conversation_id"] if known else None
    before = len(said(system))
    play(monkeypatch, ["Gladly."])
    monkeypatch.setattr(driver.Connection, "_exchange", unheard)
    answer = system.chat("And now?", conversation_id=conversation)
    assert "insert into messages" in cuts[0]
    assert (answer.status_code, answer.json["text"]) == (200, "Gladly.")
    assert said(system)[before:] == [("user", "And now?", "complete"), ("assistant", "Gladly.", "complete")]
    assert system.database.scalar("select count(*) from turns") == (2 if known else 1)
    assert system.database.scalar("select used from usage_counters where counter = 'turns'") == (
        2 if known else 1
    )
    assert system.database.scalar("select count(*) from usage_charges where state <> 'settled'") == 0


def test_nothing_a_customer_wrote_is_logged_when_a_connection_dies(
    system: System,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even by a library that logs an error which quotes its statement's values."""
    broken: list[str] = []
    send = driver.Connection._extended

    def break_once(connection: driver.Connection, statement: str, values: Sequence[Any]) -> Any:
        if "My secret plan" in values and not broken:
            broken.append(statement)
            assert connection._usock is not None
            connection._usock.shutdown(socket.SHUT_RDWR)
        return send(connection, statement, values)

    system.chat("Hello")
    monkeypatch.setattr(driver.Connection, "_extended", break_once)
    assert system.chat("My secret plan", turn_id="secret-turn").json["status"] == "complete"
    logged = caplog.text + "".join(capfd.readouterr())
    assert "turns_total" in logged
    assert len(broken) == 1
    for private in ("secret", system.owner.email, "parameters"):
        assert private not in logged


def test_charges_are_settled_with_what_was_reported(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    load_small_site(system.database, system.owner)
    play(monkeypatch, [LIST_PLANS], ["Two plans."])
    system.chat("plans?")
    rows = system.database.rows(
        "select kind, state, input_tokens, output_tokens from usage_charges order by created_at"
    )
    assert [tuple(r) for r in rows] == [("chat", "settled", 100, 20)] * 2
    assert system.database.scalar("select used from usage_counters where counter = 'turns'") == 1
    with db.transaction("app") as connection:
        assert connection.scalar(sa.text("select 1")) == 1
