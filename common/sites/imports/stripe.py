"""Stripe's dashboard exports: payments, subscriptions and customers.

The headers are those of its dashboard's export dialogues: of payments the 23 default columns (older files say `Created (UTC)`), and `Mode`
of "all columns", whose rows of the test mode are no money. Amounts are in major units of the row's currency, with the decimal mark of the
exporting person's language; times in UTC as the headers say. A payment that was given back in part says `Paid`. Stripe's ids are unique by
themselves.
"""

from __future__ import annotations

from common.sites.imports.kinds import Kind
from common.sites.imports.reading import Row
from common.sites.imports.records import Member, MemberRef, PlanRef, Record, Subscription, Transaction
from common.sites.imports.values import Fault, parse_period

CREATED = ("created date (utc)", "created (utc)")
STARTED = ("start date (utc)", "start (utc)", *CREATED)

_PAYMENT_STATUSES = {
    **dict.fromkeys(
        (
            "paid",
            "succeeded",
            "refunded",
            "partially refunded",
            "partial refund",
            "disputed",
            "dispute won",
            "dispute lost",
        ),
        "complete",
    ),
    **dict.fromkeys(
        (
            "pending",
            "processing",
            "incomplete",
            "uncaptured",
            "requires action",
            "requires capture",
            "requires confirmation",
            "requires payment method",
        ),
        "pending",
    ),
    **dict.fromkeys(("failed", "canceled", "cancelled", "blocked", "expired"), "failed"),
}
_SUBSCRIPTION_STATUSES = {
    "active": "active",
    "trialing": "trialing",
    "past due": "past_due",
    "unpaid": "past_due",
    "paused": "paused",
    "canceled": "cancelled",
    "cancelled": "cancelled",
    "incomplete": "pending",
    "incomplete expired": "pending",
}


def _known(row: Row, statuses: dict[str, str]) -> str:
    word = row.needed("status").lower().replace("_", " ")
    if word not in statuses:
        raise Fault(f"status: '{word[:40]}' is not known")
    return statuses[word]


def _customer(row: Row) -> MemberRef | None:
    external_id, email = row.text("customer id"), row.email("customer email")
    return (
        MemberRef(external_id, email, row.text("customer name", "customer description"))
        if external_id or email
        else None
    )


def read_payment(row: Row) -> list[Record]:
    """The payment, and a refund where something was given back: on the day that the file states, else on the payment's."""
    found = row.money(row.currency("currency"), "amount")
    if found is None:
        raise Fault("amount is empty")
    if (row.text("mode") or "live").lower() == "test":
        raise Fault("mode: a payment of the test mode is no money")
    minor, currency = found
    external_id, at = row.needed("id"), row.needed_moment(*CREATED)
    member, text = _customer(row), row.text("description")
    if minor < 0:
        return [Transaction(external_id, member, None, "refund", -minor, currency, "complete", text, at)]
    status = _known(row, _PAYMENT_STATUSES)
    if status == "complete" and (row.text("captured") or "true").lower() == "false":
        status = "pending"
    records: list[Record] = [
        Transaction(external_id, member, None, "payment", minor, currency, status, text, at)
    ]
    refunded = row.money(currency, "amount refunded")
    if refunded and refunded[0]:
        day = row.moment("refunded date (utc)") or at
        records.append(
            Transaction(
                f"{external_id}-refund",
                member,
                None,
                "refund",
                abs(refunded[0]),
                currency,
                "complete",
                text,
                day,
            )
        )
    return records


def read_subscription(row: Row) -> list[Record]:
    """From its start until it ended; one that is cancelled for the end of its period still runs."""
    member = _customer(row)
    if member is None:
        raise Fault("customer id and customer email are both empty")
    status, started = _known(row, _SUBSCRIPTION_STATUSES), row.needed_moment(*STARTED)
    ended = row.moment("ended at (utc)")
    if status == "cancelled" and ended is None:
        ended = row.needed_moment("canceled at (utc)")
    currency = row.currency("currency", "plan currency")
    found = row.money(currency, "amount", "plan amount")
    quantity = row.text("quantity") or "1"
    if not quantity.isdigit():
        raise Fault(f"quantity: '{quantity[:40]}' is no number")
    plan_id, plan_name = (
        row.text("plan", "plan id", "plan price id"),
        row.text("product", "plan name", "product name"),
    )
    return [
        Subscription(
            row.needed("id"),
            member,
            PlanRef(plan_id, plan_name or plan_id) if plan_id or plan_name else None,
            status,
            found[0] * int(quantity) if found else None,
            found[1] if found else currency,
            _period(row),
            started,
            max(ended, started) if ended else None,
        )
    ]


def _period(row: Row) -> str:
    unit, count = (row.text("interval", "plan interval") or "").lower(), row.text("interval count") or "1"
    return parse_period(unit if count == "1" else f"{count} {unit}")


def read_customer(row: Row) -> list[Record]:
    return [
        Member(row.needed("id"), row.email("email"), row.text("name", "description"), row.moment(*CREATED))
    ]


KINDS = [
    Kind(
        "Stripe payments export",
        "transactions",
        (("id",), CREATED, ("amount",), ("amount refunded",), ("currency",), ("status",)),
        read_payment,
        dates=(*CREATED, "refunded date (utc)"),
        amounts=("amount", "amount refunded"),
        utc=True,
    ),
    Kind(
        "Stripe subscriptions export",
        "subscriptions",
        (("id",), ("customer id",), ("status",), ("interval", "plan interval"), STARTED),
        read_subscription,
        dates=(*STARTED, "ended at (utc)", "canceled at (utc)"),
        amounts=("amount", "plan amount"),
        utc=True,
    ),
    Kind(
        "Stripe customers export",
        "members",
        (("id",), ("email",), CREATED),
        read_customer,
        dates=CREATED,
        utc=True,
    ),
]
