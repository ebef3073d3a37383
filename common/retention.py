"""What is kept for how long: every purge, in batches, so that no lock is held long and a run can stop in between.

A row goes once it is older than its time, to the second. What is to be exported and is not yet stays for at most `GRACE` more.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from common import entitlements, log
from common.db import transaction
from common.jobs import Run
from common.knowledge.performance import EVENTS_KEPT

SNAPSHOTS_KEPT = timedelta(days=180)
TURNS_KEPT = timedelta(days=30)
GRACE = timedelta(days=7)
# Longer than a reservation lasts and a run takes: what had not expired when a run looked is looked at by the next.
RESERVATIONS_OVERLAP = timedelta(hours=1)
BATCH = 100
_EVER = datetime.min.replace(tzinfo=UTC)


def purge_retrieval_events(run: Run) -> dict[str, Any]:
    """Delete events older than 90 days. A day that is not counted yet waits like one that is not exported."""
    counted = "t.created_at < (select max(day) + 1 from entry_performance where final and day < 'infinity')"
    return _purge(run, "retrieval_events", EVENTS_KEPT, exported_as="retrieval_events", ready=counted)


def purge_snapshots(run: Run) -> dict[str, Any]:
    """Delete snapshots older than 180 days."""
    done = _purge(run, "message_tool_results", SNAPSHOTS_KEPT, exported_as="snapshots")
    log.emit("tool_results_retention_deletes_total", row_count=done["deleted"])
    return done


def purge_wrap_ups(run: Run) -> dict[str, Any]:
    """Delete wrap-ups older than the setting says."""
    kept = timedelta(days=run.config.wrap_up_retention_days)
    return _purge(run, "session_logs", kept, exported_as="wrap_ups")


def purge_turns_and_job_runs(run: Run) -> dict[str, Any]:
    """Delete turns and runs of jobs older than 30 days. Messages and charges outlive their turn."""
    turns = _purge(run, "turns", TURNS_KEPT, moment="started_at")
    job_runs = _purge(run, "job_runs", TURNS_KEPT, moment="started_at")
    return {
        "turns": turns["deleted"],
        "job_runs": job_runs["deleted"],
        "left": turns["left"] or job_runs["left"],
    }


def expire_reservations(run: Run) -> dict[str, Any]:
    """Close reservations whose process died: the call counts at its worst case. What was over when the last run looked is not looked at
    again."""
    with transaction("sweep", source=run.source) as connection:
        last = connection.scalar(
            sa.text("""
                select max(started_at) from job_runs
                where job = :job and step = 'expire_reservations' and outcome = 'done' and started_at <= :now
            """),
            {"job": run.job, "now": run.now},
        )
        since = last - RESERVATIONS_OVERLAP if last else None
        return {"expired": entitlements.expire_reservations(connection, run.now, since)}


def _purge(
    run: Run,
    table: str,
    kept: timedelta,
    *,
    moment: str = "created_at",
    exported_as: str = "",
    ready: str = "true",
) -> dict[str, Any]:
    """Delete the rows of `table` whose `moment` is more than `kept` ago, oldest first; those that `ready` or a missing export holds
    back only when they are more than `GRACE` older still. Returns how many went, how many were held back, and whether time ran out."""
    naive = table == "retrieval_events"
    if exported_as and run.config.bigquery_dataset:
        day = f"t.{moment}" if naive else f"t.{moment} at time zone 'UTC'"
        ready += f""" and exists (select from export_days x
            where x.table_name = '{exported_as}' and x.day = cast({day} as date))"""
    before, last = _moment(run.now - kept, naive), _moment(run.now - kept - GRACE, naive)
    # Addressed by place: the rows of a batch lie side by side, and a row that changed meanwhile is left for the next night. A batch begins
    # where the last one ended, for what that deleted still stands in the index.
    deleted, left = _in_batches(
        run,
        f"""
        with batch as materialized (
            select ctid as place, {moment} as moment from {table} t
            where t.{moment} >= :since and t.{moment} < :before and (t.{moment} < :last or ({ready}))
            order by t.{moment} limit :batch),
        gone as (delete from {table} where ctid = any(array(select place from batch)) returning 1)
        select count(*) as found, max(moment) as until, (select count(*) from gone) as deleted from batch
        """,
        {"since": _moment(_EVER, naive), "before": before, "last": last},
    )
    held = 0 if ready == "true" or left else _held_back(run, table, moment, before)
    return {"deleted": deleted, "held_back": held, "left": left}


def _held_back(run: Run, table: str, moment: str, before: datetime) -> int:
    with transaction("sweep", source=run.source) as connection:
        held = connection.scalar(
            sa.text(f"select count(*) from {table} where {moment} < :before"), {"before": before}
        )
    if held:
        log.write(
            "rows are kept beyond their time: their day is not exported or counted",
            severity="ERROR",
            table=table,
            row_count=held,
            at_most_days=GRACE.days,
        )
    return int(held or 0)


def _in_batches(run: Run, sql: str, parameters: dict[str, Any]) -> tuple[int, bool]:
    """Repeat `sql`, a transaction each, until it finds less than a batch. Returns how many rows went, and whether time ran out. `sql` takes
    `:since` and `:batch`, and gives how many rows it found, the last one's moment, and how many it deleted. After each batch it rests for
    as long as that took: the database's time is the customers'."""
    total, values = 0, {**parameters, "batch": BATCH}
    while not run.must_stop():
        began = time.monotonic()
        with transaction("sweep", source=run.source) as connection:
            done = connection.execute(sa.text(sql), values).one()
        total += done.deleted
        if done.found < BATCH:
            return total, False
        values["since"] = done.until
        time.sleep(time.monotonic() - began)
    return total, True


def _moment(at: datetime, naive: bool) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None) if naive else at
