"""The metrics' SQL, held against a slow computation in plain Python that knows no SQL, and against cases worked out by hand."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from common.db import set_user
from common.sites.metrics import METRICS, MONEY, Granularity, Metric, Series, trend
from tests.conftest import Database, Person, add_person

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
FACTOR = {
    "week": Decimal(52) / 12,
    "month": Decimal(1),
    "quarter": Decimal(1) / 3,
    "half_year": Decimal(1) / 6,
    "year": Decimal(1) / 12,
}


@dataclass(frozen=True)
class Sub:
    member: int
    start: datetime
    end: datetime | None = None
    status: str = "active"
    price: int | None = 1000
    currency: str = "USD"
    period: str = "month"


@dataclass(frozen=True)
class Paid:
    at: datetime
    amount: int
    kind: str = "payment"
    currency: str = "USD"
    status: str = "complete"


@dataclass
class Data:
    """What a site holds: members are numbered, with the moment each registered."""

    members: list[datetime | None] = field(default_factory=list)
    subs: list[Sub] = field(default_factory=list)
    paid: list[Paid] = field(default_factory=list)


@pytest.fixture(scope="module")
def person(module_database: Database) -> Person:
    add_person(module_database, "other@example.com")
    return add_person(module_database, "owner@example.com")


@pytest.fixture
def connection(module_database: Database, person: Person) -> Iterator[Connection]:
    """A transaction as the app role that leaves nothing behind."""
    with module_database.engine("app").connect() as opened:
        transaction = opened.begin()
        set_user(opened, person.user_id)
        yield opened
        transaction.rollback()


def insert(connection: Connection, table: str, columns: str, rows: list[dict[str, object]]) -> None:
    names = [c.split()[0] for c in columns.split(", ")]
    connection.execute(
        sa.text(
            f"insert into {table} ({', '.join(names)}) select {', '.join(names)} from "
            f"jsonb_to_recordset(cast(:rows as jsonb)) as r({columns})"
        ),
        {"rows": json.dumps(rows, default=str)},
    )


def store(connection: Connection, person: Person, data: Data) -> None:
    own = {"user_id": person.user_id, "site_id": person.site_id}
    ids = [uuid.uuid4() for _ in data.members]
    insert(
        connection,
        "members",
        "id uuid, user_id uuid, site_id uuid, external_id text, registered_at timestamptz",
        [
            {"id": i, "external_id": n, "registered_at": at, **own}
            for n, (i, at) in enumerate(zip(ids, data.members, strict=True))
        ],
    )
    insert(
        connection,
        "subscriptions",
        "user_id uuid, site_id uuid, external_id text, member_id uuid, status text, price_minor bigint, "
        "currency text, period text, started_at timestamptz, ended_at timestamptz",
        [
            {
                "external_id": n,
                "member_id": ids[s.member],
                "status": s.status,
                "price_minor": s.price,
                "currency": s.currency,
                "period": s.period,
                "started_at": s.start,
                "ended_at": s.end,
                **own,
            }
            for n, s in enumerate(data.subs)
        ],
    )
    insert(
        connection,
        "transactions",
        "user_id uuid, site_id uuid, external_id text, kind text, amount_minor bigint, currency text, status text, "
        "occurred_at timestamptz",
        [
            {
                "external_id": n,
                "kind": p.kind,
                "amount_minor": p.amount,
                "currency": p.currency,
                "status": p.status,
                "occurred_at": p.at,
                **own,
            }
            for n, p in enumerate(data.paid)
        ],
    )


def measured(
    connection: Connection,
    person: Person,
    metric: Metric,
    granularity: Granularity,
    periods: int,
    zone: ZoneInfo,
    as_of: datetime,
) -> list[Series]:
    return trend(
        connection,
        metric,
        granularity,
        periods,
        user_id=person.user_id,
        site_id=person.site_id,
        currency="USD",
        timezone=zone.key,
        as_of=as_of,
    )


def values(series: Series) -> list[float | None]:
    return [None if p.value is None else float(p.value) for p in series.points]


# ------------------------------------------------------------------ the slow reference


def buckets(
    granularity: str, periods: int, zone: ZoneInfo, as_of: datetime
) -> list[tuple[date, date, datetime, datetime]]:
    """First day, the day after the last, and the UTC moments of both midnights, oldest first."""
    day = as_of.astimezone(zone).date()
    if granularity == "week":
        day -= timedelta(days=day.weekday())
    elif granularity == "month":
        day = day.replace(day=1)
    found = []
    for _ in range(periods):
        if granularity == "month":
            after = (day + timedelta(days=32)).replace(day=1)
            before = (day - timedelta(days=1)).replace(day=1)
        else:
            length = timedelta(days=1 if granularity == "day" else 7)
            after, before = day + length, day - length
        found.append((day, after, midnight(day, zone), midnight(after, zone)))
        day = before
    return found[::-1]


def midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def running(sub: Sub, moment: datetime) -> bool:
    return sub.status != "pending" and sub.start < moment and (sub.end is None or sub.end >= moment)


def expected(
    data: Data, metric: Metric, start: datetime, end: datetime, currency: str | None
) -> Decimal | None:
    everyone = range(len(data.members))

    def active(moment: datetime) -> set[int]:
        return {m for m in everyone if any(s.member == m and running(s, moment) for s in data.subs)}

    def paid(kind: str) -> Decimal:
        return Decimal(
            sum(
                p.amount
                for p in data.paid
                if p.kind == kind
                and p.status == "complete"
                and p.currency == currency
                and start <= p.at < end
            )
        )

    if metric == "active_members":
        return Decimal(len(active(end)))
    if metric == "new_members":
        return Decimal(sum(at is not None and start <= at < end for at in data.members))
    if metric == "cancelled_members":
        left = {s.member for s in data.subs if s.status != "pending" and s.end and start <= s.end < end}
        return Decimal(len(left - active(end)))
    if metric == "churn_rate":
        before = active(start)
        return Decimal(100 * len(before - active(end))) / len(before) if before else None
    if metric == "mrr":
        return sum(
            (
                s.price * FACTOR.get(s.period, Decimal(0))
                for s in data.subs
                if s.price
                and s.currency == currency
                and running(s, end)
                and s.status not in ("trialing", "paused")
            ),
            Decimal(0),
        )
    if metric == "revenue":
        return paid("payment")
    if metric == "refunds":
        return paid("refund")
    return paid("payment") / len(active(end)) if active(end) else None


def assert_as_expected(
    connection: Connection,
    person: Person,
    data: Data,
    granularity: Granularity,
    periods: int,
    zone: ZoneInfo,
    as_of: datetime,
) -> None:
    reach = as_of + timedelta(microseconds=1)
    for metric in METRICS:
        result = measured(connection, person, metric, granularity, periods, zone, as_of)
        if metric in MONEY:
            assert result[0].currency == "USD"
        for series in result:
            wanted = buckets(granularity, periods, zone, as_of)
            assert len(series.points) == periods
            for point, (first, after, start, end) in zip(series.points, wanted, strict=True):
                assert (point.first_day, point.last_day) == (first, after - timedelta(days=1))
                assert point.partial == (end > reach)
                value = expected(data, metric, start, min(end, reach), series.currency)
                assert (point.value is None) == (value is None), (metric, point)
                assert float(point.value or 0) == pytest.approx(float(value or 0)), (metric, point, value)


# ------------------------------------------------------------------ random data

ZONES = st.sampled_from(
    [
        BERLIN,
        NEW_YORK,
        ZoneInfo("UTC"),
        ZoneInfo("Asia/Kolkata"),
        ZoneInfo("Australia/Lord_Howe"),
        ZoneInfo("Pacific/Auckland"),
    ]
)
# Coarse moments, so that ends meet starts and midnights; around two changes of the clock and a turn of the year.
MOMENTS = st.integers(0, 24 * 10).flatmap(
    lambda hours: st.sampled_from(
        [datetime(2025, 10, 22, tzinfo=UTC), datetime(2025, 12, 26, tzinfo=UTC)]
    ).map(lambda base: base + timedelta(hours=hours))
)


@st.composite
def sites(draw: st.DrawFn) -> Data:
    members = draw(st.lists(st.none() | MOMENTS, max_size=6))
    subs = []
    if members:
        for start, length in draw(
            st.lists(st.tuples(MOMENTS, st.none() | st.integers(0, 24 * 8)), max_size=12)
        ):
            subs.append(
                Sub(
                    draw(st.integers(0, len(members) - 1)),
                    start,
                    None if length is None else start + timedelta(hours=length),
                    draw(
                        st.sampled_from(
                            ["active", "active", "cancelled", "pending", "trialing", "paused", "past_due"]
                        )
                    ),
                    draw(st.none() | st.integers(0, 100_000)),
                    draw(st.sampled_from(["USD", "EUR"])),
                    draw(
                        st.sampled_from(["month", "year", "week", "quarter", "half_year", "once", "unknown"])
                    ),
                )
            )
    paid = draw(
        st.lists(
            st.builds(
                Paid,
                MOMENTS,
                st.integers(0, 10**9),
                st.sampled_from(["payment", "refund"]),
                st.sampled_from(["USD", "EUR", "JPY"]),
                st.sampled_from(["complete", "complete", "failed", "pending"]),
            ),
            max_size=10,
        )
    )
    return Data(members, subs, paid)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    data=sites(),
    zone=ZONES,
    granularity=st.sampled_from(["day", "week", "month"]),
    periods=st.integers(1, 9),
    as_of=MOMENTS,
)
def test_every_metric_equals_the_slow_computation_on_random_data(
    connection: Connection,
    person: Person,
    data: Data,
    zone: ZoneInfo,
    granularity: Granularity,
    periods: int,
    as_of: datetime,
) -> None:
    with connection.begin_nested() as savepoint:
        store(connection, person, data)
        assert_as_expected(connection, person, data, granularity, periods, zone, as_of)
        savepoint.rollback()


# ------------------------------------------------------------------ by hand


def local(zone: ZoneInfo, *moment: int) -> datetime:
    return datetime(*moment, tzinfo=zone).astimezone(UTC)  # type: ignore[misc,arg-type]


def test_joining_and_cancelling_on_one_day_is_new_and_cancelled_but_never_active_or_churned(
    connection: Connection, person: Person
) -> None:
    joined = local(BERLIN, 2026, 5, 5, 9)
    store(
        connection,
        person,
        Data([joined, joined], [Sub(0, joined, joined + timedelta(hours=5)), Sub(1, joined, joined)]),
    )
    as_of = local(BERLIN, 2026, 5, 7, 12)
    result = {m: values(measured(connection, person, m, "day", 3, BERLIN, as_of)[0]) for m in METRICS[:4]}
    assert result == {
        "active_members": [0, 0, 0],
        "new_members": [2, 0, 0],
        "cancelled_members": [2, 0, 0],
        "churn_rate": [None, None, None],
    }


def test_an_end_at_midnight_belongs_to_the_day_that_begins(connection: Connection, person: Person) -> None:
    store(
        connection,
        person,
        Data([None], [Sub(0, local(BERLIN, 2026, 4, 1), local(BERLIN, 2026, 5, 1))]),
    )
    as_of = local(BERLIN, 2026, 5, 20)
    assert values(measured(connection, person, "active_members", "month", 2, BERLIN, as_of)[0]) == [1, 0]
    assert values(measured(connection, person, "cancelled_members", "month", 2, BERLIN, as_of)[0]) == [0, 1]
    assert values(measured(connection, person, "churn_rate", "month", 2, BERLIN, as_of)[0]) == [None, 100]


def test_the_last_evening_of_a_month_counts_in_that_month_of_the_sites_zone(
    connection: Connection, person: Person
) -> None:
    late = local(NEW_YORK, 2026, 4, 30, 23, 30)  # already May in UTC
    store(connection, person, Data([late], [Sub(0, late)], [Paid(late, 700)]))
    as_of = local(NEW_YORK, 2026, 5, 10)
    for metric, wanted in {"new_members": [1, 0], "revenue": [700, 0], "active_members": [1, 1]}.items():
        assert values(measured(connection, person, metric, "month", 2, NEW_YORK, as_of)[0]) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (BERLIN, date(2026, 3, 29)),
        (BERLIN, date(2026, 10, 25)),
        (NEW_YORK, date(2026, 3, 8)),
        (NEW_YORK, date(2026, 11, 1)),
    ],
)
def test_a_day_on_which_the_clock_changes_begins_and_ends_at_its_own_midnights(
    connection: Connection, person: Person, zone: ZoneInfo, day: date
) -> None:
    start, end = midnight(day, zone), midnight(day + timedelta(days=1), zone)
    assert end - start != timedelta(hours=24)
    tick = timedelta(seconds=1)
    store(
        connection,
        person,
        Data(paid=[Paid(start - tick, 1), Paid(start, 10), Paid(end - tick, 100), Paid(end, 1000)]),
    )
    series = measured(connection, person, "revenue", "day", 3, zone, end + timedelta(hours=12))[0]
    assert values(series) == [1, 110, 1000]
    assert [p.first_day for p in series.points] == [day + timedelta(days=n) for n in (-1, 0, 1)]


def test_a_refund_counts_on_its_own_day_and_leaves_the_payments_month_alone(
    connection: Connection, person: Person
) -> None:
    store(
        connection,
        person,
        Data(
            paid=[
                Paid(local(BERLIN, 2026, 3, 10), 5000),
                Paid(local(BERLIN, 2026, 4, 2), 5000, kind="refund"),
                Paid(local(BERLIN, 2026, 4, 3), 900, kind="refund", status="failed"),
            ]
        ),
    )
    as_of = local(BERLIN, 2026, 4, 20)
    assert values(measured(connection, person, "revenue", "month", 2, BERLIN, as_of)[0]) == [5000, 0]
    assert values(measured(connection, person, "refunds", "month", 2, BERLIN, as_of)[0]) == [0, 5000]


def test_currencies_are_never_added_up_and_the_sites_own_comes_first(
    connection: Connection, person: Person
) -> None:
    at = local(BERLIN, 2026, 5, 5)
    store(
        connection,
        person,
        Data(
            [at, at],
            [Sub(0, at, currency="EUR", price=1200, period="year"), Sub(1, at, price=3000)],
            [Paid(at, 1, currency="CHF"), Paid(at, 20), Paid(at, 300, currency="EUR")],
        ),
    )
    revenue = measured(connection, person, "revenue", "day", 2, BERLIN, at)
    assert [(s.currency, values(s)) for s in revenue] == [
        ("USD", [0, 20]),
        ("CHF", [0, 1]),
        ("EUR", [0, 300]),
    ]
    mrr = measured(connection, person, "mrr", "day", 2, BERLIN, at)
    assert [(s.currency, values(s)) for s in mrr] == [("USD", [0, 3000]), ("EUR", [0, 100])]
    arpu = measured(connection, person, "arpu", "day", 2, BERLIN, at)
    assert [(s.currency, values(s)) for s in arpu] == [
        ("USD", [None, 10]),
        ("CHF", [None, 0.5]),
        ("EUR", [None, 150]),
    ]


def test_a_site_without_members_has_zeros_and_undefined_rates(connection: Connection, person: Person) -> None:
    as_of = local(BERLIN, 2026, 5, 5)
    found = {m: measured(connection, person, m, "week", 2, BERLIN, as_of) for m in METRICS}
    assert {m: values(s[0]) for m, s in found.items()} == {
        **{m: [0, 0] for m in METRICS},
        "churn_rate": [None, None],
        "arpu": [None, None],
    }
    assert all(len(s) == 1 for s in found.values())


def test_the_last_bucket_follows_the_data_and_is_partial_until_the_data_reaches_its_end(
    connection: Connection, person: Person
) -> None:
    """The data ends on a Wednesday: what is known of later days does not count, whatever the clock says."""
    as_of = local(BERLIN, 2026, 5, 6, 12)
    store(
        connection,
        person,
        Data(
            [as_of, as_of + timedelta(hours=1)],
            [
                Sub(0, as_of - timedelta(days=30), as_of + timedelta(days=9)),
                Sub(1, as_of + timedelta(hours=1)),
            ],
            [Paid(as_of, 5), Paid(as_of + timedelta(seconds=1), 50)],
        ),
    )
    series = measured(connection, person, "active_members", "week", 2, BERLIN, as_of)[0]
    assert [(p.first_day, p.last_day, p.partial) for p in series.points] == [
        (date(2026, 4, 27), date(2026, 5, 3), False),
        (date(2026, 5, 4), date(2026, 5, 10), True),
    ]
    assert values(series) == [1, 1]
    assert values(measured(connection, person, "new_members", "week", 1, BERLIN, as_of)[0]) == [1]
    assert values(measured(connection, person, "revenue", "week", 1, BERLIN, as_of)[0]) == [5]
    last_moment = local(BERLIN, 2026, 5, 11) - timedelta(microseconds=1)
    assert not measured(connection, person, "revenue", "week", 1, BERLIN, last_moment)[0].points[0].partial


def test_overlapping_subscriptions_are_one_member_and_a_change_of_plan_is_no_cancellation(
    connection: Connection, person: Person
) -> None:
    day = [local(BERLIN, 2026, 5, d) for d in range(1, 12)]
    store(
        connection,
        person,
        Data(
            [day[0], day[0]],
            [Sub(0, day[0], day[6]), Sub(0, day[3], day[9]), Sub(1, day[0], day[4]), Sub(1, day[4])],
        ),
    )
    as_of = day[10] - timedelta(seconds=1)
    active = measured(connection, person, "active_members", "day", 10, BERLIN, as_of)[0]
    cancelled = measured(connection, person, "cancelled_members", "day", 10, BERLIN, as_of)[0]
    assert values(active) == [2] * 9 + [1]
    assert values(cancelled) == [0] * 9 + [1]
    assert values(measured(connection, person, "mrr", "day", 10, BERLIN, as_of)[0])[3] == 3000


def test_coming_back_within_the_bucket_is_no_cancellation_and_never_makes_a_new_member(
    connection: Connection, person: Person
) -> None:
    store(
        connection,
        person,
        Data(
            [local(BERLIN, 2026, 1, 1)],
            [
                Sub(0, local(BERLIN, 2026, 1, 1), local(BERLIN, 2026, 3, 10)),
                Sub(0, local(BERLIN, 2026, 3, 20), local(BERLIN, 2026, 3, 25)),
                Sub(0, local(BERLIN, 2026, 5, 2)),
            ],
        ),
    )
    as_of = local(BERLIN, 2026, 5, 20)
    months = {
        m: values(measured(connection, person, m, "month", 5, BERLIN, as_of)[0])
        for m in ("active_members", "new_members", "cancelled_members", "churn_rate")
    }
    assert months == {
        "active_members": [1, 1, 0, 0, 1],
        "new_members": [1, 0, 0, 0, 0],
        "cancelled_members": [0, 0, 1, 0, 0],
        "churn_rate": [None, 0, 100, None, None],
    }
    days = measured(connection, person, "cancelled_members", "day", 60, BERLIN, local(BERLIN, 2026, 4, 30))
    assert sum(v or 0 for v in values(days[0])) == 2


def test_who_comes_back_with_the_next_bucket_is_cancelled_in_the_one_before(
    connection: Connection, person: Person
) -> None:
    midnight_of_6th = local(BERLIN, 2026, 5, 6)
    store(
        connection,
        person,
        Data(
            [None],
            [
                Sub(0, midnight_of_6th - timedelta(days=3), midnight_of_6th - timedelta(hours=9)),
                Sub(0, midnight_of_6th),
            ],
        ),
    )
    as_of = midnight_of_6th + timedelta(hours=12)
    assert values(measured(connection, person, "cancelled_members", "day", 2, BERLIN, as_of)[0]) == [1, 0]
    assert values(measured(connection, person, "active_members", "day", 2, BERLIN, as_of)[0]) == [0, 1]


def test_churn_counts_only_people_who_were_there_when_the_bucket_began(
    connection: Connection, person: Person
) -> None:
    """The second joins at the very midnight and leaves the same day: a cancellation, but nobody of the day's first moment is lost."""
    start = local(BERLIN, 2026, 5, 6)
    store(
        connection,
        person,
        Data([None, start], [Sub(0, start - timedelta(days=9)), Sub(1, start, start + timedelta(hours=3))]),
    )
    as_of = start + timedelta(hours=12)
    assert values(measured(connection, person, "churn_rate", "day", 1, BERLIN, as_of)[0]) == [0]
    assert values(measured(connection, person, "cancelled_members", "day", 1, BERLIN, as_of)[0]) == [1]


