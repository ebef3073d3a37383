"""What is kept for how long."""

from __future__ import annotations

import io
import json
import uuid
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common import entitlements, retention
from common.jobs import Run
from tests.conftest import NOW, Database, add_person
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

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def run(database: Database, now: datetime = NOW, **settings: Any) -> Run:
    config = database.settings.model_copy(update=settings)
    return Run("nightly_refresh", now, config, database.engine("sweep"), must_stop=lambda: False)


def final_day(database: Database, day: datetime) -> None:
    database.run(
        "insert into entry_performance (entry_id, day, final) values (:id, cast(:day as date), true)",
        id=uuid.uuid4(),
        day=day,
    )


def exported(database: Database, table: str, day: datetime) -> None:
    database.run(
        "insert into export_days values (:table, cast(:day as timestamptz)::date, 1, 'job', :day)",
        table=table,
        day=day,
    )


def events_at(database: Database, *moments: datetime) -> None:
    person = add_person(database, f"{uuid.uuid4()}@x.example")
    session = add_session(database, person, NOW)
    for at in moments:
        add_answer(database, person, session, at, [Candidate(uuid.uuid4())])


def times(database: Database, table: str, moment: str = "created_at") -> list[datetime]:
    return [row[0] for row in database.rows(f"select {moment} from {table} order by 1")]


def test_retrieval_events_go_after_ninety_days_to_the_second(database: Database) -> None:
    cut = NOW - 90 * DAY
    events_at(database, cut - SECOND, cut, cut + SECOND)
    final_day(database, NOW)
    assert retention.purge_retrieval_events(run(database)) == {"deleted": 1, "held_back": 0, "left": False}
    naive = [at.replace(tzinfo=None) for at in (cut, cut + SECOND)]
    assert times(database, "retrieval_events") == naive
    assert retention.purge_retrieval_events(run(database))["deleted"] == 0


def test_events_that_are_not_counted_yet_wait_for_at_most_seven_days(database: Database) -> None:
    cut = NOW - 90 * DAY
    events_at(database, cut - 7 * DAY - SECOND, cut - 7 * DAY, cut - SECOND)
    lines = io.StringIO()
    with redirect_stdout(lines):
        done = retention.purge_retrieval_events(run(database))
    assert done == {"deleted": 1, "held_back": 2, "left": False}
    (line,) = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert (line["severity"], line["row_count"], line["at_most_days"]) == ("ERROR", 2, 7)


@pytest.mark.parametrize("table", ["retrieval_events", "message_tool_results", "session_logs"])
def test_with_the_export_on_an_unexported_day_is_kept_for_at_most_seven_days(
    database: Database, table: str
) -> None:
    kept, name, purge = {
        "retrieval_events": (90, "retrieval_events", retention.purge_retrieval_events),
        "message_tool_results": (180, "snapshots", retention.purge_snapshots),
        "session_logs": (365, "wrap_ups", retention.purge_wrap_ups),
    }[table]
    final_day(database, NOW)
    cut = NOW - kept * DAY
    moments = [cut - 7 * DAY - SECOND, cut - 5 * DAY, cut - 3 * DAY, cut + SECOND]
    person = add_person(database, "a@x.example")
    for at in moments:
        session = add_session(database, person, at)
        message = add_answer(database, person, session, at, [Candidate(uuid.uuid4())])
        add_snapshot(database, person, session, message, at)
        add_wrap_up(database, person, session, at)
    exported(database, name, cut - 3 * DAY)
    assert purge(run(database, bigquery_dataset="p.d")) == {"deleted": 2, "held_back": 1, "left": False}
    left = [at.replace(tzinfo=UTC) for at in times(database, table)]
    assert left == [moments[1], moments[3]]
    assert purge(run(database))["deleted"] == 1


def test_snapshots_go_after_180_days_and_are_counted_in_the_log(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, NOW)
    message = add_answer(database, person, session, NOW)
    cut = NOW - 180 * DAY
    for at in (cut - SECOND, cut):
        add_snapshot(database, person, session, message, at)
    lines = io.StringIO()
    with redirect_stdout(lines):
        assert retention.purge_snapshots(run(database))["deleted"] == 1
    assert times(database, "message_tool_results") == [cut]
    (line,) = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert (line["event"], line["row_count"]) == ("tool_results_retention_deletes_total", 1)


def test_wrap_ups_go_after_the_days_of_the_setting(database: Database) -> None:
    person = add_person(database, "a@x.example")
    cut = NOW - 20 * DAY
    for at in (cut - SECOND, cut):
        add_wrap_up(database, person, add_session(database, person, at), at)
    assert retention.purge_wrap_ups(run(database))["deleted"] == 0
    assert retention.purge_wrap_ups(run(database, wrap_up_retention_days=20))["deleted"] == 1
    assert times(database, "session_logs") == [cut]


