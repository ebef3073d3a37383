"""The exports of a club of some hundred people as its systems wrote them: one file of each kind, each with faults of its own.

    python -m tests.database.export_files        writes tests/fixtures/imports/whole

Beside each file stands what an import of it must report. It comes from the ledger that the file was made from, never from the importer.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.database.import_files import Style, money

FOLDER = Path(__file__).parent.parent / "fixtures" / "imports" / "whole"
BEGAN = datetime(2024, 6, 3, 8, 0, tzinfo=UTC)
NAMES = ("Zoë Müller", "Anna Abel", "José Ñandú", "Bea Ødegård", "Chloé L’Été", "Max Stone")
PRICES = (1900, 2900, 4900, 29000, 129000)

Cells = list[str]
Spoilt = tuple[int, str, str]
"""(column, what stands there, what the reason must say) of a row that must be rejected."""


@dataclass
class Export:
    """A file that is being made: its rows, what spoils some of them, and sums of (currency, kind, status) in minor units."""

    name: str
    kind: str
    table: str
    style: Style
    header: str
    row: Callable[[Export, random.Random, int], Cells]
    spoilt: tuple[Spoilt, ...]
    currency: str = "USD"
    count: int = 300
    totals: Counter[str] = field(default_factory=Counter)

    def at(self, moment: datetime | None) -> str:
        return moment.strftime(self.style.dates) if moment else ""

    def money(self, minor: int, currency: str = "") -> str:
        return money(self.style, minor, currency or self.currency)

    def book(self, kind: str, status: str, minor: int, currency: str = "") -> None:
        self.totals[f"{currency or self.currency} {kind} {status}"] += minor

    def text(self, text: str) -> str:
        return text.replace(", ", ",\n", 1) if self.style.line_breaks else text


def person(i: int) -> tuple[str, str, datetime]:
    """(name, address, moment of registration) of the club's person `i`."""
    return NAMES[i % len(NAMES)], f"Person{i}@Club.example", BEGAN + timedelta(hours=37 * i, minutes=i)


def _mp_member(export: Export, rng: random.Random, i: int) -> Cells:
    (first, last), (_, email, at) = person(i)[0].split(" ", 1), person(i)
    return [
        str(100 + i), f"person{i}", email, f"{last}, {first}", first, last, "2", "1", "1", "active", "88,90", "", "4",
        "58.00", export.at(at),
    ]  # fmt: skip


def _mp_transaction(export: Export, rng: random.Random, i: int) -> Cells:
    name, email, at = person(i % 90)
    status = rng.choice(("complete", "complete", "complete", "refunded", "failed", "pending"))
    minor, plan, at = rng.choice(PRICES), rng.randrange(3), at + timedelta(days=i)
    refund = i % 25 == 7
    if refund:
        export.book("refund", "complete", minor)
    else:
        export.book("payment", "complete" if status == "refunded" else status, minor)
        if status == "refunded":
            export.book("refund", "complete", minor)
    first, last = name.split(" ", 1)
    return [
        str(5000 + i), export.at(at), export.at(at + timedelta(days=30)), f"person{i % 90}", email, first, last, str(100 + i % 90),
        str(88 + plan), f"Größe {plan}", "Stripe", "abc-1", f"sub_{i % 90}", "31", f"ch_{i}", export.money(minor),
        ("-" if refund else "") + export.money(minor), export.money(0), "0,000", "standard", export.text("VAT, included"), status,
        "", "", "",
    ]  # fmt: skip


def _mp_subscription(export: Export, rng: random.Random, i: int) -> Cells:
    name, email, at = person(i)
    status = rng.choice(("active", "active", "cancelled", "suspended", "pending"))
    first, last = name.split(" ", 1)
    active = "<span>No</span>" if status == "cancelled" else "<span>Yes</span>"
    expires = at + timedelta(days=31) if i % 9 else None
    unit = rng.choice(("months", "years", "weeks", "lifetime"))
    return [
        "subscription", str(700 + i), email, "Stripe", f"person{i}", first, last, "Größe 1", "1", "2", "2", "2", export.at(expires),
        f"sub_{i}", str(100 + i), "89", export.money(rng.choice(PRICES)), "1", unit, status, export.at(at), active,
    ]  # fmt: skip


def _mp_membership(export: Export, rng: random.Random, i: int) -> Cells:
    title = export.text(f"Course {i}, with “extras” & 10 € off")
    unit = rng.choice(("months", "years", "lifetime", "weeks"))
    return [str(88 + i), title, export.money(rng.choice(PRICES)), "1", unit, rng.choice(("publish", "draft"))]