def test_a_currency_that_is_gone_before_the_first_bucket_has_no_series(
    connection: Connection, person: Person
) -> None:
    start = local(BERLIN, 2026, 1, 6)
    store(connection, person, Data([None], [Sub(0, start, start + timedelta(days=1), currency="EUR")]))
    result = measured(connection, person, "mrr", "day", 2, BERLIN, start + timedelta(days=60))
    assert [s.currency for s in result] == ["USD"]


def test_only_rows_of_this_user_and_site_count_even_where_no_policy_hides_the_others(
    module_database: Database, person: Person
) -> None:
    other = module_database.rows(
        "select s.user_id, s.id from sites s join users u on u.id = s.user_id where u.email = 'other@example.com'"
    )[0]
    at = local(BERLIN, 2026, 5, 5)
    with module_database.superuser.connect() as connection:
        transaction = connection.begin()
        store(
            connection,
            Person(other[0], uuid.uuid4(), other[1], "other"),
            Data([at], [Sub(0, at)], [Paid(at, 5), Paid(at, 5, kind="refund")]),
        )
        for user_id, site_id in (
            (person.user_id, person.site_id),
            (person.user_id, other[1]),
            (other[0], person.site_id),
        ):
            asking = Person(user_id, uuid.uuid4(), site_id, "asking")
            for metric in METRICS:
                result = measured(connection, asking, metric, "day", 1, BERLIN, at)
                assert [v or 0 for v in itertools.chain(*map(values, result))] == [0], metric
        transaction.rollback()