def test_turns_and_runs_of_jobs_go_after_thirty_days_and_take_nothing_along(database: Database) -> None:
    person = add_person(database, "a@x.example")
    session = add_session(database, person, NOW)
    cut = NOW - 30 * DAY
    for at in (cut - SECOND, cut):
        turn = add_turn(database, person, session, at)
        message = add_answer(database, person, session, at, [Candidate(uuid.uuid4())], turn=turn)
        add_snapshot(database, person, session, message, at)
        give_feedback(database, person, message, at, helpful=True)
        charge = add_charge(database, person, at)
        database.run("update usage_charges set turn_id = :turn where id = :id", turn=turn, id=charge)
        database.run(
            "insert into job_runs (job, step, outcome, started_at) values ('j', 's', 'done', :at)", at=at
        )
    done = retention.purge_turns_and_job_runs(run(database))
    assert done == {"turns": 1, "job_runs": 1, "left": False}
    assert times(database, "turns", "started_at") == [cut]
    assert times(database, "job_runs", "started_at") == [cut]
    for table in (
        "messages",
        "retrieval_events",
        "message_tool_results",
        "message_feedback",
        "usage_charges",
    ):
        assert database.scalar(f"select count(*) from {table}") == 2, table
    kept = database.rows("select turn_id from messages order by created_at")
    assert [row.turn_id is None for row in kept] == [True, False]


# What a purge deletes by itself; everything else goes with its user or conversation only.
PURGED = ("retrieval_events", "message_tool_results", "session_logs", "turns", "job_runs")


def test_no_row_hangs_by_a_cascade_on_what_a_purge_deletes(database: Database) -> None:
    hanging = database.rows(
        """
        select conrelid::regclass::text as child, confrelid::regclass::text as parent from pg_constraint
        where contype = 'f' and confdeltype not in ('n') and confrelid::regclass::text = any(:purged)
        """,
        purged=list(PURGED),
    )
    assert hanging == []


def test_a_reservation_whose_process_died_expires_at_its_worst_case(database: Database) -> None:
    person = add_person(database, "a@x.example")
    reserved: dict[str, Any] = {"state": "reserved", "cost": None}
    dead = add_charge(database, person, NOW - DAY, expires_at=NOW, **reserved)
    alive = add_charge(database, person, NOW - DAY, expires_at=NOW + SECOND, **reserved)
    settled = add_charge(database, person, NOW - DAY, expires_at=NOW - DAY)
    assert retention.expire_reservations(run(database)) == {"expired": 1}
    rows = {
        r.id: (r.state, r.cost_usd) for r in database.rows("select id, state, cost_usd from usage_charges")
    }
    assert rows[dead][0] == "expired"
    assert float(rows[dead][1]) == 0.05
    assert rows[alive] == ("reserved", None)
    assert rows[settled][0] == "settled"


def test_reservations_are_looked_for_from_the_last_run_on_that_went_through(database: Database) -> None:
    person = add_person(database, "a@x.example")
    for days, outcome in ((3, "done"), (1, "failed")):
        database.run(
            "insert into job_runs (job, step, outcome, started_at) values (:job, 'expire_reservations', :outcome, :at)",
            job=run(database).job,
            outcome=outcome,
            at=NOW - days * DAY,
        )
    made = [NOW - 2 * DAY, NOW - 3 * DAY - timedelta(minutes=9), NOW - 4 * DAY]
    charges = [
        add_charge(
            database, person, at, state="reserved", cost=None, expires_at=at + entitlements.RESERVATION_LASTS
        )
        for at in made
    ]
    assert retention.expire_reservations(run(database)) == {"expired": 2}
    states = dict(database.rows("select id, state from usage_charges"))
    assert [states[charge] for charge in charges] == ["expired", "expired", "reserved"]


def test_purges_work_in_batches_and_say_when_time_ran_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    final_day(database, NOW)
    events_at(database, *[NOW - 91 * DAY + n * SECOND for n in range(5)])
    asked = iter([False, False, True, True])
    short = replace(run(database), must_stop=lambda: next(asked))
    assert retention.purge_retrieval_events(short) == {"deleted": 4, "held_back": 0, "left": True}
    assert retention.purge_retrieval_events(run(database))["deleted"] == 1


def test_rows_of_one_moment_go_in_several_batches(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    final_day(database, NOW)
    events_at(database, *[NOW - 91 * DAY] * 3, *[NOW - 91 * DAY + SECOND] * 2, NOW)
    assert retention.purge_retrieval_events(run(database)) == {"deleted": 5, "held_back": 0, "left": False}


def test_the_purge_finds_its_rows_by_index(database: Database) -> None:
    for table, moment in [
        ("retrieval_events", "created_at"),
        ("message_tool_results", "created_at"),
        ("session_logs", "created_at"),
        ("turns", "started_at"),
    ]:
        leading = database.rows(
            """
            select 1 from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
            where i.indrelid = cast(:table as regclass) and a.attname = :moment
            """,
            table=table,
            moment=moment,
        )
        assert leading, table
