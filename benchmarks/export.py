"""The export of days of 50,000 events, against a bare `COPY … TO STDOUT` of the same rows.

    python -m benchmarks.export [--quick] [--days 90] [--answers 3334] [--candidates 15] [--rounds 3] [--json FILE]

The export is the real one, through the real client, to a server in a process of its own that counts the rows and throws them away. The
bare copy is the same statement by pg8000's `run()`, written to nowhere; psql's, which is written in C, is reported beside it.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pg8000.native
import sqlalchemy as sa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from sqlalchemy import Engine

from benchmarks import report
from benchmarks.nightly import DAY, END, filled, sizes
from benchmarks.report import Row
from common.config import Settings
from common.db import make_engine
from common.jobs import Run
from common.warehouse.bigquery import Warehouse
from common.warehouse.export import export_table
from common.warehouse.schemas import TABLES
from local import postgres

EVENTS = TABLES[0]


@contextlib.contextmanager
def throwing_away() -> Iterator[Warehouse]:
    """A warehouse that keeps nothing."""
    command = [sys.executable, "-m", "tests.stubs.bigquery_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        client = bigquery.Client(
            project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
        )
        try:
            yield Warehouse(client, "p.bench")
        finally:
            process.terminate()


class Nowhere(io.RawIOBase):
    """Takes everything."""

    def write(self, data: Any) -> int:
        return len(data)


def copies(days: list[date]) -> list[str]:
    """A statement a day, as the export has it."""
    columns = ", ".join(column.expression for column in EVENTS.columns)
    return [
        f"copy (select {columns} from {EVENTS.source} where {EVENTS.rows_of(str(day), str(day + DAY))}) to stdout (format csv)"
        for day in days
    ]


def copied(server: postgres.Server, days: list[date]) -> tuple[float, int]:
    """Seconds and rows of a bare copy of `days` by pg8000."""
    connection = pg8000.native.Connection("memberintel_sweep", unix_sock=str(server.socket), database="bench")
    began = time.perf_counter()
    rows = 0
    for sql in copies(days):
        connection.run(sql, stream=Nowhere())
        rows += connection.row_count
    seconds = time.perf_counter() - began
    connection.close()
    return seconds, rows


def copied_by_psql(server: postgres.Server, days: list[date]) -> float:
    """Seconds of the same by psql, which does nothing but read."""
    began = time.perf_counter()
    with open(os.devnull, "wb") as nowhere:
        subprocess.run(
            [
                server.psql(),
                server.libpq_url("bench", "memberintel_sweep"),
                *[part for sql in copies(days) for part in ("-c", sql)],
            ],
            stdout=nowhere,
            check=True,
        )
    return time.perf_counter() - began


def exported(run: Run, warehouse: Warehouse, owner: Engine) -> tuple[float, int]:
    """Seconds and rows of the export."""
    with owner.begin() as connection:
        connection.execute(sa.text("truncate export_days"))
    began = time.perf_counter()
    found = export_table(run, EVENTS, warehouse)
    return time.perf_counter() - began, int(found["rows"])


def main(argv: list[str] | None = None) -> None:
    """Fill, measure, publish."""
    asked = sizes(__doc__, argv, days=90, answers=3334, candidates=15, rounds=3, quick_days=5)
    began = time.perf_counter()
    with (
        filled(asked.days, asked.answers, asked.candidates) as (settings, server),
        throwing_away() as warehouse,
    ):
        print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
        with contextlib.redirect_stdout(io.StringIO()):
            rounds, rows = measure(settings, server, warehouse, asked.days, asked.rounds)
    for one in rounds:
        print(f"{rows:,} rows: {one}", flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    report.publish(
        [
            report.of(
                "export, share of the speed of a bare COPY by pg8000",
                [r["share_of_bare_copy"] for r in rounds],
                "",
                "≥ 0.7",
            ),
            report.of(
                "export, share of the speed of psql's COPY", [r["share_of_psql_copy"] for r in rounds], ""
            ),
            report.of("export, rows a second", [rows / r["export_s"] for r in rounds], ""),
            Row("export, largest memory of the process", memory, "MB"),
        ],
        asked.json,
    )


def measure(
    settings: Settings, server: postgres.Server, warehouse: Warehouse, days: int, rounds: int
) -> tuple[list[dict[str, float]], int]:
    """Each round's seconds, one way after the other, and the number of rows."""
    sweep, superuser = make_engine(settings, "sweep"), sa.create_engine(settings.database_url)
    # Three days are always loaded again, so that they belong to what is due.
    run = Run(
        "export_bigquery",
        datetime.combine(END.date(), datetime.min.time(), UTC) + timedelta(hours=4),
        settings,
        sweep,
        lambda: False,
    )
    all_days = [(END - (n + 1) * DAY).date() for n in range(days)]
    found: list[dict[str, float]] = []
    rows = 0
    for _ in range(rounds):
        bare, rows = copied(server, all_days)
        export, sent = exported(run, warehouse, superuser)
        assert sent == rows, (sent, rows)
        psql = copied_by_psql(server, all_days)
        found.append(
            {
                "bare_copy_s": round(bare, 2),
                "export_s": round(export, 2),
                "psql_copy_s": round(psql, 2),
                "share_of_bare_copy": round(bare / export, 2),
                "share_of_psql_copy": round(psql / export, 2),
            }
        )
    sweep.dispose()
    superuser.dispose()
    return found, rows


if __name__ == "__main__":
    main()
