"""HEARTBEAT: how each site stands, written each night from its metrics by a template, with no model."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from common import log
from common.db import transaction
from common.jobs import Run, StepFailed
from common.sites import money
from common.sites.metrics import LEVELS, Metric, Point, Series, trend
from common.text import one_line

AUTHOR = "nightly"
NAME_CHARACTERS = 80
_TITLES: dict[Metric, str] = {
    "active_members": "Active members",
    "new_members": "New members",
    "cancelled_members": "Cancelled members",
    "churn_rate": "Churn",
    "mrr": "Monthly recurring revenue",
    "revenue": "Revenue",
    "refunds": "Refunds",
}

# Sites with the newest data first: when time is short, those that changed are done. Measuring a site costs a tenth of a second and more,
# so that one without an import since its document is left as it is.
_SITES = sa.text("""
    select s.id, s.user_id, s.name, s.currency, s.timezone, s.data_as_of,
           d.updated_at is null or i.imported_at is null or d.updated_at <= i.imported_at as moved
    from sites s
    left join brain_documents d on d.user_id = s.user_id and d.site_id = s.id and d.kind = 'heartbeat'
    left join (select site_id, max(created_at) as imported_at from site_imports group by site_id) i on i.site_id = s.id
    where s.data_as_of is not null
    order by s.data_as_of desc, s.id
""")

# Written only where it says something new, so that a night without an import leaves no revision.
_WRITE = sa.text("""
    with site as (select id, user_id from sites where id = :site_id and user_id = :user_id),
    before as (
        select d.id, d.user_id, d.version, d.content, d.author, d.updated_at
        from brain_documents d join site on d.site_id = site.id
        where d.user_id = :user_id and d.kind = 'heartbeat' and d.content <> :content),
    kept as (
        insert into brain_document_revisions (user_id, document_id, version, content, author, created_at)
        select user_id, id, version, content, author, updated_at from before)
    insert into brain_documents (user_id, site_id, kind, content, author, updated_at)
    select user_id, id, 'heartbeat', :content, :author, :now from site
    on conflict (user_id, kind, site_id) do update
        set content = excluded.content, author = excluded.author, updated_at = excluded.updated_at,
            version = brain_documents.version + 1
        where brain_documents.content <> excluded.content
    returning id
""")


def refresh_heartbeats(run: Run) -> dict[str, Any]:
    """Bring the HEARTBEAT of every site up to its data, each in its own transaction, and measure how old the oldest data is: one figure,
    for a percentile over all sites would hide one that was left behind. How many are `old` is counted; which they are is asked of the
    database (docs/operations.md), for logs outlive a customer's erasure. A site that fails leaves the others done; raises StepFailed at
    the end."""
    with transaction("sweep", source=run.source) as connection:
        sites = connection.execute(_SITES).all()
    if sites:
        oldest = min(site.data_as_of for site in sites)
        log.emit("site_data_age_hours", hours=round((run.now - oldest).total_seconds() / 3600, 1))
    limit = run.now - timedelta(hours=run.config.old_data_hours)
    old = sum(site.data_as_of < limit for site in sites)
    counts = {"sites": len(sites), "old": old, "refreshed": 0, "unchanged": 0, "failed": 0}
    moved = [site for site in sites if site.moved]
    counts["unchanged"] = len(sites) - len(moved)
    for number, site in enumerate(moved):
        if run.must_stop():
            return {**counts, "left": len(moved) - number}
        try:
            with transaction("sweep", source=run.source) as connection:
                changed = refresh(connection, site, now=run.now)
            counts["refreshed" if changed else "unchanged"] += 1
        except sa.exc.DBAPIError as exc:
            log.write_exception("heartbeat not refreshed", exc)
            counts["failed"] += 1
    if counts["failed"]:
        raise StepFailed(None, **counts)
    return counts


def refresh(connection: Connection, site: Row[Any], *, now: datetime) -> bool:
    """Write the HEARTBEAT of `site` (a row of `sites`); returns whether it changed."""
    written = connection.execute(
        _WRITE,
        {
            "site_id": site.id,
            "user_id": site.user_id,
            "content": heartbeat(_measured(connection, site), site.name, site.timezone, site.data_as_of),
            "author": AUTHOR,
            "now": now,
        },
    )
    return written.first() is not None


def _measured(connection: Connection, site: Row[Any]) -> dict[Metric, list[Series]]:
    user_id: uuid.UUID = site.user_id
    return {
        metric: trend(
            connection,
            metric,
            "month",
            3,
            user_id=user_id,
            site_id=site.id,
            currency=site.currency,
            timezone=site.timezone,
            as_of=site.data_as_of,
        )
        for metric in _TITLES
    }


def heartbeat(measured: dict[Metric, list[Series]], name: str, timezone: str, as_of: datetime) -> str:
    """The document: a heading with the day that the data reaches, and a line for each metric and currency. Pure."""
    local = as_of.astimezone(ZoneInfo(timezone))
    lines = [f"{one_line(name, NAME_CHARACTERS)}, data through {local:%Y-%m-%d %H:%M} ({timezone})"]
    for metric, title in _TITLES.items():
        for series in measured[metric]:
            lines.append(f"- {title}: {_line(metric, series)}")
    return "\n".join(lines)


def _line(metric: Metric, series: Series) -> str:
    before, last, current = series.points
    write = _writer(metric, series.currency)
    if metric in LEVELS:
        return f"{write(current)} now, {write(last)} at the end of {last.first_day:%B %Y}"
    so_far = "so far in" if current.partial else "in"
    return (
        f"{write(current)} {so_far} {current.first_day:%B %Y}, {write(last)} in {last.first_day:%B}"
        f", {write(before)} in {before.first_day:%B}"
    )


def _writer(metric: Metric, currency: str | None) -> Callable[[Point], str]:
    def write(point: Point) -> str:
        if point.value is None:
            return "undefined"
        if currency is not None:
            return money.written(point.value, currency)
        return f"{point.value:.1f}%" if metric == "churn_rate" else f"{point.value:,.0f}"

    return write
