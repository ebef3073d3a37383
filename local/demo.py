"""Demo data: two tenants with a site each, made by a seeded generator and ending now.

Each calendar day and each person has a seed of its own, so that a later load adds what happened since and changes nothing before. The
knowledge base's articles are in `demo_knowledge/`.
"""

# ruff: noqa: SIM905 - lists of the names would fill the screen

from __future__ import annotations

import calendar
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from common.db import transaction, user_transaction
from common.sites.imports import tables, writer
from common.sites.imports.records import Member, MemberRef, Plan, PlanRef, Record, Subscription, Transaction
from common.sites.imports.references import Known

OWNER = "owner@demo.example"
KNOWLEDGE = Path(__file__).parent / "demo_knowledge"

_DAYS = 730
_BATCH = 2000
_FIRST = (
    "Ada Amir Anna Ben Bianca Carlos Chloe Daniel Dilan Elena Emeka Erik Fatima Felix Grace Hana Hugo Ines Ivan Jana Jonas Kofi "
    "Lara Leo Lucia Maja Marco Mina Nadia Noah Olga Omar Paula Petra Rafael Rosa Samir Sofia Tariq Tessa Uma Viktor Yuki Zoe"
).split()
_LAST = (
    "Abel Adeyemi Baker Berg Castro Chen Costa Dahl Diaz Eriksen Fischer Fontaine Garcia Haas Hughes Ito Jansen Kaya Keller Kim "
    "Kowalski Lang Lopez Marin Meyer Moreau Nagy Novak Okafor Olsen Park Patel Quinn Reyes Rossi Sato Schmidt Silva Singh Tanaka "
    "Weber"
).split()


@dataclass(frozen=True)
class DemoPlan:
    """A plan, how often it is chosen, and the chance to leave at the end of a period."""

    external_id: str
    name: str
    price_minor: int
    period: str
    weight: int
    leaves: float

    @property
    def months(self) -> int:
        return 12 if self.period == "year" else 1


@dataclass(frozen=True)
class DemoSite:
    """An account with its site. `joins` is how many people join on a usual day."""

    tenant: str
    tier: str
    email: str
    name: str
    currency: str
    timezone: str
    joins: float
    plans: tuple[DemoPlan, ...]


SITES = (
    DemoSite(
        "Demo Company",
        "pro",
        OWNER,
        "Demo Club",
        "USD",
        "America/New_York",
        1.0,
        (
            DemoPlan("starter", "Starter Pack", 1900, "month", 6, 0.07),
            DemoPlan("growth", "Growth Circle", 4900, "month", 3, 0.045),
            DemoPlan("inner", "Inner Circle", 49000, "year", 1, 0.25),
        ),
    ),
    DemoSite(
        "Second Company",
        "free",
        "second@demo.example",
        "Second Studio",
        "EUR",
        "Europe/Berlin",
        0.12,
        (
            DemoPlan("basic", "Studio Basic", 1200, "month", 3, 0.08),
            DemoPlan("plus", "Studio Plus", 12000, "year", 1, 0.3),
        ),
    ),
)


def load(engine_owner: Engine, engine_app: Engine, now: datetime, issuer: str) -> None:
    """Make the accounts where they are missing, and bring their sites' data up to `now`. Safe to repeat."""
    for site in SITES:
        with transaction("owner", source=engine_owner) as connection:
            user_id = _account(connection, site, issuer)
        with user_transaction(user_id, source=engine_app) as connection:
            if (target := _site(connection, site, user_id, now)) is not None:
                _write(connection, target, list(history(site, now)))


def history(site: DemoSite, now: datetime) -> Iterator[Record]:
    """Everything that happened on `site` in the two years until `now`: equal calls give equal records."""
    for plan in site.plans:
        yield Plan(plan.external_id, plan.name, plan.price_minor, site.currency, plan.period, "active")
    today = now.astimezone(ZoneInfo(site.timezone)).date()
    for back in range(_DAYS, -1, -1):
        day = today - timedelta(days=back)
        for number in range(_joins_on(day, site.joins, _seeded(site, day))):
            yield from _life(site, day, number, _seeded(site, day, number), now)


def _seeded(site: DemoSite, *what: object) -> random.Random:
    return random.Random(f"{site.name} {what}")  # noqa: S311 - repeatable, nothing secret


def _joins_on(day: date, usual: float, rng: random.Random) -> int:
    """More in January, September and a campaign week each March and November; fewer at weekends and in July."""
    rate = usual * {1: 1.5, 7: 0.6, 9: 1.4}.get(day.month, 1.0) * (0.7 if day.weekday() >= 5 else 1.1)
    if day.month in (3, 11) and 20 <= day.day <= 26:
        rate *= 3
    whole = int(rate)
    return sum(rng.random() < rate / (whole + 2) for _ in range(whole + 2))


