"""The conditions under which a decision is looked at again: each measured by the nightly run, with the threshold that was agreed.

What is measured is kept with the run (`job_runs`), which is where the admin's page and the next reader find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from common import log
from common.db import transaction
from common.jobs import Run

WARN_AT = 0.8
ROLLUPS = 14

State = Literal["ok", "warning", "reached", "unknown"]


@dataclass(frozen=True)
class Trigger:
    """A condition: `sql` gives its value (null where there is nothing to measure) from `:now` and `:today` (a day, UTC)."""

    name: str
    asks: str
    threshold: float
    unit: str
    sql: str


TRIGGERS = (
    Trigger(
        "cutover_rows_per_day",
        "Retrieval events a day, mean of the last seven closed days: move their sink to BigQuery",
        50_000,
        "rows a day",
        """
        select count(*) / 7.0 from retrieval_events
        where created_at >= cast(:today as timestamp) - interval '7 days' and created_at < cast(:today as timestamp)
        """,
    ),
    Trigger(
        "cutover_rollup_p95",
        "The nightly roll-up's 95th percentile over the last 14 runs: move the sink to BigQuery",
        5,
        "seconds",
        f"""
        select percentile_cont(0.95) within group (order by seconds)
        from (select cast(details ->> 'seconds' as float8) as seconds from job_runs
              where job = 'nightly_refresh' and step = 'roll_up' and outcome = 'done' and started_at <= :now
              order by started_at desc limit {ROLLUPS}) as runs
        """,
    ),
    Trigger(
        "wrap_up_cost_share",
        "Wrap-ups' largest share of a tenant's model cost in 30 days, of tenants that cost over $0.10: make fewer",
        0.10,
        "share",
        """
        select max(wrap_ups / cost) from (
            select sum(cost_usd) as cost, coalesce(sum(cost_usd) filter (where kind like 'wrap_up%'), 0) as wrap_ups
            from usage_charges where created_at > cast(:now as timestamptz) - interval '30 days' and created_at <= :now
            group by tenant_id) as tenants
        where cost > 0.10
        """,
    ),
    Trigger(
        "wrap_ups_per_pro_user",
        "Most wrap-ups of a Pro user in 30 days: the last three no longer hold what matters, search them",
        30,
        "wrap-ups",
        """
        select coalesce(max(made), 0) from (
            select count(*) as made from session_logs l join tenants t on t.id = l.tenant_id
            where t.tier = 'pro' and l.created_at > cast(:now as timestamptz) - interval '30 days' and l.created_at <= :now
            group by l.user_id) as users
        """,
    ),
    Trigger(
        "injected_tokens_p95",
        "Tokens of the block of earlier results, 95th percentile of seven days' turns that had one: inject on recall only",
        300,
        "tokens",
        """
        select percentile_cont(0.95) within group (order by cast(section ->> 'tokens' as float8))
        from turns, json_array_elements(case json_typeof(trace -> 'sections') when 'array' then trace -> 'sections' else '[]' end)
            as section
        where started_at > cast(:now as timestamptz) - interval '7 days' and started_at <= :now
          and section ->> 'section' = 'previously_fetched' and section ->> 'tokens' <> '0'
        """,
    ),
    Trigger(
        "gate_miss_share",
        "Share of seven days' turns routed to a skill that handed over to the Advisor: extend the router's cues",
        0.05,
        "share",
        """
        select avg(case when missed then 1.0 else 0.0 end) from (
            select trace #>> '{route,reasons}' like '%handover:%' as missed from turns
            where started_at > cast(:now as timestamptz) - interval '7 days' and started_at <= :now
              and (trace #>> '{route,name}' <> 'advisor' or trace #>> '{route,reasons}' like '%handover:%')) as skill_turns
        """,
    ),
)


def assess(connection: Connection, *, now: datetime) -> list[dict[str, Any]]:
    """Each trigger with its value now, its threshold and its state. Reads only; the caller has a role that sees all tenants."""
    moment = {"now": now, "today": now.astimezone(UTC).date()}
    return [_assessed(t, connection.scalar(sa.text(t.sql), moment)) for t in TRIGGERS]


def _assessed(trigger: Trigger, measured: Any) -> dict[str, Any]:
    value = None if measured is None else round(float(measured), 4)
    return {
        "name": trigger.name,
        "asks": trigger.asks,
        "value": value,
        "threshold": trigger.threshold,
        "unit": trigger.unit,
        "state": state(value, trigger.threshold),
    }


def state(value: float | None, threshold: float) -> State:
    """Reached over the threshold, a warning from 80 % of it on."""
    if value is None:
        return "unknown"
    if value > threshold:
        return "reached"
    return "warning" if value >= WARN_AT * threshold else "ok"


def assess_triggers(run: Run) -> dict[str, Any]:
    """Measure, and log what is close to its threshold or over it."""
    with transaction("sweep", source=run.source) as connection:
        assessed = assess(connection, now=run.now)
    for one in assessed:
        if one["name"] == "cutover_rows_per_day":
            log.emit("cutover_rows_per_day", rows=one["value"])
        if one["state"] in ("warning", "reached"):
            severity = "ERROR" if one["state"] == "reached" else "WARNING"
            log.write("a trigger is near or over its threshold", severity=severity, **one)
    return {"triggers": assessed}


def last_assessment(connection: Connection) -> dict[str, Any]:
    """What the last nightly run measured, and when; no triggers before the first."""
    row = connection.execute(
        sa.text("""
            select started_at, details -> 'triggers' as triggers from job_runs
            where job = 'nightly_refresh' and step = 'assess_triggers' and outcome = 'done'
            order by started_at desc limit 1
        """)
    ).first()
    if row is None:
        return {"assessed_at": None, "triggers": []}
    return {"assessed_at": row.started_at.astimezone(UTC).isoformat(), "triggers": row.triggers}
