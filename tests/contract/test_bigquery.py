"""The export against a server that speaks BigQuery's REST, through the real client."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from common import retention
from common.errors import AppError
from common.jobs import Report, Run, Step, run_job
from common.knowledge.performance import roll_up_log
from common.models import Base
from common.warehouse.bigquery import Warehouse
from common.warehouse.cutover import compare_sinks, verdict
from common.warehouse.export import RowStream, days_due, export_steps
from common.warehouse.schemas import STREAM_COLUMNS, STREAM_TABLE, TABLES, Table
from tests.conftest import NOW, Database, Person, add_person
from tests.rows import (
    Candidate,
    add_answer,
    add_charge,
    add_session,
    add_snapshot,
    add_wrap_up,
    give_feedback,
)
from tests.stubs.bigquery_server import BigQueryServer, State

DAY = timedelta(days=1)
TODAY = NOW.date()
SECRET = "what-a-customer-wrote"
TERRAFORM = Path(__file__).resolve().parents[2] / "terraform" / "schemas"


@pytest.fixture
def server() -> Iterator[BigQueryServer]:
    with BigQueryServer() as running:
        yield running


@pytest.fixture
def warehouse(server: BigQueryServer) -> Warehouse:
    return make_warehouse(server)


def make_warehouse(server: BigQueryServer) -> Warehouse:
    client = bigquery.Client(
        project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
    )
    return Warehouse(client, "p.memberintel")


def export(database: Database, warehouse: Warehouse, now: datetime = NOW) -> Report:
    return run_job(
        "export_bigquery",
        export_steps(warehouse),
        now=now,
        config=database.settings,
        source=database.engine("sweep"),
    )


def a_week(database: Database, person: Person) -> None:
    """Rows in every exported table: on each of the last six days, today included."""
    for age in range(6):
        at = NOW - age * DAY
        session = add_session(database, person, at)
        shown = [Candidate(uuid.uuid4(), cited=True), Candidate(uuid.uuid4(), surfaced=False)]
        message = add_answer(database, person, session, at, shown, text=SECRET)
        add_snapshot(database, person, session, message, at, SECRET)
        add_wrap_up(database, person, session, at, SECRET)
        add_charge(database, person, at)
        add_charge(database, person, at, state="reserved", cost=None)
    nightly = Step("roll_up", roll_up_log)
    run_job("nightly_refresh", [nightly], now=NOW, config=database.settings, source=database.engine("sweep"))


def in_postgres(database: Database, table: Table, until: date = TODAY) -> dict[date, int]:
    """Closed days and their rows, counted the plain way."""
    moment = table.partition if table.name in ("entry_performance",) else f"cast({table.partition} as date)"
    extra = "state <> 'reserved'" if table.name == "usage_charges" else "true"
    rows = database.rows(
        f"select {moment} as day, count(*) as n from {table.source} where {extra} and {moment} < :until group by 1",
        until=until,
    )
    return {row.day: row.n for row in rows}


def in_bigquery(state: State, table: Table) -> dict[date, int]:
    return {
        datetime.strptime(day, "%Y%m%d").date(): len(rows)
        for (name, day), rows in state.partitions.items()
        if name == table.name and rows
    }


def assert_equal_counts(database: Database, state: State, until: date = TODAY) -> None:
    for table in TABLES:
        assert in_bigquery(state, table) == in_postgres(database, table, until), table.name


def test_closed_days_are_loaded_each_into_its_partition(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    report = export(database, warehouse)
    assert not report.failed, report.steps
    assert [step["step"] for step in report.steps] == [table.name for table in TABLES]
    assert_equal_counts(database, server.state)
    assert all(len(in_bigquery(server.state, table)) == 5 for table in TABLES)
    (job,) = [
        j
        for j in server.state.loads()
        if j["jobReference"]["jobId"].endswith("snapshots-20260511-20260512-1")
    ]
    load = job["configuration"]["load"]
    assert load["destinationTable"]["tableId"] == "snapshots$20260511"
    assert load["writeDisposition"] == "WRITE_TRUNCATE"
    assert load["sourceFormat"] == "CSV"
    assert load["clustering"]["fields"] == ["tool_name", "user_id"]
    assert load["timePartitioning"] == {"type": "DAY", "field": "created_at"}
    assert "autodetect" not in load
    noted = database.rows("select table_name, day, row_count from export_days where row_count > 0")
    assert {(r.table_name, r.day): r.row_count for r in noted} == {
        (table.name, day): n for table in TABLES for day, n in in_bigquery(server.state, table).items()
    }


def test_values_arrive_as_they_are(database: Database, server: BigQueryServer, warehouse: Warehouse) -> None:
    person = add_person(database, "a@x.example")
    at = datetime(2026, 5, 11, 23, 30, 15, 123456, UTC)
    session = add_session(database, person, at)
    entry = uuid.uuid4()
    message = add_answer(database, person, session, at, [Candidate(entry, cited=True)])
    charge = add_charge(database, person, at, cost="0.012345")
    export(database, warehouse)
    assert server.state.rows("retrieval_events") == [
        {
            "message_id": str(message),
            "user_id": str(person.user_id),
            "entry_id": str(entry),
            "rank": 1,
            "score": 0.5,
            "surfaced": True,
            "cited": True,
            "created_at": at.replace(tzinfo=None),
        }
    ]
    (row,) = server.state.rows("usage_charges")
    assert (row["id"], row["cost_usd"], row["created_at"], row["settled_at"]) == (
        str(charge),
        0.012345,
        at,
        None,
    )


def test_no_customers_text_leaves(database: Database, server: BigQueryServer, warehouse: Warehouse) -> None:
    a_week(database, add_person(database, "a@x.example"))
    export(database, warehouse)
    assert server.state.rows("wrap_ups")
    assert SECRET not in repr(server.state)
    assert "a@x.example" not in repr(server.state)
    # A column that is added to the export is looked at here first.
    texts = {
        "document",
        "title",
        "text",
        "summary",
        "content",
        "tool_input",
        "tool_output",
        "signals",
        "email",
        "name",
    }
    for table in TABLES:
        source = Base.metadata.tables[table.source].columns
        for column in table.columns:
            assert column.name not in texts
            plain = source[column.name].type if not column.sql and column.name in source else None
            if isinstance(plain, sa.Text):
                assert column.name in {"kind", "provider", "model", "state", "tool_name", "trigger"}, (
                    column.name
                )


def test_a_second_run_on_the_same_day_makes_no_job_and_adds_nothing(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    export(database, warehouse)
    jobs = len(server.state.jobs)
    report = export(database, warehouse, NOW + timedelta(hours=1))
    assert [step["days"] for step in report.steps] == [0] * len(TABLES)
    assert len(server.state.jobs) == jobs
    assert_equal_counts(database, server.state)


def test_rows_that_came_late_for_one_of_the_last_three_days_are_there_the_next_day(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    person = add_person(database, "a@x.example")
    a_week(database, person)
    export(database, warehouse)
    session = add_session(database, person, NOW)
    for age in (1, 2):
        add_answer(database, person, session, NOW - age * DAY, [Candidate(uuid.uuid4())])
    export(database, warehouse, NOW + DAY)
    assert in_bigquery(server.state, TABLES[0]) == in_postgres(database, TABLES[0], TODAY + DAY)
    days = [j["configuration"]["load"]["destinationTable"]["tableId"] for j in server.state.loads()]
    assert days.count("retrieval_events$20260510") == 2
    assert days.count("retrieval_events$20260508") == 1


def test_feedback_that_came_late_loads_the_day_of_its_answer_again(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    person = add_person(database, "a@x.example")
    a_week(database, person)
    export(database, warehouse)
    assert {row["helpful"] for row in server.state.rows("entry_performance")} == {0}
    answered = NOW - 5 * DAY
    (message,) = database.rows("select id from messages where created_at = :at", at=answered)
    give_feedback(database, person, message.id, NOW + timedelta(hours=1), helpful=True)
    run_job(
        "nightly_refresh",
        [Step("roll_up", roll_up_log)],
        now=NOW + DAY,
        config=database.settings,
        source=database.engine("sweep"),
    )
    export(database, warehouse, NOW + DAY)
    helpful = {row["day"] for row in server.state.rows("entry_performance") if row["helpful"]}
    assert helpful == {answered.date()}
    days = [j["configuration"]["load"]["destinationTable"]["tableId"] for j in server.state.loads()]
    assert days.count("entry_performance$20260507") == 2
    assert days.count("entry_performance$20260508") == 1


def test_a_day_that_an_erasure_emptied_is_emptied_there(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    person = add_person(database, "a@x.example")
    a_week(database, person)
    export(database, warehouse)
    database.run("delete from users where id = :id", id=person.user_id)
    export(database, warehouse, NOW + DAY)
    assert server.state.partitions["snapshots", "20260511"] == []
    assert (
        database.scalar(
            "select row_count from export_days where table_name = 'snapshots' and day = '2026-05-11'"
        )
        == 0
    )


class Killed(BaseException):
    """The end of the process."""


def until_nobody_holds_a_lock(database: Database) -> None:
    for _ in range(100_000):
        if not database.scalar(
            "select count(*) from pg_locks join pg_database d on d.oid = database"
            " where locktype = 'advisory' and d.datname = current_database()"
        ):
            return
    raise AssertionError("a lock is held for ever")


def test_a_crash_at_any_point_loses_and_doubles_nothing(
    database: Database, server: BigQueryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.warehouse.export.TABLES", TABLES[:1])
    person = add_person(database, "a@x.example")
    a_week(database, person)
    engine = database.engine("sweep")
    count, deadly = [0], [0]

    def step(*_: Any, **__: Any) -> None:
        count[0] += 1
        if count[0] == deadly[0]:
            raise Killed

    sa.event.listen(engine, "before_cursor_execute", step)
    send = bigquery.Client.load_table_from_file

    def sending(*arguments: Any, **named: Any) -> Any:
        step()  # before the upload
        job = send(*arguments, **named)
        step()  # the job is there, and nobody here knows
        return job

    monkeypatch.setattr(bigquery.Client, "load_table_from_file", sending)
    export(database, make_warehouse(server))
    points, expected = count[0], in_bigquery(server.state, TABLES[0])
    assert len(expected) == 5
    assert points > 25
    for point in range(1, points + 1):
        database.run("truncate export_days")
        server.state.jobs.clear()
        server.state.partitions.clear()
        count[0], deadly[0] = 0, point
        with pytest.raises(Killed):
            export(database, make_warehouse(server))
        deadly[0] = 0
        until_nobody_holds_a_lock(database)  # the server learns of the end a moment later
        assert not export(database, make_warehouse(server)).failed
        assert in_bigquery(server.state, TABLES[0]) == expected, point
        noted = database.rows("select day, row_count from export_days where row_count > 0")
        assert {row.day: row.row_count for row in noted} == expected
        assert len(server.state.jobs) == 5


def test_a_job_that_failed_on_the_server_has_used_up_its_id(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    server.state.fail = lambda job: (
        "backend broke" if job.endswith("retrieval_events-20260511-20260512-1") else None
    )
    report = export(database, warehouse)
    assert not report.failed
    assert (
        database.scalar(
            "select job_id from export_days where table_name = 'retrieval_events' and day = '2026-05-11'"
        )
        == "p-memberintel-retrieval_events-20260511-20260512-2"
    )
    assert_equal_counts(database, server.state)


def test_a_table_that_is_refused_fails_alone_and_is_made_up_for(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    server.state.fail = lambda job: "no" if "snapshots-20260510" in job else None
    report = export(database, warehouse)
    outcomes = {step["step"]: step["outcome"] for step in report.steps}
    assert outcomes == {t.name: "failed" if t.name == "snapshots" else "done" for t in TABLES}
    assert [j for j in server.state.jobs if "snapshots-20260510" in j] == [
        f"p-memberintel-snapshots-20260510-20260512-{n}" for n in (1, 2, 3)
    ]
    server.state.fail = lambda _: None
    assert not export(database, warehouse, NOW + DAY).failed
    assert_equal_counts(database, server.state, TODAY + DAY)


def test_a_column_that_is_new_here_is_added_there(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    server.state.columns["snapshots"] = {
        c.name: c.type
        for c in next(t for t in TABLES if t.name == "snapshots").columns
        if c.name != "observed_at"
    }
    a_week(database, add_person(database, "a@x.example"))
    assert not export(database, warehouse).failed
    assert server.state.columns["snapshots"]["observed_at"] == "TIMESTAMP"


def test_a_copy_that_breaks_off_is_never_loaded_as_a_whole_day(
    database: Database, server: BigQueryServer, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_week(database, add_person(database, "a@x.example"))

    def breaking(run: Run, table: Table, day: date, out: Any) -> int:
        out.write(b"half a day")
        raise ConnectionResetError

    monkeypatch.setattr("common.warehouse.export.copy_day", breaking)
    report = export(database, warehouse)
    assert {step["outcome"] for step in report.steps} == {"failed"}
    assert server.state.jobs == {}
    assert database.scalar("select count(*) from export_days where row_count > 0") == 0


def test_an_upload_that_breaks_off_stops_the_copy(database: Database) -> None:
    engine = database.engine("sweep")
    from common.db import copy_out

    def copy(out: Any) -> int:
        with engine.begin() as connection:
            return copy_out(connection, "copy (select generate_series(1, 2000000)) to stdout", out)

    with RowStream(copy) as rows:
        assert rows.read(10)
    assert rows.rows == 0
    with engine.begin() as connection:
        assert connection.scalar(sa.text("select 1")) == 1


def test_a_hundred_thousand_rows_of_a_day_arrive(
    database: Database, server: BigQueryServer, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("common.warehouse.export.TABLES", TABLES[:1])
    person = add_person(database, "a@x.example")
    session = add_session(database, person, NOW)
    message = add_answer(database, person, session, NOW)
    database.run("alter table retrieval_events alter rank type integer")
    database.run(
        "insert into retrieval_events select :m, :u, gen_random_uuid(), n, 0.25, true, false, timestamp '2026-05-11 10:00'"
        " from generate_series(1, 100000) n",
        m=message,
        u=person.user_id,
    )
    report = export(database, warehouse)
    assert report.steps[0]["rows"] == 100_000
    assert in_bigquery(server.state, TABLES[0]) == {date(2026, 5, 11): 100_000}
    assert {row["rank"] for row in server.state.rows("retrieval_events")} == set(range(1, 100_001))


def test_it_stops_before_its_time_is_over_and_goes_on_the_next_time(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    seconds = iter(range(1000))
    report = run_job(
        "export_bigquery",
        export_steps(warehouse),
        now=NOW,
        config=database.settings,
        source=database.engine("sweep"),
        seconds=8,
        monotonic=lambda: float(next(seconds)),
    )
    assert report.document()["left"]
    assert not report.failed
    assert not export(database, warehouse, NOW + timedelta(hours=1)).failed
    assert_equal_counts(database, server.state)


def test_a_purge_waits_for_the_export(
    database: Database, server: BigQueryServer, warehouse: Warehouse
) -> None:
    person = add_person(database, "a@x.example")
    old = NOW - 92 * DAY
    add_answer(database, person, add_session(database, person, old), old, [Candidate(uuid.uuid4())])
    database.run(
        "insert into entry_performance (entry_id, day, final) values (gen_random_uuid(), '2026-05-01', true)"
    )
    config = database.settings.model_copy(update={"bigquery_dataset": "p.memberintel"})
    run = Run("nightly_refresh", NOW, config, database.engine("sweep"), must_stop=lambda: False)
    assert retention.purge_retrieval_events(run) == {"deleted": 0, "held_back": 1, "left": False}
    export(database, warehouse)
    assert retention.purge_retrieval_events(run)["deleted"] == 1
    assert in_bigquery(server.state, TABLES[0]) == {old.date(): 1}


def test_a_day_is_due_once_it_is_closed_in_utc(database: Database) -> None:
    person = add_person(database, "a@x.example")
    midnight = datetime(2026, 5, 12, tzinfo=UTC)
    add_charge(database, person, midnight - timedelta(microseconds=1))
    charges = next(t for t in TABLES if t.name == "usage_charges")

    def due(now: datetime) -> list[date]:
        run = Run(
            "export_bigquery", now, database.settings, database.engine("sweep"), must_stop=lambda: False
        )
        return [day for day, _ in days_due(run, charges)]

    assert due(midnight - timedelta(microseconds=1))[-1] == date(2026, 5, 10)
    assert due(midnight)[-1] == date(2026, 5, 11)


def test_terraform_and_the_code_name_the_same_columns() -> None:
    stream = Table(STREAM_TABLE, "", "created_at", (), STREAM_COLUMNS)
    for table in (*TABLES, stream):
        there = json.loads((TERRAFORM / f"{table.name}.json").read_text())
        assert [(c["name"], c["type"], c["mode"]) for c in there] == [
            (c.name, c.type, c.mode) for c in table.columns
        ], table.name
    assert {path.stem for path in TERRAFORM.glob("*.json")} == {t.name for t in (*TABLES, stream)}


def stream(database: Database, state: State, *, lose: int = 0, twice: int = 0) -> None:
    """What the subscription wrote: the log's rows, some of them lost, some of them twice."""
    rows = [
        dict(r._mapping) for r in database.rows("select * from retrieval_events order by created_at, rank")
    ]
    for row in [*rows[lose:], *rows[-twice:]] if twice else rows[lose:]:
        row["message_id"] = str(row["message_id"])
        state.partitions.setdefault((STREAM_TABLE, f"{row['created_at']:%Y%m%d}"), []).append(row)


