"""The plain CSV, one file a table, for data from anywhere.

Columns in brackets may be left out. Dates and times are in the site's zone unless they carry one.

- memberships: plan_id, name, price, [currency], [period: month, year, week, quarter, half_year, once], [status: active, inactive]
- members: member_id, email, registered_at, [name]
- subscriptions: subscription_id, member_id or email, started_at, [ended_at], [plan_id], [plan], [status], [price], [currency], [period]
- transactions: transaction_id, amount, occurred_at, [kind: payment, refund], [currency], [status: complete, pending, failed],
  [member_id], [email], [plan_id], [plan], [description]; a negative amount is a refund
"""

from __future__ import annotations

from common.sites.imports.kinds import Kind
from common.sites.imports.reading import Row
from common.sites.imports.records import Member, MemberRef, Plan, PlanRef, Record, Subscription, Transaction
from common.sites.imports.values import Fault, parse_period

SUBSCRIPTION_STATUSES = ("active", "trialing", "past_due", "paused", "cancelled", "expired", "pending")
TRANSACTION_STATUSES = ("complete", "pending", "failed")


def one_of(row: Row, column: str, choices: tuple[str, ...], default: str) -> str:
    """The cell in small letters. Raises Fault for what is none of `choices`."""
    value = (row.text(column) or default).lower().replace(" ", "_")
    if value not in choices:
        raise Fault(f"{column}: '{value[:40]}' is none of {', '.join(choices)}")
    return value


def member_ref(row: Row) -> MemberRef | None:
    external_id, email = row.text("member id"), row.email("email")
    return MemberRef(external_id, email, row.text("name")) if external_id or email else None


def plan_ref(row: Row) -> PlanRef | None:
    external_id, name = row.text("plan id"), row.text("plan")
    return PlanRef(external_id, name) if external_id or name else None


def price(row: Row) -> tuple[int | None, str]:
    """(minor units or None, currency). Raises Fault for a negative price."""
    currency = row.currency("currency")
    found = row.money(currency, "price")
    if found is None:
        return None, currency
    if found[0] < 0:
        raise Fault("price is negative")
    return found


def read_plan(row: Row) -> list[Record]:
    minor, currency = price(row)
    period = parse_period(row.text("period") or "")
    status = one_of(row, "status", ("active", "inactive"), "active")
    return [Plan(row.needed("plan id"), row.needed("name"), minor, currency, period, status)]


def read_member(row: Row) -> list[Record]:
    return [
        Member(row.needed("member id"), row.email("email"), row.text("name"), row.moment("registered at"))
    ]


def read_subscription(row: Row) -> list[Record]:
    member = member_ref(row)
    if member is None:
        raise Fault("member id and email are both empty")
    started, ended = row.needed_moment("started at"), row.moment("ended at")
    if ended is not None and ended < started:
        raise Fault("ended at lies before started at")
    minor, currency = price(row)
    return [
        Subscription(
            row.needed("subscription id"),
            member,
            plan_ref(row),
            one_of(row, "status", SUBSCRIPTION_STATUSES, "active" if ended is None else "cancelled"),
            minor,
            currency,
            parse_period(row.text("period") or ""),
            started,
            ended,
        )
    ]


def read_transaction(row: Row) -> list[Record]:
    found = row.money(row.currency("currency"), "amount")
    if found is None:
        raise Fault("amount is empty")
    minor, currency = found
    kind = one_of(row, "kind", ("payment", "refund"), "refund" if minor < 0 else "payment")
    if minor < 0 and kind == "payment":
        raise Fault("amount of a payment is negative")
    return [
        Transaction(
            row.needed("transaction id"),
            member_ref(row),
            plan_ref(row),
            kind,
            abs(minor),
            currency,
            one_of(row, "status", TRANSACTION_STATUSES, "complete"),
            row.text("description"),
            row.needed_moment("occurred at"),
        )
    ]


KINDS = [
    Kind(
        "plain memberships CSV",
        "memberships",
        (("plan id",), ("name",), ("price",)),
        read_plan,
        amounts=("price",),
    ),
    Kind(
        "plain members CSV",
        "members",
        (("member id",), ("email",), ("registered at",)),
        read_member,
        dates=("registered at",),
    ),
    Kind(
        "plain subscriptions CSV",
        "subscriptions",
        (("subscription id",), ("member id", "email"), ("started at",)),
        read_subscription,
        dates=("started at", "ended at"),
        amounts=("price",),
    ),
    Kind(
        "plain transactions CSV",
        "transactions",
        (("transaction id",), ("amount",), ("occurred at",)),
        read_transaction,
        dates=("occurred at",),
        amounts=("amount",),
    ),
]
