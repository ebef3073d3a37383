"""The export: each closed day of a table as one load job into its partition in BigQuery.

A day is loaded whole and replaces what was there, so that a repeat adds nothing; it is noted in `export_days` once it is there, so that a
crash anywhere leaves it to be loaded again. The last days are loaded again each night, for rows that came late or were erased; an older
one of `entry_performance` when late feedback changed it, for the roll-up takes its note away.
"""

from __future__ import annotations

import contextlib
import functools
import io
import queue
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from common import log
from common.db import Writer, copy_out, transaction
from common.jobs import Run, Step
from common.warehouse.bigquery import NULL, LoadFailed, Warehouse
from common.warehouse.schemas import TABLES, Table

AGAIN_DAYS = 3
COPY_SECONDS = 600

_DUE = """
    select cast(d as date) as day, x.row_count as before
    from generate_series(least((select {earliest} from {source}), cast(:again as timestamp)), cast(:yesterday as timestamp), '1 day') as d
    left join export_days x on x.table_name = :table and x.day = cast(d as date)
    where x.day is null or (x.day >= cast(:again as date) and x.exported_at < :midnight)
    order by day
"""


def export_steps(warehouse: Warehouse) -> list[Step]:
    """A step for each table, so that one that fails leaves the others done."""
    return [Step(t.name, functools.partial(export_table, table=t, warehouse=warehouse)) for t in TABLES]


def export_table(run: Run, table: Table, warehouse: Warehouse) -> dict[str, Any]:
    """Load every closed day of `table` that is due, oldest first. Returns how many days and rows were loaded, and how many days are
    left; raises LoadFailed at a day that BigQuery refuses."""
    days, rows = 0, 0
    due = days_due(run, table)
    for day, before in due:
        if run.must_stop():
            return {"days": days, "rows": rows, "left": len(due) - days}
        try:
            rows += _export_day(run, table, warehouse, day, before or 0)
        except LoadFailed as exc:
            raise LoadFailed(None, **exc.extra, days=days, rows=rows, left=len(due) - days) from exc
        days += 1
    return {"days": days, "rows": rows}


def days_due(run: Run, table: Table) -> list[tuple[date, int | None]]:
    """The closed days that are not in BigQuery, and the last ones unless this day's run has loaded them; with how many rows they had."""
    today = run.now.astimezone(UTC).date()
    with transaction("sweep", source=run.source) as connection:
        due = connection.execute(
            sa.text(_DUE.format(earliest=_earliest_day(table), source=table.source)),
            {
                "table": table.name,
                "again": today - timedelta(days=AGAIN_DAYS),
                "yesterday": today - timedelta(days=1),
                "midnight": datetime.combine(today, datetime.min.time(), UTC),
            },
        )
        return [(row.day, row.before) for row in due]


def _earliest_day(table: Table) -> str:
    """The SQL for it: the index's first row, then its day."""
    zone = " at time zone 'UTC'" if "time zone" in table.day_start else ""
    return f"cast(cast(min({table.partition}){zone} as date) as timestamp)"


def _export_day(run: Run, table: Table, warehouse: Warehouse, day: date, before: int) -> int:
    run_day = run.now.astimezone(UTC).date()
    rows, job_id = 0, "empty"
    if before or _has_rows(run, table, day):
        rows, job_id = warehouse.load_day(
            table, day, run_day, lambda: RowStream(lambda out: copy_day(run, table, day, out))
        )
    with transaction("sweep", source=run.source) as connection:
        connection.execute(
            sa.text("""
                insert into export_days (table_name, day, row_count, job_id, exported_at)
                values (:table, :day, :rows, :job_id, :now)
                on conflict (table_name, day) do update
                    set row_count = excluded.row_count, job_id = excluded.job_id, exported_at = excluded.exported_at
            """),
            {"table": table.name, "day": day, "rows": rows, "job_id": job_id, "now": run.now},
        )
    log.emit("export_rows_total", table=table.name, row_count=rows)
    return rows


def _has_rows(run: Run, table: Table, day: date) -> bool:
    with transaction("sweep", source=run.source) as connection:
        # In order, so that the index answers: rows of late days lie at the table's end.
        sql = f"select 1 from {table.source} where {_rows_of(table, day)} order by {table.partition} limit 1"
        return connection.scalar(sa.text(sql)) is not None


def copy_day(run: Run, table: Table, day: date, out: Writer) -> int:
    """Write the rows of `day` to `out` as CSV in the order of the schema's columns; returns how many."""
    columns = ", ".join(column.expression for column in table.columns)
    with transaction("sweep", source=run.source) as connection:
        # An upload that is slow holds the copy up, and that is no runaway statement.
        connection.execute(
            sa.text("select set_config('statement_timeout', :ms, true)"), {"ms": str(COPY_SECONDS * 1000)}
        )
        rows = f"select {columns} from {table.source} where {_rows_of(table, day)}"
        return copy_out(connection, f"copy ({rows}) to stdout (format csv, null '{NULL}')", out)


def _rows_of(table: Table, day: date) -> str:
    return table.rows_of(day.isoformat(), (day + timedelta(days=1)).isoformat())


BLOCK_BYTES = 1 << 20
BLOCKS = 8


class _Blocks(io.RawIOBase):
    """Hands what is written to `put`, and drops it when that is gone: what a buffer still holds as it goes itself."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self.put: Callable[[bytes], None] | None = put

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.put is not None:
            self.put(bytes(data))
        return len(data)


class RowStream:
    """A file that an upload reads while a thread copies into it, a few blocks ahead: that is all that is in memory.

    A copy that fails fails the read: a day that was cut short must not look whole.
    """

    def __init__(self, copy: Callable[[Writer], int]) -> None:
        self._blocks: queue.Queue[bytes | None] = queue.Queue(BLOCKS)
        self._unread = b""
        self._position = 0
        self._closed = False
        self._error: BaseException | None = None
        self.rows = 0
        self._thread = threading.Thread(target=self._copy, args=(copy,), daemon=True)
        self._thread.start()

    def _copy(self, copy: Callable[[Writer], int]) -> None:
        blocks = _Blocks(self._put)
        try:
            # The copy writes row by row; gathering them in Python took a third of the time of sending them.
            rows = io.BufferedWriter(blocks, BLOCK_BYTES)
            self.rows = copy(rows)
            rows.flush()
        except BaseException as exc:  # the edge of a thread: it is raised where the rows are read
            self._error = exc
        blocks.put = None
        self._blocks.put(None)

    def _put(self, block: bytes) -> None:
        if self._closed:
            raise BrokenPipeError  # nobody reads any more
        self._blocks.put(block)

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; fewer only at the end. Raises what the copy raised."""
        parts, have = [self._unread], len(self._unread)
        wanted = size if size >= 0 else sys.maxsize
        while have < wanted:
            block = self._blocks.get()
            if block is None:
                self._blocks.put(None)  # the end stays the end
                if self._error is not None:
                    raise self._error
                break
            parts.append(block)
            have += len(block)
        data = b"".join(parts)
        self._unread = data[wanted:]
        self._position += min(have, wanted)
        return data[:wanted]

    def tell(self) -> int:
        """How many bytes were read."""
        return self._position

    def __enter__(self) -> RowStream:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go: a copy that is still under way breaks off."""
        self._closed = True
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._blocks.get(timeout=0.05)
