"""The metrics of a site, each as a series over days, weeks or months in the site's own zone.

A bucket runs from its first local midnight until before the next one's; weeks begin on Monday. The last bucket contains `as_of`, the
moment up to which the imported data reaches, and is *partial* unless the data reaches its end; what lies after `as_of` is not counted.
The *end* of a bucket is its last moment, or `as_of` in the partial one.

- `active_members`: people with at least one running subscription at the bucket's end. A subscription runs from `started_at` until before
  `ended_at`; overlapping ones count the person once. Trials, paused and past-due ones run; `pending` ones never began.
- `new_members`: people whose registration falls into the bucket. Who comes back later is not new again.
- `cancelled_members`: people whose subscription ended in the bucket and who had none running at its end. Who changed plans or came back
  before the bucket's end is not counted; who joined and left within the bucket is.
- `churn_rate`: of the people active when the bucket began, the share in percent that was not active at its end; none if nobody was.
- `mrr`: the prices of the subscriptions running at the bucket's end, each as its amount a month (a year's twelfth, a quarter's third, a
  half year's sixth, a week's 52/12). One-time prices, unknown periods, trials and paused subscriptions count zero.
- `revenue`: completed payments of the bucket, before refunds.
- `refunds`: completed refunds of the bucket, on the day of the refund, whenever the payment was.
- `arpu`: revenue of the bucket divided by its active members; none if nobody was active.

Money is in minor units, one series a currency, the site's own first: sums never mix currencies.
"""

# ruff: noqa: S608 - the statements are put together from this module's own fragments; every value is bound

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