@pytest.mark.parametrize(
    ("lose", "twice", "sink", "safe"),
    [(0, 0, "both", True), (0, 3, "both", True), (1, 0, "both", False), (0, 0, "postgres", False)],
)
def test_a_switch_is_called_safe_only_while_every_day_is_equal(
    database: Database,
    server: BigQueryServer,
    warehouse: Warehouse,
    lose: int,
    twice: int,
    sink: str,
    safe: bool,
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    stream(database, server.state, lose=lose, twice=twice)
    with database.engine("sweep").begin() as connection:
        days = compare_sinks(connection, warehouse, now=NOW)
    assert len(days) == 7
    found = verdict(database.settings.model_copy(update={"retrieval_sink": sink}), days)
    assert found["safe"] is safe
    assert bool(found["reasons"]) is not safe


def test_equal_counts_of_nothing_are_not_safe(database: Database, warehouse: Warehouse) -> None:
    with database.engine("sweep").begin() as connection:
        days = compare_sinks(connection, warehouse, now=NOW)
    found = verdict(database.settings.model_copy(update={"retrieval_sink": "both"}), days)
    assert not found["safe"]


def test_a_server_that_is_away_fails_the_step_and_notes_nothing(database: Database) -> None:
    a_week(database, add_person(database, "a@x.example"))

    class Away:
        def __getattr__(self, name: str) -> Any:
            raise AppError("away")

    report = export(database, Warehouse(Away(), "p.memberintel"))  # type: ignore[arg-type]
    assert report.failed
    assert database.scalar("select count(*) from export_days where row_count > 0") == 0
