"""The export into bqemulator, an engine that stores the rows and understands BigQuery's SQL, through the real client.

The emulator lacks four things of a load that ours needs, so a door stands before it and does them on the way: it knows no
`table$YYYYMMDD` (the door empties that day and appends), takes a CSV's first line for names (the door puts them there), reads no
`nullMarker` (the door writes what the emulator takes for null), and answers with the table's rows for the load's `outputRows` (the door
takes off those that were there before). All else passes as it is. What the emulator does not look at (unknown columns, the job's id) is
for `test_bigquery.py`, whose server is strict.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from common.warehouse.bigquery import NULL, Warehouse
from common.warehouse.cutover import compare_sinks
from common.warehouse.schemas import STREAM_COLUMNS, STREAM_TABLE, TABLES, Column, Table
from tests.conftest import NOW, Database, add_person
from tests.contract.compatibility import EMULATOR
from tests.contract.test_bigquery import a_week, export, in_postgres
from tests.e2e.conftest import free_port

pytestmark = pytest.mark.slow
DAY = timedelta(days=1)
TODAY = NOW.date()
_NULL = re.compile(rb"(?<![^,\n])" + re.escape(NULL.encode()) + rb"(?=[,\n])")


def installed(folder: Path) -> Path:
    """The emulator's program in a venv of its own in `folder`, made on first use. Skips where it cannot be installed."""
    program = folder / "bin/bqemulator"
    if (folder / "complete").exists():
        return program
    python = str(folder / "bin/python")
    spatial = "import duckdb_extensions; duckdb_extensions.import_extension('spatial')"
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *EMULATOR],
        [python, "-c", spatial],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            why = (done.stderr.strip() or "no reason given").splitlines()[-1]
            pytest.skip(f"bqemulator cannot be installed on this machine: {why}")
    (folder / "complete").touch()
    return program