def _life(site: DemoSite, day: date, number: int, rng: random.Random, now: datetime) -> Iterator[Record]:
    """One person from joining on: perhaps a change of plan, perhaps leaving, perhaps coming back."""
    key = f"demo-{day:%Y%m%d}-{number}"
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    email = f"{first}.{last}.{day:%y%m%d}{number}@members.example".lower()
    joined = _moment(day, rng, site)
    if joined > now:
        return
    yield Member(key, email, f"{first} {last}", joined)
    member = MemberRef(key, email)
    plan = rng.choices(site.plans, [p.weight for p in site.plans])[0]
    start, stay = joined, 0
    while start <= now:
        periods = 1
        while rng.random() > plan.leaves and periods < 60:
            periods += 1
        upgrade = plan is site.plans[0] and periods > 2 and rng.random() < 0.15
        if upgrade:
            periods = rng.randint(2, periods)
        end = _later(start, periods * plan.months)
        yield from _stay(site, member, plan, f"{key}-{stay}", start, end, rng, now)
        stay += 1
        if upgrade:
            start, plan = end, site.plans[1]
        elif rng.random() < 0.12:
            start = end + timedelta(days=rng.randint(30, 150))
        else:
            return


def _stay(
    site: DemoSite,
    member: MemberRef,
    plan: DemoPlan,
    key: str,
    start: datetime,
    end: datetime,
    rng: random.Random,
    now: datetime,
) -> Iterator[Record]:
    """A subscription from `start` to `end` and its payments, some of which fail at first or are given back; what lies after `now` is
    not known yet."""
    over = end <= now
    ref = PlanRef(plan.external_id, plan.name)
    yield Subscription(
        key,
        member,
        ref,
        "cancelled" if over else "active",
        plan.price_minor,
        site.currency,
        plan.period,
        start,
        end if over else None,
    )
    paid, number = start, 0
    while paid < end:
        fails, given_back, wait = rng.random() < 0.03, rng.random() < 0.02, rng.randint(1, 10)
        attempts = (
            [("failed", paid), ("complete", paid + timedelta(days=1))] if fails else [("complete", paid)]
        )
        for attempt, (status, at) in enumerate(attempts):
            if at <= now:
                yield Transaction(
                    f"{key}-{number}-{attempt}",
                    member,
                    ref,
                    "payment",
                    plan.price_minor,
                    site.currency,
                    status,
                    plan.name,
                    at,
                )
        back_at = attempts[-1][1] + timedelta(days=wait)
        if given_back and back_at <= now:
            yield Transaction(
                f"{key}-{number}-refund",
                member,
                ref,
                "refund",
                plan.price_minor,
                site.currency,
                "complete",
                f"Refund of {plan.name}",
                back_at,
            )
        number += 1
        paid = _later(start, number * plan.months)


def _moment(day: date, rng: random.Random, site: DemoSite) -> datetime:
    at = time(rng.randint(6, 22), rng.randint(0, 59), rng.randint(0, 59))
    return datetime.combine(day, at, ZoneInfo(site.timezone)).astimezone(UTC)


def _later(moment: datetime, months: int) -> datetime:
    """The same time of day so many months on, or the month's last day where it is shorter."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


def _account(connection: Connection, site: DemoSite, issuer: str) -> uuid.UUID:
    identity = {"issuer": issuer, "subject": site.email}
    find = sa.text("select id from users where issuer = :issuer and subject = :subject")
    found: uuid.UUID | None = connection.execute(find, identity).scalar()
    if found is not None:
        return found
    tenant_id = connection.execute(
        sa.text("insert into tenants (name, tier) values (:name, :tier) returning id"),
        {"name": site.tenant, "tier": site.tier},
    ).scalar_one()
    user_id: uuid.UUID = connection.execute(
        sa.text("""
insert into users (tenant_id, email, issuer, subject) values (:tenant_id, :email, :issuer, :subject) returning id"""),
        {"tenant_id": tenant_id, "email": site.email, **identity},
    ).scalar_one()
    return user_id


def _site(connection: Connection, site: DemoSite, user_id: uuid.UUID, now: datetime) -> tables.Site | None:
    """The site, made where it is missing; None where its data already reaches `now`."""
    site_id = connection.execute(
        sa.text("""
insert into sites (user_id, name, currency, timezone, data_as_of)
values (:user_id, :name, :currency, :timezone, cast(:now as timestamptz))
on conflict (user_id, name) do update set data_as_of = excluded.data_as_of where sites.data_as_of < excluded.data_as_of
returning id"""),
        {
            "user_id": user_id,
            "name": site.name,
            "currency": site.currency,
            "timezone": site.timezone,
            "now": now,
        },
    ).scalar()
    return tables.Site(user_id, site_id, site.currency) if site_id else None


def _write(connection: Connection, site: tables.Site, records: list[Record]) -> None:
    """Members before what refers to them, in batches."""
    records.sort(key=lambda r: isinstance(r, Subscription | Transaction))
    known = Known()
    for start in range(0, len(records), _BATCH):
        writer.write(connection, site, records[start : start + _BATCH], known)
