"""The move of the retrieval log's sink to BigQuery: whether both sinks hold the same, and what stands against a switch."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import log
from common.config import Settings
from common.db import transaction
from common.jobs import Run
from common.warehouse.bigquery import Warehouse
from common.warehouse.schemas import STREAM_TABLE
from common.warehouse.triggers import last_assessment

COMPARED_DAYS = 7
# An event is one candidate of one answer.
_EVENT = "concat(message_id, '/', cast(rank as string))"


def compare_sinks(connection: Connection, warehouse: Warehouse, *, now: datetime) -> list[dict[str, Any]]:
    """The last seven closed days with how many events PostgreSQL and the stream's table have."""
    last = now.astimezone(UTC).date() - timedelta(days=1)
    first = last - timedelta(days=COMPARED_DAYS - 1)
    rows = connection.execute(
        sa.text("""
            select cast(created_at as date) as day, count(*) as n from retrieval_events
            where created_at >= cast(:first as timestamp) and created_at < cast(:last as timestamp) + interval '1 day' group by 1
        """),
        {"first": first, "last": last},
    )
    here: dict[date, int] = {row.day: row.n for row in rows}
    there = warehouse.rows_by_day(STREAM_TABLE, _EVENT, first, last)
    days = (first + timedelta(days=n) for n in range(COMPARED_DAYS))
    return [{"day": d.isoformat(), "postgres": here.get(d, 0), "bigquery": there.get(d, 0)} for d in days]


def verdict(config: Settings, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether switching is safe, and if not, every reason. Counts must be equal on each day, and there must be something to count."""
    reasons = []
    if config.retrieval_sink != "both":
        reasons.append(
            "The sink is `postgres`: set MEMBERINTEL_RETRIEVAL_SINK to `both`, and wait seven days."
        )
    differing = [d for d in days if d["postgres"] != d["bigquery"]]
    reasons += [f"{d['day']}: {d['postgres']} in PostgreSQL, {d['bigquery']} in BigQuery." for d in differing]
    if not any(d["postgres"] for d in days):
        reasons.append("There were no events in these days: equal counts of nothing prove nothing.")
    return {"safe": not reasons, "reasons": reasons, "days": days}


def check_sinks(run: Run, warehouse: Warehouse) -> dict[str, Any]:
    """The comparison as a step of the nightly export; what differs is logged."""
    with transaction("sweep", source=run.source) as connection:
        found = verdict(run.config, compare_sinks(connection, warehouse, now=run.now))
    if not found["safe"]:
        log.write("the sinks of the retrieval log differ", severity="WARNING", reasons=len(found["reasons"]))
    return found


def cutover_status(connection: Connection, config: Settings) -> dict[str, Any]:
    """What the admin's page shows: the two legs of the trigger, the last comparison, and how far each table's export is."""
    assessment = last_assessment(connection)
    compared = connection.execute(
        sa.text("""
            select started_at, details from job_runs
            where job = 'export_bigquery' and step = 'compare_sinks' and outcome = 'done' order by started_at desc limit 1
        """)
    ).first()
    exports = connection.execute(
        sa.text("""
            select table_name, max(day) as last_day, count(*) as days, sum(row_count) as rows, max(exported_at) as exported_at
            from export_days group by table_name order by table_name
        """)
    )
    return {
        "sink": config.retrieval_sink,
        "export": bool(config.bigquery_dataset),
        "assessed_at": assessment["assessed_at"],
        "legs": [t for t in assessment["triggers"] if t["name"].startswith("cutover_")],
        "comparison": {"compared_at": compared.started_at, **compared.details} if compared else None,
        "exported": [{**row._mapping, "rows": int(row.rows)} for row in exports],
    }
