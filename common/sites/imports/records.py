"""What a row of any source becomes: a record for each table, members and plans named the way the file names them.

External ids are unique in a site and table; a source other than the plain CSV puts its own mark before them, so that two systems' numbers
do not meet. Money is in minor units, moments have a zone. They are named tuples because a large file makes and compares millions of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class MemberRef(NamedTuple):
    """A person as a row names them: found by external id, else by e-mail address, else made."""

    external_id: str | None
    email: str | None = None
    name: str | None = None


class PlanRef(NamedTuple):
    """A plan as a row names it: found by its external id or, where it has none, by its name; else made."""

    external_id: str | None
    name: str | None = None


class Plan(NamedTuple):
    external_id: str
    name: str
    price_minor: int | None
    currency: str
    period: str
    status: str


class Member(NamedTuple):
    external_id: str
    email: str | None
    name: str | None
    registered_at: datetime | None


class Subscription(NamedTuple):
    """Without a price of its own it has its plan's."""

    external_id: str
    member: MemberRef
    plan: PlanRef | None
    status: str
    price_minor: int | None
    currency: str
    period: str
    started_at: datetime
    ended_at: datetime | None


class Transaction(NamedTuple):
    external_id: str
    member: MemberRef | None
    plan: PlanRef | None
    kind: str
    amount_minor: int
    currency: str
    status: str
    description: str | None
    occurred_at: datetime


Record = Plan | Member | Subscription | Transaction


def plan_stub(name: str | None) -> str:
    """The external id of a plan of which only the name is known."""
    return f"name:{name}"


def moments(record: Record) -> list[datetime]:
    """Every moment that the record speaks of."""
    if isinstance(record, Transaction):
        return [record.occurred_at]
    found: tuple[datetime | None, ...] = ()
    if isinstance(record, Member):
        found = (record.registered_at,)
    elif isinstance(record, Subscription):
        found = (record.started_at, record.ended_at)
    return [moment for moment in found if moment is not None]
