"""How the entries of the knowledge base fare: the nightly roll-up of the retrieval log into `entry_performance`, and the usage report.

The funnel of an entry: retrieved (among a search's candidates), surfaced (in the prompt), cited (by the answer), helpful (the customer
marked an answer that cited it). A row counts one day (UTC) of an entry; the row of the day 'infinity' sums up its days. Entries are
known by their id alone: what ingesting replaced keeps its rows, and the report tells it from what is there now.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import log
from common.db import transaction
from common.jobs import Run

EVENTS_KEPT = timedelta(days=90)
MAX_DAYS = 366  # of a report's trend
# A day is open until this long after its end, so that an answer which was committed late still counts.
FINAL_AFTER = timedelta(days=1)
# What one statement counts, so that a log which was never counted does not meet the statements' time limit.
DAYS_AT_ONCE = 5
# Feedback that was being committed while the last run looked.
FEEDBACK_OVERLAP = timedelta(hours=1)

_LIMITS = sa.text("""
    select (select max(day) from entry_performance where final and day < 'infinity') as final_through,
           least((select cast(min(created_at) as date) from retrieval_events), (select min(day) from entry_performance)) as first_seen,
           cast(greatest(cast(:now as timestamp), (select max(started_at) at time zone 'UTC' from job_runs where job = :job))
                - cast(:kept as interval) as date) as last_cut,
           (select max(cast(details ->> 'feedback_through' as timestamptz)) from job_runs
            where job = :job and step = 'roll_up' and outcome = 'done') as feedback_seen,
           (select max(updated_at) from message_feedback) as feedback_through
""")

# Times are compared with times, not with days: under row level security the planner uses its statistics only for operators that it
# knows to leak nothing, and the mixed ones are none.
#
# What an open day holds is counted anew each time: its rows are written over, and those that nothing stands behind any more go.
_OPEN_DAYS = sa.text("""
    with counted as (
        select e.entry_id, cast(e.created_at as date) as day, count(*) as retrieved,
               count(*) filter (where e.surfaced) as surfaced, count(*) filter (where e.cited) as cited,
               count(*) filter (where e.cited and f.helpful) as helpful, max(e.created_at) as last_seen_at
        from retrieval_events e left join message_feedback f on f.message_id = e.message_id
        where e.created_at >= cast(:first as timestamp) and e.created_at < cast(:last as timestamp) + interval '1 day'
        group by 1, 2),
    gone as (
        delete from entry_performance p
        where p.day >= cast(:first as date) and p.day <= cast(:last as date)
          and not exists (select from counted c where c.entry_id = p.entry_id and c.day = p.day)
        returning p.entry_id),
    written as (
        insert into entry_performance (entry_id, day, retrieved, surfaced, cited, helpful, last_seen_at, final)
        select entry_id, day, retrieved, surfaced, cited, helpful, last_seen_at, day <= cast(:last_final as date) from counted
        on conflict (entry_id, day) do update set
            retrieved = excluded.retrieved, surfaced = excluded.surfaced, cited = excluded.cited, helpful = excluded.helpful,
            last_seen_at = excluded.last_seen_at, final = entry_performance.final or excluded.final
        returning entry_id)
    select coalesce(array_agg(distinct entry_id), '{}') as entries, count(*) as rows
    from (select entry_id from gone union all select entry_id from written) as touched
""")

# Feedback on an answer of a final day. Days that the purge has reached are left as they are: their events are no longer all there. The
# copy in BigQuery takes in days that are not noted as exported, so that the note of a day which changed goes.
_LATE_FEEDBACK = sa.text("""
    with changed as (
        select distinct e.entry_id, cast(e.created_at as date) as day, date_trunc('day', e.created_at) as midnight
        from message_feedback f join retrieval_events e on e.message_id = f.message_id
        where f.updated_at >= coalesce(cast(:feedback_since as timestamptz), '-infinity')
          and e.cited and e.created_at < cast(:first_open as timestamp)
          and e.created_at >= cast(:last_cut as timestamp) + interval '1 day'),
    recounted as (
        select c.entry_id, c.day, n.helpful
        from changed c cross join lateral (
            select count(*) as helpful from retrieval_events e join message_feedback f on f.message_id = e.message_id
            where e.entry_id = c.entry_id and e.created_at >= c.midnight and e.created_at < c.midnight + interval '1 day'
              and e.cited and f.helpful) n),
    written as (
        update entry_performance p set helpful = r.helpful
        from recounted r
        where p.entry_id = r.entry_id and p.day = r.day and p.helpful <> r.helpful
        returning p.entry_id, p.day),
    again as (
        delete from export_days x using written w where x.table_name = 'entry_performance' and x.day = w.day)
    select coalesce(array_agg(distinct entry_id), '{}') as entries, count(*) as rows from written
""")

_TOTALS = sa.text("""
    with summed as (
        select entry_id, sum(retrieved) as retrieved, sum(surfaced) as surfaced, sum(cited) as cited, sum(helpful) as helpful,
               max(last_seen_at) as last_seen_at
        from entry_performance where entry_id = any(cast(:entries as uuid[])) and day < 'infinity'
        group by entry_id),
    gone as (
        delete from entry_performance p
        where p.day = 'infinity' and p.entry_id = any(cast(:entries as uuid[]))
          and not exists (select from summed s where s.entry_id = p.entry_id))
    insert into entry_performance (entry_id, day, retrieved, surfaced, cited, helpful, last_seen_at)
    select entry_id, 'infinity', retrieved, surfaced, cited, helpful, last_seen_at from summed
    on conflict (entry_id, day) do update set
        retrieved = excluded.retrieved, surfaced = excluded.surfaced, cited = excluded.cited, helpful = excluded.helpful,
        last_seen_at = excluded.last_seen_at
