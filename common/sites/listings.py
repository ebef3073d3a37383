"""Lists of a site's plans, members, cancellations and transactions, as they were at `as_of`, the end of its data.

Who is *active* has a running subscription at `as_of`; *cancelled*: had one; *no_plan*: never had one. With plans given, only
subscriptions to these count. Days are days of the site's zone. Every list says how many rows there are beyond its limit.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.sites import money


@dataclass(frozen=True)
class Scope:
    """Whose site, and up to when its data reaches."""

    user_id: uuid.UUID
    site_id: uuid.UUID
    timezone: str
    as_of: datetime


@dataclass(frozen=True)
class Wanted:
    """Which rows: all conditions hold together, None is no condition. `since` and `until` are inclusive; `min_amount` is in major
    units of the row's own currency; `search` is a part of a name or an e-mail address, in any case."""

    status: str | None = None
    plans: Sequence[uuid.UUID] | None = None
    since: date | None = None
    until: date | None = None
    min_amount: Decimal | None = None
    search: str | None = None
    limit: int = 25


@dataclass(frozen=True)
class Listing:
    total: int
    rows: list[dict[str, Any]]


_IN_TIME = """({column} >= cast(cast(:since as date) as timestamp) at time zone cast(:timezone as text) or cast(:since as date) is null)
    and ({column} < cast(cast(:until as date) + 1 as timestamp) at time zone cast(:timezone as text) or cast(:until as date) is null)
    and {column} <= cast(:as_of as timestamptz)"""
_NAMED = "(cast(:search as text) is null or strpos(lower(concat_ws(E'\\n', {columns})), lower(cast(:search as text))) > 0)"
_ON_PLAN = "(cast(:plans as uuid[]) is null or {table}.membership_id = any(cast(:plans as uuid[])))"
_OF_STATUS = "(cast(:status as text) is null or status = cast(:status as text))"

# Each member who ever had a subscription, and whether one is running.
_STANDING = f"""standing as (
    select member_id, bool_or(ended_at is null or ended_at > cast(:as_of as timestamptz)) as active
    from subscriptions
    where user_id = :user_id and site_id = :site_id and status <> 'pending' and started_at <= cast(:as_of as timestamptz)
      and {_ON_PLAN.format(table="subscriptions")}
    group by member_id
)"""

_MEMBERSHIPS = f"""
with found as (
    select p.id, p.name, p.price_minor, p.currency, p.period, p.status, (
        select count(distinct member_id) from subscriptions as s
        where s.user_id = :user_id and s.membership_id = p.id and s.status <> 'pending'
          and s.started_at <= cast(:as_of as timestamptz) and (s.ended_at is null or s.ended_at > cast(:as_of as timestamptz))
    ) as active_members
    from memberships as p
    where p.user_id = :user_id and p.site_id = :site_id and {_NAMED.format(columns="p.name")}
      and (cast(:plans as uuid[]) is null or p.id = any(cast(:plans as uuid[])))
)
select *, count(*) over () as total from found where {_OF_STATUS}
order by active_members desc, name, id limit :limit"""

_MEMBERS = f"""
with {_STANDING}, found as (
    select m.id, m.name, m.email, m.registered_at,
           case when s.active then 'active' when s.member_id is not null then 'cancelled' else 'no_plan' end as status
    from members as m left join standing as s on s.member_id = m.id
    where m.user_id = :user_id and m.site_id = :site_id and {_NAMED.format(columns="m.name, m.email")}
      and (cast(:plans as uuid[]) is null or s.member_id is not null)
      and (m.registered_at is null and cast(:since as date) is null and cast(:until as date) is null
           or {_IN_TIME.format(column="m.registered_at")})
), page as (
    select *, count(*) over () as total from found where {_OF_STATUS}
    order by registered_at desc nulls last, id limit :limit
)
select page.*, (
    select array_agg(distinct p.name) from subscriptions as s join memberships as p on p.id = s.membership_id and p.user_id = :user_id
    where s.user_id = :user_id and s.member_id = page.id and s.status <> 'pending'
      and s.started_at <= cast(:as_of as timestamptz) and (s.ended_at is null or s.ended_at > cast(:as_of as timestamptz))
) as plans
from page order by registered_at desc nulls last, id"""

