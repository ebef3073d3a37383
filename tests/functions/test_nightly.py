"""`nightly_refresh` over HTTP: its steps in order, what a failure, a kill and a second run do."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from common import db, retention
from common.config import settings
from common.errors import Conflict
from common.jobs import Step, run_job
from common.memory.transcripts import load_said
from common.warehouse import triggers
from common.warehouse.bigquery import Warehouse
from common.warehouse.schemas import TABLES
from functions.nightly_refresh.main import STEPS
from tests.conftest import NOW, Database, Person, add_person
from tests.functions.conftest import System
from tests.rows import (
    Candidate,
    add_answer,
    add_charge,
    add_session,
    add_snapshot,
    add_turn,
    add_wrap_up,
    give_feedback,
)
from tests.stubs.bigquery_server import BigQueryServer

DAY = timedelta(days=1)
ORDER = [
    "roll_up",
    "refresh_heartbeats",
    "purge_retrieval_events",
    "purge_snapshots",
    "purge_wrap_ups",
    "purge_turns_and_job_runs",
    "expire_reservations",
    "assess_triggers",
]
ENTRIES = [uuid.UUID(int=i + 1) for i in range(3)]


def a_year(database: Database, person: Person) -> None:
    """Something for each step to do."""
    for age in (0, 1, 3, 40, 89, 91, 99, 181, 366):
        at = NOW - age * DAY
        session = add_session(database, person, at)
        turn = add_turn(database, person, session, at)
        shown = [
            Candidate(ENTRIES[0], cited=True),
            Candidate(ENTRIES[1]),
            Candidate(ENTRIES[2], surfaced=False),
        ]
        message = add_answer(database, person, session, at, shown, turn=turn)
        give_feedback(database, person, message, at, helpful=age % 2 == 0)
        add_snapshot(database, person, session, message, at)
        add_wrap_up(database, person, session, at)
    add_charge(database, person, NOW - DAY, state="reserved", cost=None, expires_at=NOW - DAY)


def trigger(system: System, **body: Any) -> Any:
    return system.internal("nightly_refresh", {"now": NOW.isoformat(), **body})


def test_every_step_is_reported_in_order_in_the_response_the_log_and_job_runs(system: System) -> None:
    a_year(system.database, system.owner)
    lines = io.StringIO()
    with redirect_stdout(lines):
        response = trigger(system)
    assert response.status_code == 200, response.text
    assert [step["step"] for step in response.json["steps"]] == ORDER
    assert {step["outcome"] for step in response.json["steps"]} == {"done"}
    assert response.json["left"] == []
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["step"] for line in logged if "step" in line] == ORDER
    assert {"rollup_seconds", "cutover_rows_per_day", "site_data_age_hours"} <= {
        line.get("event") for line in logged
    }
    rows = system.database.rows("select step, outcome, job from job_runs order by started_at, finished_at")
    assert sorted(r.step for r in rows) == sorted(ORDER)
    by_name = {step["step"]: step for step in response.json["steps"]}
    assert by_name["purge_retrieval_events"]["deleted"] == 12
    assert by_name["purge_snapshots"]["deleted"] == 2
    assert by_name["purge_wrap_ups"]["deleted"] == 1
    assert by_name["purge_turns_and_job_runs"]["turns"] == 6
    assert by_name["expire_reservations"]["expired"] == 1
    # What was purged had been counted before.
    total = system.database.scalar(
        "select retrieved from entry_performance where entry_id = :e and day = 'infinity'", e=ENTRIES[0]
    )
    assert total == 9


def test_it_is_for_scheduler_alone_and_reads_its_clock_from_the_body(system: System) -> None:
    client = system.client("nightly_refresh")
    assert client.post("/internal/nightly_refresh", json={}).status_code == 401
    assert (
        client.post("/internal/nightly_refresh", json={}, headers=system.token(system.owner)).status_code
        == 401
    )
    assert trigger(system, now="yesterday").status_code == 422
    assert trigger(system, now="2026-05-12T03:00:00").status_code == 422
    assert trigger(system, now="2026-05-12T03:00:00Z").json["now"] == "2026-05-12T03:00:00+00:00"


def test_a_step_that_fails_leaves_the_others_done_and_the_response_is_500(system: System) -> None:
    a_year(system.database, system.owner)
    system.database.run("alter table entry_performance rename to gone")
    try:
        response = trigger(system)
    finally:
        system.database.run("alter table gone rename to entry_performance")
    assert response.status_code == 500
    outcomes = {step["step"]: step["outcome"] for step in response.json["steps"]}
    assert outcomes == {
        **dict.fromkeys(ORDER, "done"),
        "roll_up": "failed",
        "purge_retrieval_events": "failed",
    }
    assert system.database.scalar("select count(*) from message_tool_results") == 7
    again = trigger(system)
    assert again.status_code == 200
    assert (
        system.database.scalar(
            "select retrieved from entry_performance where entry_id = :e and day = 'infinity'", e=ENTRIES[0]
        )
        == 9
    )


def test_a_second_run_at_once_answers_409_and_does_nothing(system: System) -> None:
    a_year(system.database, system.owner)
    inside: list[Any] = []

    def look(run: Any) -> dict[str, Any]:
        inside.append(trigger(system))
        return {}

    report = run_job("nightly_refresh", [Step("look", look)], now=NOW, config=system.database.settings)
    assert not report.failed
    assert inside[0].status_code == 409
    assert system.database.scalar("select count(*) from job_runs where step <> 'look'") == 0
    assert trigger(system).status_code == 200


def test_it_stops_before_its_time_is_over_and_says_what_is_left(system: System) -> None:
    a_year(system.database, system.owner)
    seconds = iter(range(1000))
    report = run_job(
        "nightly_refresh",
        STEPS,
        now=NOW,
        config=system.database.settings,
        seconds=12,
        monotonic=lambda: float(next(seconds)),
    )
    left = report.document()["left"]
    assert left
    assert left == ORDER[-len(left) :]
    assert not report.failed
    assert trigger(system).json["left"] == []


def test_a_conversation_is_whole_after_its_turns_are_gone(system: System) -> None:
    old = NOW - 40 * DAY
    session = add_session(system.database, system.owner, old)
    turn = add_turn(system.database, system.owner, session, old)
    message = add_answer(
        system.database, system.owner, session, old, [Candidate(ENTRIES[0])], turn=turn, text="said"
    )
    assert trigger(system).status_code == 200
    assert system.database.scalar("select count(*) from turns") == 0
    shown = system.client("brain").get(f"/v1/conversations/{session[0]}", headers=system.token(system.owner))
    assert shown.status_code == 200, shown.text
    assert str(message) in shown.text
    with db.user_transaction(system.owner.user_id) as connection:
        said = load_said(
            connection, user_id=system.owner.user_id, conversation_id=session[0], session_id=session[1]
        )
    assert [one.text for one in said] == ["said"]


class Killed(BaseException):
    """Stands for the end of the process: no handler of the code catches it."""


@contextmanager
def killed_at(engine: sa.Engine, statement: int) -> Iterator[list[int]]:
    """The process dies before its nth statement; what it had not committed is rolled back, as the server does."""
    count = [0]

    def listener(*_: Any) -> None:
        count[0] += 1
        if count[0] == statement:
            raise Killed

    sa.event.listen(engine, "before_cursor_execute", listener)
    try:
        yield count
    finally:
        sa.event.remove(engine, "before_cursor_execute", listener)


KEPT = {
    "entry_performance": "entry_id, day, retrieved, surfaced, cited, helpful, final",
    "retrieval_events": "message_id, rank",
    "message_tool_results": "id",
    "session_logs": "id",
    "turns": "id",
    "messages": "id, turn_id",
    "usage_charges": "id, state, cost_usd",
    "brain_documents": "site_id, content, version",
    "brain_document_revisions": "document_id, version",
}


def state(database: Database) -> dict[str, list[Any]]:
    return {
        table: [tuple(row) for row in database.rows(f"select {columns} from {table} order by {columns}")]
        for table, columns in KEPT.items()
    }


def test_killed_at_any_point_and_run_again_it_ends_in_the_same_state(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    person = add_person(database, "a@x.example")
    a_year(database, person)
    engine = database.engine("sweep")

    def nightly() -> None:
        report = run_job("nightly_refresh", STEPS, now=NOW, config=database.settings, source=engine)
        assert not report.failed

    snapshot = arranged(database)
    with killed_at(engine, 0) as count:
        nightly()
    expected, statements = state(database), count[0]
    assert statements > 30
    for point in range(1, statements + 1, 2):
        snapshot()
        with killed_at(engine, point), pytest.raises(Killed):
            nightly()
        while database.scalar("select count(*) from pg_locks where locktype = 'advisory'"):
            pass  # the server notices a moment later that a connection is gone
        nightly()
        assert state(database) == expected, point


def arranged(database: Database) -> Callable[[], None]:
    """What puts the rows back as they are now."""
    tables = [
        "conversations", "sessions", "turns", "messages", "message_tool_results", "message_feedback", "session_logs",
        "retrieval_events", "usage_charges",
    ]  # fmt: skip
    for table in tables:
        database.run(f"create table saved_{table} as table {table}")

    def put_back() -> None:
        database.run(
            "truncate entry_performance, job_runs, brain_documents, brain_document_revisions, conversations cascade"
        )
        database.run("truncate usage_charges")
        for table in tables:
            database.run(f"insert into {table} select * from saved_{table}")

    return put_back


def test_a_lock_is_free_again_after_its_holder_is_gone(database: Database) -> None:
    source = database.engine("sweep")
    holder = db.make_engine(database.settings, "sweep", pool_size=1)
    connection = holder.connect().execution_options(isolation_level="AUTOCOMMIT")
    connection.execute(sa.text("select pg_advisory_lock(hashtext('job:nightly_refresh'))"))
    with pytest.raises(Conflict):
        run_job("nightly_refresh", [], now=NOW, config=database.settings, source=source)
    connection.invalidate()
    pid = sa.text("select count(*) from pg_locks where locktype = 'advisory'")
    with database.superuser.connect() as looking:
        while looking.scalar(pid):
            looking.rollback()
    run_job("nightly_refresh", [], now=NOW, config=database.settings, source=source)


def assessed(database: Database) -> dict[str, dict[str, Any]]:
    with database.engine("sweep").begin() as connection:
        return {one["name"]: one for one in triggers.assess(connection, now=NOW)}


def test_triggers_are_measured_from_what_there_is(database: Database) -> None:
    person, free = add_person(database, "a@x.example"), add_person(database, "b@x.example", tier="free")
    session = add_session(database, person, NOW)
    for days, count in [(0, 5), (1, 3), (7, 4), (8, 9)]:
        add_answer(
            database, person, session, NOW - days * DAY, [Candidate(uuid.uuid4()) for _ in range(count)]
        )
    for seconds in [*[0.1] * 13, 9.0, *[60.0] * 3]:
        database.run(
            "insert into job_runs (job, step, outcome, details, started_at) values ('nightly_refresh', 'roll_up', 'done',"
            " jsonb_build_object('seconds', cast(:seconds as float8)), :at)",
            seconds=seconds,
            at=NOW - DAY if seconds < 60 else NOW - 20 * DAY,
        )
    add_charge(database, person, NOW - DAY, cost="1.00")
    add_charge(database, person, NOW - DAY, cost="0.25", kind="wrap_up_generation")
    add_charge(database, free, NOW - DAY, cost="0.01", kind="wrap_up_generation")
    for who, made in ((person, 2), (free, 3)):
        for _ in range(made):
            add_wrap_up(database, who, add_session(database, who, NOW), NOW - DAY)
    for name, reasons, tokens in [
        ("kpi", [], 0),
        ("advisor", ["entity", "handover:kpi:no-data"], 120),
        ("advisor", [], 200),
    ]:
        turn = add_turn(database, person, session, NOW - DAY)
        database.run(
            "update turns set trace = cast(:trace as json) where id = :id",
            trace=json.dumps(
                {
                    "route": {"name": name, "reasons": reasons},
                    "sections": [{"section": "previously_fetched", "tokens": tokens}],
                }
            ),
            id=turn,
        )
    found = assessed(database)
    assert found["cutover_rows_per_day"]["value"] == 1.0
    assert found["cutover_rollup_p95"]["value"] == pytest.approx(0.1 + 0.35 * 8.9)
    assert found["cutover_rollup_p95"]["state"] == "ok"
    assert found["wrap_up_cost_share"]["value"] == 0.2
    assert found["wrap_up_cost_share"]["state"] == "reached"
    assert found["wrap_ups_per_pro_user"]["value"] == 2
    assert found["injected_tokens_p95"]["value"] == 196
    assert found["gate_miss_share"]["value"] == 0.5


def test_triggers_with_nothing_to_measure_are_unknown_and_never_alarm(database: Database) -> None:
    states = {name: one["state"] for name, one in assessed(database).items()}
    assert "warning" not in states.values()
    assert "reached" not in states.values()
    assert states["cutover_rollup_p95"] == "unknown"


@pytest.mark.parametrize(
    ("rows", "said"), [(39_999, "ok"), (40_000, "warning"), (50_000, "warning"), (50_001, "reached")]
)
def test_forty_thousand_rows_a_day_are_warned_of_and_over_fifty_thousand_is_the_trigger(
    rows: float, said: str
) -> None:
    assert triggers.state(rows, 50_000) == said


def test_the_export_is_off_without_a_dataset(system: System) -> None:
    answer = system.internal("export_bigquery", {})
    assert answer.status_code == 200
    assert answer.json["note"] == "The export is off."


def test_the_export_reports_each_table_and_compares_the_sinks(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBERINTEL_BIGQUERY_DATASET", "p.memberintel")
    monkeypatch.setenv("MEMBERINTEL_RETRIEVAL_SINK", "both")
    settings.cache_clear()
    a_year(system.database, system.owner)
    with BigQueryServer() as server:
        client = bigquery.Client(
            project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
        )
        monkeypatch.setattr(
            "common.warehouse.bigquery._warehouse", lambda dataset: Warehouse(client, dataset)
        )
        monkeypatch.setattr("common.warehouse.export.TABLES", TABLES[2:3])
        answer = system.internal("export_bigquery", {"now": NOW.isoformat()})
        assert answer.status_code == 200, answer.text
        assert [step["step"] for step in answer.json["steps"]] == ["usage_charges", "compare_sinks"]
        assert answer.json["steps"][1]["safe"] is False
        server.state.fail = lambda _: "no"
        add_charge(system.database, system.owner, NOW - DAY)
        assert system.internal("export_bigquery", {"now": (NOW + DAY).isoformat()}).status_code == 500
    assert {row.job for row in system.database.rows("select job from job_runs")} == {"export_bigquery"}