""")


def roll_up(connection: Connection, *, now: datetime, job: str = "nightly_refresh") -> dict[str, Any]:
    """Count the days that are not final yet, up to the day of `now`, and feedback that came to final ones. Safe to repeat, for any
    `now`, and after nights that were missed. Returns the counts and what the next run has to know."""
    utc = now.astimezone(UTC).replace(tzinfo=None)
    limits = connection.execute(_LIMITS, {"now": utc, "kept": EVENTS_KEPT, "job": job}).one()
    last_final = (utc - FINAL_AFTER).date() - timedelta(days=1)
    first_open = limits.first_seen or utc.date()
    if limits.final_through is not None:
        # Days that are not final by this run's clock are counted again, though a run for a later day closed them; never purged ones.
        recounted = max(last_final, limits.last_cut) + timedelta(days=1)
        first_open = min(limits.final_through + timedelta(days=1), recounted)
    rows, entries = 0, set[uuid.UUID]()
    for first in _days(first_open, utc.date(), DAYS_AT_ONCE):
        last = min(first + timedelta(days=DAYS_AT_ONCE - 1), utc.date())
        counted = connection.execute(
            _OPEN_DAYS, {"first": first, "last": last, "last_final": last_final}
        ).one()
        rows += counted.rows
        entries |= set(counted.entries)
    late = 0
    if limits.final_through is not None and limits.feedback_through is not None:
        since = limits.feedback_seen and limits.feedback_seen - FEEDBACK_OVERLAP
        corrected = connection.execute(
            _LATE_FEEDBACK,
            {"first_open": first_open, "last_cut": limits.last_cut, "feedback_since": since},
        ).one()
        entries |= set(corrected.entries)
        late = corrected.rows
    connection.execute(_TOTALS, {"entries": sorted(entries)})
    through = limits.feedback_through and limits.feedback_through.isoformat()
    return {"rows": rows, "late_feedback": late, "entries": len(entries), "feedback_through": through}


def _days(first: date, last: date, step: int) -> Iterator[date]:
    return (first + timedelta(days=n) for n in range(0, (last - first).days + 1, step))


def roll_up_log(run: Run) -> dict[str, Any]:
    """`roll_up` as a step of the nightly run, in one transaction, measured."""
    began = time.monotonic()
    with transaction("sweep", source=run.source) as connection:
        counted = roll_up(connection, now=run.now, job=run.job)
    log.emit("rollup_seconds", seconds=round(time.monotonic() - began, 3))
    return counted


# An entry's place in the report: the first step of the funnel that it has not taken.
FINDINGS = {
    "never_retrieved": "never among the candidates of a search",
    "outranked": "retrieved, but others were always put into the prompt",
    "not_cited": "put into the prompt, but no answer referred to it",
    "not_helpful": "cited, but no answer that cited it was marked helpful",
    "helpful": "cited in answers that were marked helpful",
}

_ENTRIES = sa.text("""
    select b.id as entry_id, b.document, b.title, b.collection, b.created_at,
           case when coalesce(p.retrieved, 0) = 0 then 'never_retrieved' when p.surfaced = 0 then 'outranked'
                when p.cited = 0 then 'not_cited' when p.helpful = 0 then 'not_helpful' else 'helpful' end as finding,
           coalesce(p.retrieved, 0) as retrieved, coalesce(p.surfaced, 0) as surfaced, coalesce(p.cited, 0) as cited,
           coalesce(p.helpful, 0) as helpful, coalesce(u.unhelpful, 0) as unhelpful,
           1 - cast(p.cited as float8) / nullif(p.retrieved, 0) as not_cited_rate, p.last_seen_at
    from brain_entries b
    left join entry_performance p on p.entry_id = b.id and p.day = 'infinity'
    left join (
        select e.entry_id, count(*) as unhelpful
        from message_feedback f join retrieval_events e on e.message_id = f.message_id
        where not f.helpful and e.cited group by e.entry_id) u on u.entry_id = b.id
    where b.tenant_id = 'global'
    order by u.unhelpful desc nulls last, p.retrieved desc nulls last, b.document, b.id
""")

_TREND = sa.text("""
    select day, sum(retrieved) as retrieved, sum(surfaced) as surfaced, sum(cited) as cited, sum(helpful) as helpful
    from entry_performance where day > cast(:since as date) and day <= cast(:today as date) group by day order by day
""")

_SUMS = sa.text("""
    select coalesce(sum(retrieved), 0) as retrieved, coalesce(sum(surfaced), 0) as surfaced, coalesce(sum(cited), 0) as cited,
           coalesce(sum(helpful), 0) as helpful,
           count(*) filter (where not exists (
               select from brain_entries b where b.id = p.entry_id and b.tenant_id = 'global')) as replaced_entries
    from entry_performance p where day = 'infinity'
""")


def usage_report(connection: Connection, *, now: datetime, days: int) -> dict[str, Any]:
    """Every entry that there is with its counts in all and its finding; the sums; and the trend of the last `days` days.

    The sums include entries that ingesting has replaced since. `unhelpful` counts thumbs down within the log's 90 days."""
    today = now.astimezone(UTC).date()
    entries = [dict(row._mapping) for row in connection.execute(_ENTRIES)]
    trend = connection.execute(_TREND, {"since": today - timedelta(days=days), "today": today})
    return {
        "as_of": now.isoformat(),
        "entries": entries,
        "findings": {name: sum(e["finding"] == name for e in entries) for name in FINDINGS},
        "totals": {name: int(value) for name, value in connection.execute(_SUMS).one()._mapping.items()},
        "trend": [{k: v if k == "day" else int(v) for k, v in row._mapping.items()} for row in trend],
    }