@pytest.fixture(scope="module")
def emulator(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a running emulator."""
    name = EMULATOR[0].replace("==", "-")
    assert request.config.cache is not None
    program = installed(request.config.cache.mkdir(name))
    port = free_port()
    command = [str(program), "start", "--rest-port", str(port), "--grpc-port", "0", "--project", "p"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield wait_for(f"http://127.0.0.1:{port}", process)
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> str:
    """`url` once something answers there."""
    for _ in range(600):
        assert process.poll() is None, "bqemulator has stopped"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/bigquery/v2/projects/p/datasets", timeout=5).close()
            return url
        time.sleep(0.1)
    raise AssertionError("bqemulator does not answer")


@dataclass
class Door:
    """What stands before the emulator. By the ids of uploads that were begun: the names of the columns, and how many rows the table had.
    `before` is that number by the id of the job, which the emulator chooses."""

    emulator: str
    uploads: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)

    def begin_load(self, job: dict[str, Any]) -> tuple[list[str], int]:
        """Turn the replacement of a day's partition into its emptying and an appending load. Returns the names of its columns, and how many
        rows are in the table before."""
        load = job["configuration"]["load"]
        table, _, day = load["destinationTable"]["tableId"].partition("$")
        assert day
        assert load["writeDisposition"] == "WRITE_TRUNCATE"
        name = f"`p.{load['destinationTable']['datasetId']}.{table}`"
        partition = next(t.partition for t in TABLES if t.name == table)
        self.query(
            f"delete from {name} where cast({partition} as date) = '{datetime.strptime(day, '%Y%m%d').date()}'"
        )
        counted = self.query(f"select count(*) from {name}")
        load["destinationTable"]["tableId"] = table
        load["writeDisposition"] = "WRITE_APPEND"
        return [column["name"] for column in load["schema"]["fields"]], int(counted["rows"][0]["f"][0]["v"])

    def told(self, job: dict[str, Any], before: int | None = None) -> dict[str, Any]:
        """`job` as BigQuery would tell of it; `before` with the answer to its upload."""
        load = job.get("statistics", {}).get("load", {})
        if before is not None and "jobReference" in job:
            self.before[job["jobReference"]["jobId"]] = before
        if "outputRows" in load:
            load["outputRows"] = str(int(load["outputRows"]) - self.before[job["jobReference"]["jobId"]])
        return job

    def query(self, sql: str) -> dict[str, Any]:
        """The emulator's answer to `sql`."""
        body = json.dumps({"query": sql, "useLegacySql": False}).encode()
        status, _, answer = self.ask(
            "POST", "/bigquery/v2/projects/p/queries", body, {"Content-Type": "application/json"}
        )
        assert status == 200, answer
        return dict(json.loads(answer))

    def ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the emulator's answer."""
        request = urllib.request.Request(self.emulator + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as exc:
            return exc.code, dict(exc.headers), exc.read()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    @property
    def door(self) -> Door:
        return self.server.door  # type: ignore[attr-defined,no-any-return]

    def _pass_on(self) -> None:
        try:
            self._answer(*self._passed_on(self.rfile.read(int(self.headers.get("Content-Length") or 0))))
        except Exception as exc:  # a client whose connection breaks off tries again for minutes
            self._answer(400, "", json.dumps({"error": {"message": repr(exc)}}).encode())
            raise

    def _passed_on(self, body: bytes) -> tuple[int, str, bytes]:
        """Status, location and body of the answer."""
        kept = ("Content-Type", "Authorization", "X-Upload-Content-Type")
        headers = {name: self.headers[name] for name in kept if name in self.headers}
        begun: tuple[list[str], int] | None = None
        before = None
        if self.path.startswith("/upload/") and self.command == "POST":
            job = json.loads(body)
            begun = self.door.begin_load(job)
            body = json.dumps(job).encode()
        elif self.path.startswith("/upload/"):
            names, before = self.door.uploads.pop(self.path.rpartition("upload_id=")[2])
            body = ",".join(names).encode() + b"\n" + _NULL.sub(b"", body)
            headers["Content-Range"] = f"bytes 0-{len(body) - 1}/{len(body)}"
        status, answered, content = self.door.ask(self.command, self.path, body or None, headers)
        location = {name.lower(): value for name, value in answered.items()}.get("location", "")
        if begun:
            self.door.uploads[location.rpartition("upload_id=")[2]] = begun
            location = f"http://{self.headers['Host']}/{location.split('/', 3)[3]}"
        elif before is not None or "/jobs/" in self.path:
            content = json.dumps(self.door.told(json.loads(content), before)).encode()
        return status, location, content

    def _answer(self, status: int, location: str, content: bytes) -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def client(emulator: str) -> Iterator[bigquery.Client]:
    """The real client with an empty dataset of the tables that Terraform makes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.door = Door(emulator)  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = bigquery.Client(
            project="p",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{server.server_port}"},
        )
        dataset = bigquery.Dataset("p.memberintel")
        dataset.location = "EU"
        made.create_dataset(dataset)
        for table in TABLES:
            make_table(made, table.name, table.columns, table.partition, table.clustering)
        make_table(made, STREAM_TABLE, STREAM_COLUMNS, "created_at", ())
        yield made
        made.delete_dataset("p.memberintel", delete_contents=True)
        server.shutdown()


def make_table(
    client: bigquery.Client,
    name: str,
    columns: tuple[Column, ...],
    partition: str,
    clustering: tuple[str, ...],
) -> None:
    schema = [bigquery.SchemaField(c.name, c.type, mode=c.mode) for c in columns]
    table = bigquery.Table(f"p.memberintel.{name}", schema=schema)
    table.time_partitioning = bigquery.TimePartitioning(field=partition)
    if clustering:
        table.clustering_fields = list(clustering)
    client.create_table(table)


def by_day(client: bigquery.Client, table: Table) -> dict[date, int]:
    """A table's closed days and their rows, as the emulator counts them."""
    rows = client.query_and_wait(
        f"select cast({table.partition} as date) as day, count(*) as n from memberintel.{table.name} group by 1"
    )
    return {row["day"]: row["n"] for row in rows}


def assert_equal_counts(database: Database, client: bigquery.Client, until: date) -> None:
    for table in TABLES:
        counted = by_day(client, table)
        assert counted, table.name
        assert counted == in_postgres(database, table, until), table.name


def test_each_day_has_the_rows_that_postgres_has_after_every_night(
    database: Database, client: bigquery.Client
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    warehouse = Warehouse(client, "p.memberintel")
    first = export(database, warehouse)
    assert not first.failed, first.steps
    assert_equal_counts(database, client, TODAY)
    again = export(database, warehouse, NOW + DAY)
    assert not again.failed, again.steps
    assert [step["days"] for step in again.steps] == [3] * len(TABLES)
    assert_equal_counts(database, client, TODAY + DAY)


def test_sums_and_nulls_arrive(database: Database, client: bigquery.Client) -> None:
    a_week(database, add_person(database, "a@x.example"))
    assert not export(database, Warehouse(client, "p.memberintel")).failed
    before = "created_at < cast(:today as timestamp) at time zone 'UTC'"
    for there, here in (
        (
            "select sum(cost_usd), sum(input_tokens), countif(settled_at is null) from memberintel.usage_charges",
            "select sum(cost_usd), sum(input_tokens), count(*) filter (where settled_at is null) from usage_charges"
            f" where state <> 'reserved' and {before}",
        ),
        (
            "select sum(rank), countif(surfaced), countif(cited), max(score) from memberintel.retrieval_events",
            "select sum(rank), count(*) filter (where surfaced), count(*) filter (where cited), max(score) from retrieval_events"
            " where created_at < cast(:today as timestamp)",
        ),
        (
            "select count(distinct id), countif(site_id is null), sum(output_bytes) from memberintel.snapshots",
            "select count(distinct id), count(*) filter (where site_id is null), sum(pg_column_size(tool_output)) from message_tool_results"
            f" where {before}",
        ),
        (
            "select min(created_at), countif(edited_at is null) from memberintel.wrap_ups",
            f"select min(created_at), count(*) filter (where edited_at is null) from session_logs where {before}",
        ),
    ):
        (stored,) = client.query_and_wait(there)
        (expected,) = database.rows(here, today=TODAY)
        assert list(stored.values()) == list(expected), there


def test_erasing_a_user_deletes_their_rows_and_no_others(database: Database, client: bigquery.Client) -> None:
    leaving, staying = add_person(database, "a@x.example"), add_person(database, "b@x.example")
    for person in (leaving, staying):
        a_week(database, person)
    warehouse = Warehouse(client, "p.memberintel")
    assert not export(database, warehouse).failed
    messages = [
        row.id for row in database.rows("select id from messages where user_id = :id", id=leaving.user_id)
    ]
    told = warehouse.delete_user(leaving.user_id, messages)
    assert all(left == 0 for _deleted, left in told.values()), told
    database.run("delete from users where id = :id", id=leaving.user_id)
    for table in (t for t in TABLES if t.name != "entry_performance"):
        assert by_day(client, table) == in_postgres(database, table), table.name


def test_the_comparison_of_the_sinks_counts_an_event_that_came_twice_once(
    database: Database, client: bigquery.Client
) -> None:
    a_week(database, add_person(database, "a@x.example"))
    warehouse = Warehouse(client, "p.memberintel")
    assert not export(database, warehouse).failed
    columns = ", ".join(column.name for column in STREAM_COLUMNS)
    for _ in range(2):
        client.query_and_wait(
            f"insert into memberintel.{STREAM_TABLE} ({columns}) select {columns} from memberintel.retrieval_events"
        )
    with database.engine("sweep").connect() as connection:
        days = compare_sinks(connection, warehouse, now=NOW)
    assert sum(day["bigquery"] for day in days) > 0
    assert all(day["bigquery"] == day["postgres"] for day in days), days
