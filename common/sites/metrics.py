"""The metrics of a site, each as a series over days, weeks or months in the site's own zone.

A bucket runs from its first local midnight until before the next one's; weeks begin on Monday. The last bucket contains `as_of`, the
moment up to which the imported data reaches, and is *partial* unless the data reaches its end; what lies after `as_of` is not counted.
The *end* of a bucket is its last moment, or `as_of` in the partial one.

What each metric is stands in `DEFINITIONS`. Money is in minor units, one series a currency, the site's own first: sums never mix
currencies.
"""

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

DEFINITIONS: dict[Metric, str] = {
    "active_members": "People with at least one running subscription at the end of the period (a level, not a sum). Who has several counts "
    "once. Trials, paused and past-due subscriptions run; pending ones never began.",
    "new_members": "People who registered in the period. Who comes back later is not new again.",
    "cancelled_members": "People whose subscription ended in the period and who had none running at its end. Who changed plans or came "
    "back before then is not counted; who joined and left within the period is.",
    "churn_rate": "Of the people active when the period began, the share in percent who were not active at its end.",
    "mrr": "Monthly recurring revenue: prices of the subscriptions running at the end of the period, each as its amount a month (a twelfth "
    "of a year's price, a third of a quarter's, a sixth of a half year's, 52/12 of a week's). One-time prices, prices of unknown "
    "period, trials and paused subscriptions count zero.",
    "revenue": "Completed payments in the period, before refunds.",
    "refunds": "Completed refunds in the period, on the day of the refund, whenever the payment was.",
    "arpu": "Revenue of the period divided by the members active at its end.",
}
"""What each metric measures, in words for a model and its reader. An undefined value (nobody active) is none, not zero."""


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


# `edges` are the buckets' starts and the end of the last one, so that width_bucket gives a moment the number of its bucket: 0 is before
# the first, `periods` + 1 is after the last.
_BUCKETS = """
buckets as (
    select row_number() over (order by local_start) as n,
           cast(local_start as date) as first_day,
           cast(local_start + step as date) - 1 as last_day,
           local_start at time zone zone as starts_at,
           least((local_start + step) at time zone zone, reach) as ends_at,
           (local_start + step) at time zone zone > reach as partial
    from (select cast(:timezone as text) as zone, cast(:step as interval) as step,
                 cast(:as_of as timestamptz) + interval '1 microsecond' as reach) as here,
         date_trunc(cast(:granularity as text), cast(:as_of as timestamptz) at time zone zone) as last_start,
         generate_series(last_start - (cast(:periods as integer) - 1) * step, last_start, step) as local_start
), marks as (
    select array_agg(starts_at order by n) || max(ends_at) as edges, min(starts_at) as starts_at, max(ends_at) as ends_at
    from buckets
)"""

# A run is an unbroken row of bucket ends at which a person was active: from `lower` until before `upper`.
_PRESENCE = """,
stays as (
    select member_id, width_bucket(started_at, edges) as began, width_bucket(coalesce(ended_at, 'infinity'), edges) as ended
    from subscriptions, marks
    where user_id = :user_id and site_id = :site_id and status <> 'pending'
), people as (
    select member_id, range_agg(int4range(began, ended)) as present from stays group by member_id
), runs as (
    select run from people, unnest(present) as run
), tally as (
    select n, coalesce(came, 0) as came, coalesce(went, 0) as went,
           sum(coalesce(came, 0) - coalesce(went, 0)) over (order by n) as active
    from generate_series(0, cast(:periods as integer)) as n
    left join (select lower(run) as n, count(*) as came from runs group by 1) as arrivals using (n)
    left join (select upper(run) as n, count(*) as went from runs group by 1) as departures using (n)
)"""

# Twelfths of a month's price are whole numbers, so that the sums stay exact.
_PRICES = """,
prices as (
    select currency, width_bucket(started_at, edges) as began, width_bucket(coalesce(ended_at, 'infinity'), edges) as ended,
           price_minor * case period when 'month' then 12 when 'year' then 1 when 'half_year' then 2
                         when 'quarter' then 4 when 'week' then 52 else 0 end as twelfths
    from subscriptions, marks
    where user_id = :user_id and site_id = :site_id and status not in ('pending', 'trialing', 'paused')
), changes as (
    select currency, n, sum(change) as change
    from prices, lateral (values (began, twelfths), (ended, -twelfths)) as moves (n, change)
    group by currency, n
)"""

_MONEY_MOVED = """
    select width_bucket(occurred_at, edges) as n, currency, sum(amount_minor) as value
    from transactions, marks
    where user_id = :user_id and site_id = :site_id and kind = '{kind}' and status = 'complete'
      and occurred_at >= marks.starts_at and occurred_at < marks.ends_at
    group by 1, 2"""

# What a metric needs beside the buckets, and its values: (bucket number, currency, value).
_VALUES: dict[Metric, tuple[str, str]] = {
    "active_members": (_PRESENCE, "select n, null as currency, active as value from tally"),
    "new_members": (
        "",
        """select width_bucket(registered_at, edges) as n, null as currency, count(*) as value
        from members, marks
        where user_id = :user_id and site_id = :site_id
          and registered_at >= marks.starts_at and registered_at < marks.ends_at
        group by 1""",
    ),
    "cancelled_members": (
        _PRESENCE,
        """select ended as n, null as currency, count(distinct member_id) as value
        from stays join people using (member_id) where not present @> ended group by 1""",
    ),
    "churn_rate": (
        _PRESENCE,
        """select n, null as currency, 100.0 * went / nullif(active - came + went, 0) as value from tally""",
    ),
    "mrr": (
        _PRICES,
        """select b.n, currency, sum(change) / 12.0 as value
        from changes as c join buckets as b on c.n <= b.n group by b.n, currency""",
    ),
    "revenue": ("", _MONEY_MOVED.format(kind="payment")),
    "refunds": ("", _MONEY_MOVED.format(kind="refund")),
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
        people = _series(connection, "active_members", parameters, None)[0]
        return [_divide(money, people) for money in _series(connection, "revenue", parameters, currency)]
    return _series(connection, metric, parameters, currency if metric in MONEY else None)


def _series(
    connection: Connection, metric: Metric, parameters: dict[str, object], own_currency: str | None
) -> list[Series]:
    needs, values = _VALUES[metric]
    sql = f"""with {_BUCKETS}{needs}
select first_day, last_day, partial, currency, cast(value as numeric)
from buckets left join ({values}) as found using (n) order by n"""
    rows = connection.execute(sa.text(sql), parameters).all()
    buckets = dict.fromkeys((first, last, partial) for first, last, partial, _, _ in rows)
    found = {(first, currency): value for first, _, _, currency, value in rows if value is not None}
    foreign = sorted({c for (_, c), value in found.items() if c is not None and value} - {own_currency})
    nothing = None if metric == "churn_rate" else Decimal(0)
    return [
        Series(currency, tuple(Point(*b, found.get((b[0], currency), nothing)) for b in buckets))
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