Metric = Literal[
    "active_members",
    "new_members",
    "cancelled_members",
    "churn_rate",
    "mrr",
    "revenue",
    "refunds",
    "arpu",
]
Granularity = Literal["day", "week", "month"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MONEY: frozenset[Metric] = frozenset({"mrr", "revenue", "refunds", "arpu"})
LEVELS: frozenset[Metric] = frozenset({"active_members", "mrr"})
"""Metrics that are a state at a moment, so that a partial bucket's value is comparable; the others add up over a bucket."""


@dataclass(frozen=True)
class Point:
    """The value of one bucket: a count, minor units of money, or percent; None where it is undefined."""

    first_day: date
    last_day: date
    partial: bool
    value: Decimal | None


@dataclass(frozen=True)
class Series:
    """The buckets of a metric, oldest first; `currency` is None for what is not money."""

    currency: str | None
    points: tuple[Point, ...]


_BUCKETS = """
here as (
    select date_trunc(cast(:granularity as text), cast(:as_of as timestamptz) at time zone cast(:timezone as text)) as last_start,
           cast(:step as interval) as step
), buckets as (
    select cast(local_start as date) as first_day,
           cast(local_start + step as date) - 1 as last_day,
           local_start at time zone cast(:timezone as text) as starts_at,
           least((local_start + step) at time zone cast(:timezone as text), reach) as ends_at,
           (local_start + step) at time zone cast(:timezone as text) > reach as partial
    from here,
         generate_series(last_start - (cast(:periods as integer) - 1) * step, last_start, step) as local_start,
         cast(cast(:as_of as timestamptz) + interval '1 microsecond' as timestamptz) as reach
)"""

# A spell is a stretch of time in which a person had one subscription or another without a gap.
_SPELLS = """
spells as materialized (
    select member_id, lower(spell) as starts_at, upper(spell) as ends_at,
           lead(lower(spell)) over (partition by member_id order by spell) as next_starts_at
    from (
        select member_id, range_agg(tstzrange(started_at, ended_at, '[]')) as times
        from subscriptions
        where user_id = :user_id and site_id = :site_id and status <> 'pending'
          and started_at <= cast(:as_of as timestamptz)
        group by member_id
    ) as people, unnest(times) as spell
)"""

_ACTIVE_AT = "starts_at < {moment} and (ends_at is null or ends_at >= {moment})"
_LEFT_IN_BUCKET = """spells.ends_at >= b.starts_at and spells.ends_at < b.ends_at
        and (next_starts_at is null or next_starts_at >= b.ends_at)"""

_COUNTS: dict[Metric, str] = {
    "active_members": f"select count(*) from spells where {_ACTIVE_AT.format(moment='b.ends_at')}",
    "new_members": """select count(*) from members
        where user_id = :user_id and site_id = :site_id and registered_at >= b.starts_at and registered_at < b.ends_at""",
    "cancelled_members": f"select count(*) from spells where {_LEFT_IN_BUCKET}",
    "churn_rate": f"""select 100.0 * lost / nullif(active, 0) from
        (select count(*) as active from spells where {_ACTIVE_AT.format(moment="b.starts_at")}) as before,
        (select count(*) as lost from spells where {_LEFT_IN_BUCKET} and exists (
            select from subscriptions as s
            where s.user_id = :user_id and s.member_id = spells.member_id and s.status <> 'pending'
              and s.started_at < b.starts_at and (s.ended_at is null or s.ended_at >= b.starts_at))) as gone""",
}

_PAID = """
        select currency, sum(amount_minor) as value from transactions
        where user_id = :user_id and site_id = :site_id and kind = 'payment' and status = 'complete'
          and occurred_at >= b.starts_at and occurred_at < b.ends_at
        group by currency"""
_SUMS: dict[Metric, str] = {
    "mrr": """
        select currency, sum(price_minor * case period
            when 'month' then 1 when 'year' then 1 / 12.0 when 'half_year' then 1 / 6.0 when 'quarter' then 1 / 3.0
            when 'week' then 52 / 12.0 else 0 end) as value
        from subscriptions
        where user_id = :user_id and site_id = :site_id and status not in ('pending', 'trialing', 'paused')
          and started_at < b.ends_at and (ended_at is null or ended_at >= b.ends_at)
        group by currency""",
    "revenue": _PAID,
    "refunds": _PAID.replace("'payment'", "'refund'"),
}


def trend(
    connection: Connection,
    metric: Metric,
    granularity: Granularity,
    periods: int,
    *,
    user_id: uuid.UUID,
    site_id: uuid.UUID,
    currency: str,
    timezone: str,
    as_of: datetime,
) -> list[Series]:
    """The last `periods` buckets of `metric`, defined as this module says. One statement, two for `arpu`.

    Counts and percentages are one series. Money is a series for each currency that occurs in these buckets, and always one for
    `currency`, the site's own.
    """
    parameters = {
        "user_id": user_id,
        "site_id": site_id,
        "timezone": timezone,
        "as_of": as_of,
        "granularity": granularity,
        "step": f"1 {granularity}",
        "periods": periods,
    }
    if metric == "arpu":
        people = _counts(connection, "active_members", parameters)
        return [_divide(money, people) for money in _sums(connection, "revenue", parameters, currency)]
    if metric in MONEY:
        return _sums(connection, metric, parameters, currency)
    return [_counts(connection, metric, parameters)]


def _counts(connection: Connection, metric: Metric, parameters: dict[str, object]) -> Series:
    spells = "" if metric == "new_members" else f",{_SPELLS}"
    sql = f"""with {_BUCKETS}{spells}
select first_day, last_day, partial, cast(({_COUNTS[metric]}) as numeric) from buckets as b order by first_day"""
    return Series(None, tuple(Point(*row) for row in connection.execute(sa.text(sql), parameters)))


def _sums(
    connection: Connection, metric: Metric, parameters: dict[str, object], own_currency: str
) -> list[Series]:
    sql = f"""with {_BUCKETS}
select first_day, last_day, partial, currency, cast(value as numeric)
from buckets as b left join lateral ({_SUMS[metric]}) as sums on true order by first_day"""
    rows = connection.execute(sa.text(sql), parameters).all()
    buckets = dict.fromkeys((first, last, partial) for first, last, partial, _, _ in rows)
    values = {(first, currency): value for first, _, _, currency, value in rows if value is not None}
    foreign = sorted({currency for _, currency in values} - {own_currency})
    return [
        Series(currency, tuple(Point(*b, values.get((b[0], currency), Decimal(0))) for b in buckets))
        for currency in (own_currency, *foreign)
    ]


def _divide(money: Series, people: Series) -> Series:
    points = (
        Point(
            m.first_day, m.last_day, m.partial, m.value / p.value if m.value is not None and p.value else None
        )
        for m, p in zip(money.points, people.points, strict=True)
    )
    return Series(money.currency, tuple(points))
