"""MemberPress exports: members, transactions, subscriptions and memberships.

The CSV of its admin tables (members, transactions, subscriptions) names columns as its queries do (`ID`, `user_email`, `trans_num`,
`product_name`, `expires_at`, …: the `list_table` functions of the plugin's models, 1.9 to 1.12); the headings that the tables show on the
screen are taken as well. Memberships have no such table: theirs are the columns that its importer documents (`name`, `price`, `period`,
`period_type`: memberpress.com/docs/memberpress-data), or a posts export with `ID` and `title`. Its times are in UTC, its amounts in the
site's currency. Ids get the mark `mp-`; a membership without one is known by its name.
"""

from __future__ import annotations

from common.sites.imports.kinds import Kind
from common.sites.imports.plain import price
from common.sites.imports.reading import Row
from common.sites.imports.records import (
    Member,
    MemberRef,
    Plan,
    PlanRef,
    Record,
    Subscription,
    Transaction,
    plan_stub,
)
from common.sites.imports.values import Fault, parse_period

MEMBERSHIP = ("product name", "membership", "membership name")
TITLE = ("title", "post title", "name", "product name")
CREATED, EXPIRES = ("created at", "created on"), ("expires at", "expires on")

# Both the stored words and those that the tables show.
_TRANSACTION_STATUSES = {
    "complete": "complete",
    "completed": "complete",
    "confirmed": "complete",  # a subscription that began: its row carries no money
    "pending": "pending",
    "failed": "failed",
    "refunded": "refunded",
}
_SUBSCRIPTION_STATUSES = {
    "active": "active",
    "enabled": "active",
    "none": "active",  # a single payment that gives access for a time
    "cancelled": "cancelled",
    "stopped": "cancelled",
    "suspended": "paused",
    "paused": "paused",
    "pending": "pending",
}


def _known(row: Row, statuses: dict[str, str]) -> str:
    word = row.needed("status").lower()
    if word not in statuses:
        raise Fault(f"status: '{word[:40]}' is not known")
    return statuses[word]


def _name(row: Row) -> str | None:
    """First and last name; else the one column, which is written 'Last, First'."""
    first, last = row.text("first name", "fname"), row.text("last name", "lname")
    if first or last:
        return " ".join(part for part in (first, last) if part)
    whole = row.text("name")
    if whole and whole.count(",") == 1:
        last, first = (part.strip() for part in whole.split(","))
        return f"{first} {last}".strip() or None
    return whole


def _member(row: Row) -> MemberRef | None:
    """Who a transaction or subscription belongs to."""
    number, login = row.text("user id"), row.text("user login", "member", "username", "user")
    email = row.email("user email", "email") or (login.lower() if login and "@" in login else None)
    external_id = f"mp-{number}" if number and number != "0" else None
    return MemberRef(external_id, email, _name(row)) if external_id or email else None


def _plan(row: Row) -> PlanRef | None:
    number, name = row.text("product id"), row.text(*MEMBERSHIP)
    return PlanRef(f"mp-{number}" if number and number != "0" else None, name) if number or name else None


def read_member(row: Row) -> list[Record]:
    return [
        Member(
            f"mp-{row.needed('id')}",
            row.email("email", "user email"),
            _name(row) or row.text("username"),
            row.moment("registered", "user registered"),
        )
    ]


def read_transaction(row: Row) -> list[Record]:
    """The payment, and for a refunded one also its refund: the file does not say on which day, so it is booked on the payment's."""
    found = row.money(row.setting.currency, "total", "amount", "net")
    if found is None:
        raise Fault("total is empty")
    minor, currency = found
    status = _known(row, _TRANSACTION_STATUSES)
    external_id, at = f"mp-{row.needed('id')}", row.needed_moment(*CREATED)
    member, plan, text = _member(row), _plan(row), row.text("trans num", "txn num", "transaction")
    if minor < 0:
        return [Transaction(external_id, member, plan, "refund", -minor, currency, "complete", text, at)]
    paid = "complete" if status == "refunded" else status
    records: list[Record] = [
        Transaction(external_id, member, plan, "payment", minor, currency, paid, text, at)
    ]
    if status == "refunded":
        records.append(
            Transaction(
                f"{external_id}-refund", member, plan, "refund", minor, currency, "complete", text, at
            )
        )
    return records


def read_subscription(row: Row) -> list[Record]:
    """A stopped subscription lasts until what was paid for expires, as does one that the file calls inactive."""
    member = _member(row)
    if member is None:
        raise Fault("user id and user email are both empty")
    status, started = _known(row, _SUBSCRIPTION_STATUSES), row.needed_moment(*CREATED)
    single = row.text("sub type") == "transaction"
    minor, currency = price(row)
    over = "no" in (row.text("active") or "").lower()  # the column holds markup around Yes or No
    expires = row.moment(*EXPIRES)
    ended = expires if single or over or status == "cancelled" else None
    if status == "cancelled" and row.text(*EXPIRES) is None:
        ended = started  # stopped before anything was paid
    if ended is not None and ended < started:
        ended = started
    count, unit = row.text("period") or "1", (row.text("period type") or "").lower()
    return [
        Subscription(
            f"mp-{'txn-' if single else ''}{row.needed('id')}",
            member,
            _plan(row),
            status,
            minor,
            currency,
            "once"
            if single or unit == "lifetime"
            else parse_period(f"{count} {unit}" if count != "1" else unit),
            started,
            ended,
        )
    ]


def read_membership(row: Row) -> list[Record]:
    minor, currency = price(row)
    count, unit = row.text("period") or "1", (row.text("period type") or "").lower()
    status = (row.text("status", "post status") or "publish").lower()
    name = row.needed(*TITLE)
    return [
        Plan(
            f"mp-{row.needed('id')}" if "id" in row.cells else plan_stub(name),
            name,
            minor,
            currency,
            parse_period(f"{count} {unit}" if count != "1" else unit),
            "active" if status in ("publish", "published", "active") else "inactive",
        )
    ]


KINDS = [
    Kind(
        "MemberPress members export",
        "members",
        (("id",), ("username", "user login"), ("email", "user email"), ("registered", "user registered")),
        read_member,
        dates=("registered", "user registered"),
        utc=True,
    ),
    Kind(
        "MemberPress transactions export",
        "transactions",
        (
            ("id",),
            ("trans num", "txn num", "transaction"),
            MEMBERSHIP,
            ("total", "amount"),
            ("status",),
            CREATED,
        ),
        read_transaction,
        dates=CREATED,
        amounts=("total", "amount", "net"),
        utc=True,
    ),
    Kind(
        "MemberPress subscriptions export",
        "subscriptions",
        (
            ("id",),
            ("subscr id", "subscription", "sub type"),
            MEMBERSHIP,
            ("status",),
            ("period type",),
            CREATED,
            EXPIRES,
        ),
        read_subscription,
        dates=(*CREATED, *EXPIRES),
        amounts=("price",),
        utc=True,
    ),
    Kind(
        "MemberPress memberships export",
        "memberships",
        (TITLE, ("price",), ("period type",)),
        read_membership,
        amounts=("price",),
        utc=True,
    ),
]
