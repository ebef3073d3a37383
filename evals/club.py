"""A club's data as its owner would export it on a given day: four plain CSV files from a short timeline."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class Club:
    """Plans with their monthly price, and what happened: (day, plan, count); a negative count is people who leave, those who came first
    leaving first. `names`, `refunds` and `notes` change single people and payments: (number of the member) -> text."""

    plans: dict[str, str]
    timeline: tuple[tuple[date, str, int], ...]
    refunds: tuple[tuple[date, int], ...] = ()
    names: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)


@dataclass
class _Member:
    number: int
    plan: str
    joined: date
    left: date | None = None


def exported(club: Club, at: datetime, timezone: str) -> dict[str, str]:
    """File name -> CSV, as of `at`: nothing of it lies after that day in `timezone`."""
    day = at.astimezone(ZoneInfo(timezone)).date()
    people = _people(club, day)
    plans = list(club.plans)
    return {
        "memberships.csv": _csv(
            ("plan_id", "name", "price", "currency", "period", "status"),
            ((f"p{n}", name, club.plans[name], "USD", "month", "active") for n, name in enumerate(plans)),
        ),
        "members.csv": _csv(
            ("member_id", "email", "name", "registered_at"),
            (
                (f"m{p.number}", f"member{p.number}@club.example", club.names.get(p.number, f"Member {p.number}"), _at(p.joined))
                for p in people
            ),
        ),
        "subscriptions.csv": _csv(
            ("subscription_id", "member_id", "plan_id", "status", "price", "currency", "period", "started_at", "ended_at"),
            (
                (f"s{p.number}", f"m{p.number}", f"p{plans.index(p.plan)}", "cancelled" if p.left else "active",
                 club.plans[p.plan], "USD", "month", _at(p.joined), _at(p.left) if p.left else "")
                for p in people
            ),
        ),
        "transactions.csv": _csv(
            ("transaction_id", "member_id", "plan_id", "kind", "amount", "currency", "status", "description", "occurred_at"),
            _payments(club, people, plans, day),
        ),
    }  # fmt: skip


def _people(club: Club, day: date) -> list[_Member]:
    people: list[_Member] = []
    for when, plan, count in club.timeline:
        if when > day:
            continue
        if count > 0:
            people += [_Member(len(people) + n, plan, when) for n in range(count)]
            continue
        staying = [p for p in people if p.plan == plan and p.left is None]
        for person in staying[:-count]:
            person.left = when
    return people


def _payments(club: Club, people: list[_Member], plans: list[str], day: date) -> Iterable[tuple[Any, ...]]:
    for p in people:
        plan, price = f"p{plans.index(p.plan)}", club.plans[p.plan]
        when, n = p.joined, 0
        while when <= min(day, p.left or day):
            note = club.notes.get(p.number, "") if n == 0 else ""
            yield (
                f"t{p.number}-{n}",
                f"m{p.number}",
                plan,
                "payment",
                price,
                "USD",
                "complete",
                note,
                _at(when),
            )
            when, n = when + timedelta(days=30), n + 1
    for n, (when, amount) in enumerate(club.refunds):
        if when <= day:
            yield f"r{n}", f"m{n}", "", "refund", amount, "USD", "complete", "", _at(when)


def _at(day: date) -> str:
    return datetime.combine(day, time(9, 0)).isoformat(sep=" ", timespec="minutes")


def _csv(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