def _payment(export: Export, rng: random.Random, i: int) -> Cells:
    name, email, at = person(i % 70)
    currency = rng.choice(("USD", "USD", "EUR", "JPY", "KWD"))
    minor = rng.choice(PRICES) * (10 if currency == "KWD" else 1)
    outcome = rng.choice(("Paid", "Paid", "Paid", "Refunded", "partly", "Failed"))
    back = {"Refunded": minor, "partly": minor // 2}.get(outcome, 0)
    export.book("payment", "failed" if outcome == "Failed" else "complete", minor, currency)
    if back:
        export.book("refund", "complete", back, currency)
    at += timedelta(days=i)
    status = "Paid" if outcome == "partly" else outcome
    return [
        f"ch_{i:05}", export.at(at), export.money(minor, currency), export.money(back, currency), currency.lower(), "true",
        export.money(minor), export.money(back), "usd", "", export.text("Subscription, update"), "1.14",
        export.at(at + timedelta(days=3)) if back and i % 2 else "", "CLUB", status, "Payment complete.", "0.00", "card_1",
        f"cus_{i % 70}", name, email, f"in_{i}", "",
    ]  # fmt: skip


def _subscription(export: Export, rng: random.Random, i: int) -> Cells:
    name, email, at = person(i)
    status = rng.choice(("active", "trialing", "past_due", "canceled", "incomplete_expired"))
    ended = export.at(at + timedelta(days=90)) if status == "canceled" else ""
    return [
        f"sub_{i:05}", f"cus_{i}", name, email, "price_1", "Größe 1", str(rng.randrange(1, 4)), "usd", rng.choice(("month", "year")),
        export.money(rng.choice(PRICES)), status, export.at(at), export.at(at), export.at(at), export.at(at + timedelta(days=30)), "", "",
        ended, "false", ended,
    ]  # fmt: skip


def _customer(export: Export, rng: random.Random, i: int) -> Cells:
    name, email, at = person(i)
    return [
        f"cus_{i:05}", export.text("From the fair, hall 3"), email if i % 11 else "", name if i % 3 else "", export.at(at),
        "false", "", "", "", "58.00", "2", "0.00",
    ]  # fmt: skip


NO_ID: Spoilt = (0, "", "id is empty")


def exports() -> list[Export]:
    """One of each kind, with the faults that such a system or the spreadsheet after it makes. Columns are those that the systems write."""
    return [
        Export(
            "memberpress_members",
            "MemberPress members export",
            "members",
            Style(
                encoding="utf-8-sig",
                line_end="\r\n",
                dates="%Y-%m-%d %H:%M:%S",
                blank_lines=True,
                empty_columns=2,
                repeats=25,
            ),
            "ID,username,email,name,first_name,last_name,txn_count,active_txn_count,sub_count,status,memberships,last_login_date,"
            "login_count,total_spent,registered",
            _mp_member,
            (
                NO_ID,
                (14, "2025-02-30 08:00:00", "no day in the calendar"),
                (14, "yesterday", "registered: 'yesterday' is no date"),
            ),
        ),
        Export(
            "memberpress_transactions",
            "MemberPress transactions export",
            "transactions",
            Style(
                encoding="cp1252",
                delimiter=";",
                line_end="\r\n",
                decimal="comma",
                thousands=".",
                signs=True,
                dates="%d.%m.%Y %H:%M",
                line_breaks=True,
                repeats=25,
            ),
            "id,created_at,expires_at,user_login,user_email,first_name,last_name,user_id,product_id,product_name,gateway,gateway_id,"
            "subscr_id,sub_id,trans_num,amount,total,tax_amount,tax_rate,tax_class,tax_desc,status,coupon_id,coupon,order_trans_num",
            _mp_transaction,
            (
                NO_ID,
                (1, "31.02.2026 08:00", "created at: '31.02.2026 08:00' is no day"),
                (16, "zehn", "total: 'zehn' is no amount"),
                (21, "odd", "status: 'odd'"),
            ),
            currency="EUR",
            count=400,
        ),
        Export(
            "memberpress_subscriptions",
            "MemberPress subscriptions export",
            "subscriptions",
            Style(
                encoding="utf-16",
                delimiter="\t",
                decimal="comma",
                thousands="\u202f",
                dates="%B %d, %Y %H:%M",
                repeats=25,
            ),
            "sub_type,ID,user_email,gateway,member,first_name,last_name,product_name,first_txn_id,latest_txn_id,expiring_txn_id,txn_count,"
            "expires_at,subscr_id,user_id,product_id,price,period,period_type,status,created_at,active",
            _mp_subscription,
            ((1, "", "id is empty"), (19, "odd", "status: 'odd'"), (20, "Foo 31, 2025", "created at")),
        ),
        Export(
            "memberpress_memberships",
            "MemberPress memberships export",
            "memberships",
            Style(encoding="utf-8", thousands=",", signs=True, line_breaks=True, repeats=25, empty_columns=1),
            "ID,title,price,period,period_type,status",
            _mp_membership,
            (
                NO_ID,
                (1, "", "title is empty"),
                (2, "-5.00", "price is negative"),
                (2, "free", "price: 'free' is no amount"),
            ),
        ),
        Export(
            "stripe_payments",
            "Stripe payments export",
            "transactions",
            Style(encoding="utf-8", thousands=",", dates="%Y-%m-%d %H:%M:%S", line_breaks=True, repeats=25),
            "id,Created date (UTC),Amount,Amount Refunded,Currency,Captured,Converted Amount,Converted Amount Refunded,Converted Currency,"
            "Decline Reason,Description,Fee,Refunded date (UTC),Statement Descriptor,Status,Seller Message,Taxes On Fee,Card ID,"
            "Customer ID,Customer Description,Customer Email,Invoice ID,Transfer",
            _payment,
            (
                NO_ID,
                (2, "ten", "amount: 'ten'"),
                (4, "dollars", "no currency code"),
                (14, "odd", "status: 'odd'"),
                (1, "", "created date (utc) is empty"),
            ),
            count=400,
        ),
        Export(
            "stripe_subscriptions",
            "Stripe subscriptions export",
            "subscriptions",
            Style(
                encoding="utf-8-sig", thousands=",", dates="%m/%d/%Y %I:%M %p", repeats=25, blank_lines=True
            ),
            "id,Customer ID,Customer Description,Customer Email,Plan,Product,Quantity,Currency,Interval,Amount,Status,Created (UTC),"
            "Start (UTC),Current Period Start (UTC),Current Period End (UTC),Trial Start (UTC),Trial End (UTC),Canceled At (UTC),"
            "Cancel At Period End,Ended At (UTC)",
            _subscription,
            (
                NO_ID,
                (6, "two", "quantity: 'two'"),
                (12, "13/32/2025 08:00 AM", "start (utc)"),
                (10, "odd", "status: 'odd'"),
            ),
        ),
        Export(
            "stripe_customers",
            "Stripe customers export",
            "members",
            Style(encoding="utf-8", delimiter="|", dates="%d/%m/%Y %H:%M", line_breaks=True, repeats=25),
            "id,Description,Email,Name,Created (UTC),Delinquent,Card ID,Plan,Status,Total Spend,Payment Count,Refunded Volume",
            _customer,
            (NO_ID, (4, "31/02/2025 08:00", "no day in the calendar")),
        ),
    ]


def write(export: Export, *, order: int | None = None) -> tuple[bytes, dict[str, Any]]:
    """The file, and what an import of it into an empty site must report: rows by what becomes of them, the line of each rejected row with
    what its reason must say, and sums over the good rows. With an `order`, its rows are shuffled by it."""
    rng = random.Random(export.name)
    good = [(export.row(export, rng, i), "") for i in range(export.count)]
    rows = good + [rng.choice(good) for _ in range(export.style.repeats)]
    totals = dict(sorted(export.totals.items()))
    for i in range(16):
        column, cell, why = export.spoilt[i % len(export.spoilt)]
        cells = [*rng.choice(good)[0]]
        cells[column] = cell
        rows.insert(rng.randrange(1, len(rows)), (cells, why))
    width = len(export.header.split(","))
    surplus = [*good[0][0], *[""] * export.style.empty_columns, "surplus"]
    rows.insert(len(rows) // 2, (surplus, f"{width + 1 + export.style.empty_columns} fields under"))
    if order is not None:
        random.Random(order).shuffle(rows)
    content, rejected = _written(export, rows)
    report = {
        "kind": export.kind,
        "table": export.table,
        "currency": export.currency,
        "read": len(rows),
        "added": export.count,
        "unchanged": export.style.repeats,
        "rejected": rejected,
        "totals": totals,
    }
    return content, report


def _written(export: Export, rows: list[tuple[Cells, str]]) -> tuple[bytes, dict[str, str]]:
    style, out = export.style, io.StringIO(newline="")
    writer = csv.writer(out, delimiter=style.delimiter, lineterminator=style.line_end)
    header = [*export.header.split(","), *[""] * style.empty_columns]
    writer.writerow(header)
    rejected: dict[str, str] = {}
    for number, (cells, why) in enumerate(rows):
        if why:
            rejected[str(out.getvalue().count("\n") + 1)] = why
        writer.writerow([*cells, *[""] * (len(header) - len(cells))])
        if style.blank_lines and number % 50 == 0:
            out.write(style.line_end)
    return out.getvalue().encode(style.encoding), rejected


def files() -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file of the folder."""
    for export in exports():
        content, report = write(export)
        yield f"{export.name}.csv", content
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        yield f"{export.name}.report.json", text.encode()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files():
        (FOLDER / name).write_bytes(content)