_CANCELLATIONS = f"""
with running as (
    select distinct member_id from subscriptions
    where user_id = :user_id and site_id = :site_id and status <> 'pending' and started_at <= cast(:as_of as timestamptz)
      and (ended_at is null or ended_at > cast(:as_of as timestamptz))
), found as (
    select s.id, m.name, m.email, p.name as plan, s.started_at, s.ended_at,
           case when r.member_id is null then 'cancelled' else 'active' end as status
    from subscriptions as s
    join members as m on m.id = s.member_id and m.user_id = :user_id
    left join memberships as p on p.id = s.membership_id and p.user_id = :user_id
    left join running as r on r.member_id = s.member_id
    where s.user_id = :user_id and s.site_id = :site_id and s.status <> 'pending' and {_ON_PLAN.format(table="s")}
      and {_IN_TIME.format(column="s.ended_at")} and {_NAMED.format(columns="m.name, m.email")}
)
select *, count(*) over () as total from found where {_OF_STATUS} order by ended_at desc, id limit :limit"""

_FOUND_TRANSACTIONS = f"""found as (
    select t.id, t.kind, t.amount_minor, t.currency, t.occurred_at, t.description, m.name, m.email, p.name as plan,
           case when t.kind = 'refund' and t.status = 'complete' then 'refunded' else t.status end as status
    from transactions as t
    left join members as m on m.id = t.member_id and m.user_id = :user_id
    left join memberships as p on p.id = t.membership_id and p.user_id = :user_id
    where t.user_id = :user_id and t.site_id = :site_id and {_ON_PLAN.format(table="t")}
      and {_IN_TIME.format(column="t.occurred_at")} and {_NAMED.format(columns="m.name, m.email, t.description")}
      and (cast(:min_amount as numeric) is null or t.amount_minor >= cast(:min_amount as numeric) * case
           when t.currency = any(cast(:zero_decimal as text[])) then 1
           when t.currency = any(cast(:three_decimal as text[])) then 1000 else 100 end)
)"""

_TRANSACTIONS = f"""
with {_FOUND_TRANSACTIONS}
select *, count(*) over () as total from found where {_OF_STATUS} order by occurred_at desc, id limit :limit"""

_SUMS = f"""
with {_FOUND_TRANSACTIONS}
select currency, cast(coalesce(sum(amount_minor) filter (where status = 'complete'), 0) as numeric) as payments,
       cast(coalesce(sum(amount_minor) filter (where status = 'refunded'), 0) as numeric) as refunds
from found where {_OF_STATUS} and status in ('complete', 'refunded') group by currency order by currency"""


def plan_names(connection: Connection, scope: Scope) -> dict[uuid.UUID, str]:
    """The site's plans."""
    sql = "select id, name from memberships where user_id = :user_id and site_id = :site_id order by name, id"
    rows = connection.execute(sa.text(sql), {"user_id": scope.user_id, "site_id": scope.site_id})
    return {row.id: row.name for row in rows}


def memberships(connection: Connection, scope: Scope, wanted: Wanted) -> Listing:
    """Plans with how many people are active on each, the largest first."""
    return _listing(connection, _MEMBERSHIPS, scope, wanted)


def members(connection: Connection, scope: Scope, wanted: Wanted) -> Listing:
    """People with their status and running plans, the latest registered first; `since` and `until` are about the registration."""
    return _listing(connection, _MEMBERS, scope, wanted)


def cancellations(connection: Connection, scope: Scope, wanted: Wanted) -> Listing:
    """Subscriptions that ended, the latest first; `status` is whether the person is still or again active through another one."""
    return _listing(connection, _CANCELLATIONS, scope, wanted)


def transactions(connection: Connection, scope: Scope, wanted: Wanted) -> Listing:
    """Payments and refunds, the latest first; a completed refund has the status 'refunded'."""
    return _listing(connection, _TRANSACTIONS, scope, wanted)


def sums(connection: Connection, scope: Scope, wanted: Wanted) -> list[dict[str, Any]]:
    """Completed payments and refunds of *all* rows that `transactions` finds, beyond the limit too: one sum a currency."""
    return [dict(r) for r in connection.execute(sa.text(_SUMS), _parameters(scope, wanted)).mappings()]


def _listing(connection: Connection, sql: str, scope: Scope, wanted: Wanted) -> Listing:
    rows = [dict(r) for r in connection.execute(sa.text(sql), _parameters(scope, wanted)).mappings()]
    return Listing(rows[0]["total"] if rows else 0, rows)


def _parameters(scope: Scope, wanted: Wanted) -> dict[str, Any]:
    return {
        "user_id": scope.user_id,
        "site_id": scope.site_id,
        "timezone": scope.timezone,
        "as_of": scope.as_of,
        "status": wanted.status,
        "plans": None if wanted.plans is None else list(wanted.plans),
        "since": wanted.since,
        "until": wanted.until,
        "min_amount": wanted.min_amount,
        "search": wanted.search,
        "limit": wanted.limit,
        "zero_decimal": list(money.ZERO_DECIMAL),
        "three_decimal": list(money.THREE_DECIMAL),
    }
