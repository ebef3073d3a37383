"""Files of payments as real systems write them: a known ledger, written down with chosen oddities.

The truth is the ledger: a test compares what was imported with sums over it, never with the importer's own reading.
"""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

PLACES = {"USD": 2, "EUR": 2, "JPY": 0, "KWD": 3}
SIGNS = {"USD": "$", "EUR": "€", "JPY": "¥", "KWD": "KWD "}
PLANS = ("Starter Pack", "Inner Circle", "Größe, die „zählt“")
BEGAN = datetime(2025, 1, 2, 8, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Payment:
    """A payment, and what was given back of it."""

    number: int
    minor: int
    refunded: int
    currency: str
    status: Literal["complete", "failed"]
    member: int
    plan: str
    at: datetime


@dataclass(frozen=True)
class Style:
    """How a file is written. `broken` rows, which must be rejected, and `repeats` of good ones are put among the others."""

    source: Literal["plain", "stripe"] = "plain"
    encoding: str = "utf-8"
    delimiter: str = ","
    line_end: str = "\n"
    decimal: Literal["point", "comma"] = "point"
    thousands: str = ""
    signs: bool = False
    dates: str = "%Y-%m-%d %H:%M"
    line_breaks: bool = False
    empty_columns: int = 0
    blank_lines: bool = False
    repeats: int = 0
    broken: int = 0
    currencies: tuple[str, ...] = ("USD",)
    seed: int = 0


# Every oddity that an import must bear, each alone.
FAULTS: dict[str, Style] = {
    "none": Style(),
    "byte order mark": Style(encoding="utf-8-sig"),
    "utf-16": Style(encoding="utf-16"),
    "semicolons": Style(delimiter=";"),
    "tabs": Style(delimiter="\t"),
    "bars": Style(delimiter="|"),
    "windows-1252": Style(encoding="cp1252"),
    "windows line ends": Style(line_end="\r\n"),
    "quoted line breaks": Style(line_breaks=True),
    "thousands separators": Style(thousands=","),
    "decimal commas": Style(decimal="comma"),
    "decimal commas and thousands": Style(decimal="comma", thousands="."),
    "thousands apart by spaces": Style(decimal="comma", thousands="\u202f"),
    "currency signs": Style(signs=True),
    "dotted dates": Style(dates="%d.%m.%Y %H:%M"),
    "day first": Style(dates="%d/%m/%Y %H:%M"),
    "month first, twelve hours": Style(dates="%m/%d/%Y %I:%M %p"),
    "month names": Style(dates="%B %d, %Y %H:%M"),
    "with a zone": Style(dates="%Y-%m-%dT%H:%M:00Z"),
    "empty columns": Style(empty_columns=3),
    "blank lines": Style(blank_lines=True),
    "repeated rows": Style(repeats=40),
    "zero-decimal currency": Style(currencies=("JPY",)),
    "three decimals": Style(currencies=("KWD",)),
    "several currencies": Style(currencies=("USD", "EUR", "JPY")),
    "refunds in a column": Style(source="stripe"),
    "rows that cannot be read": Style(broken=30),
}
# And together, as exports have them.
COMBINED: dict[str, Style] = {
    "a German spreadsheet": Style(
        encoding="cp1252", delimiter=";", line_end="\r\n", decimal="comma", thousands=".", signs=True,
        dates="%d.%m.%Y %H:%M", line_breaks=True, empty_columns=2, repeats=20, broken=20, currencies=("EUR",),
    ),
    "an American spreadsheet": Style(
        encoding="utf-8-sig", line_end="\r\n", thousands=",", signs=True, dates="%m/%d/%Y %I:%M %p",
        line_breaks=True, blank_lines=True, repeats=20, broken=20,
    ),
    "a worldwide payment system": Style(
        source="stripe", encoding="utf-8-sig", thousands=",", line_breaks=True, repeats=30, broken=20,
        currencies=("USD", "EUR", "JPY"), empty_columns=1,
    ),
    "Unicode text of a spreadsheet": Style(
        encoding="utf-16", delimiter="\t", line_end="\r\n", decimal="comma", thousands="\u202f", signs=True,
        dates="%d/%m/%Y %H:%M", blank_lines=True, repeats=20, broken=20, currencies=("EUR", "JPY"),
    ),
}  # fmt: skip


@dataclass
class Made:
    """A file's bytes, what is in it, and the numbers of rows of each sort."""

    content: bytes
    rows: int
    repeats: int
    broken: int


def ledger(style: Style, count: int) -> list[Payment]:
    """`count` payments over a year and a half: some failed, some given back in whole or in part. Equal for equal arguments."""
    rng = random.Random(style.seed)
    made = []
    for number in range(count):
        currency = rng.choice(style.currencies)
        minor = rng.randrange(1, 3000) * 10 ** rng.randrange(3) * (1 if PLACES[currency] else 10)
        complete = rng.random() < 0.95
        back = rng.choice((0, 0, 0, 0, minor, minor // 2 or minor)) if complete else 0
        made.append(
            Payment(
                number, minor, back, currency, "complete" if complete else "failed",
                rng.randrange(max(2, count // 6)), rng.choice(PLANS), BEGAN + timedelta(hours=41 * number % 13_000, minutes=number),
            )
        )  # fmt: skip
    return made


def totals(payments: list[Payment]) -> Counter[tuple[str, str, str]]:
    """Minor units by (currency, kind, status)."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for payment in payments:
        sums[payment.currency, "payment", payment.status] += payment.minor
        if payment.refunded:
            sums[payment.currency, "refund", "complete"] += payment.refunded
    return sums


def write(style: Style, payments: list[Payment], *, shuffled: int | None = None) -> Made:
    """The file that a system of this style writes about `payments`, its rows in an order of their own where `shuffled` is a seed."""
    rng = random.Random(style.seed + 1)
    rows = [row for payment in payments for row in _rows(style, payment)]
    rows += [rng.choice(rows) for _ in range(style.repeats)]
    if shuffled is not None:
        random.Random(shuffled).shuffle(rows)
    for number in range(style.broken):
        rows.insert(rng.randrange(len(rows)), _broken(style, rng, number))
    header = [*_HEADERS[style.source], *(f"Unused {i}" for i in range(style.empty_columns))]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=style.delimiter, lineterminator=style.line_end)
    writer.writerow(header)
    for i, row in enumerate(rows):
        writer.writerow([*row, *[""] * style.empty_columns])
        if style.blank_lines and i % 7 == 0:
            out.write(style.line_end)
    return Made(out.getvalue().encode(style.encoding), len(rows), style.repeats, style.broken)


_PLAIN = "transaction_id,member_id,email,plan,kind,amount,currency,status,occurred_at,description"
_STRIPE = "id,Created date (UTC),Amount,Amount Refunded,Currency,Captured,Status,Description,Customer ID,Customer Email"
_HEADERS = {"plain": tuple(_PLAIN.split(",")), "stripe": tuple(_STRIPE.split(","))}


def _rows(style: Style, payment: Payment) -> list[list[str]]:
    text = f"For “{payment.plan}”,\nwith thanks" if style.line_breaks else f"For {payment.plan}"
    at = payment.at.strftime(style.dates)
    email = f"Member{payment.member}@Club.example"
    amount = money(style, payment.minor, payment.currency)
    if style.source == "stripe":
        status = "Failed" if payment.status == "failed" else "Refunded" if payment.refunded else "Paid"
        return [
            [
                f"ch_{payment.number}", at, amount, money(style, payment.refunded, payment.currency),
                payment.currency.lower(), "true", status, text, f"cus_{payment.member}", email,
            ]
        ]  # fmt: skip
    known = ["", email] if payment.member % 3 == 0 else [str(payment.member), email]
    rows = [
        [f"t{payment.number}", *known, payment.plan, "", amount, payment.currency, payment.status, at, text]
    ]
    if payment.refunded:
        back = "-" + money(style, payment.refunded, payment.currency)
        rows.append(
            [f"t{payment.number}r", *known, payment.plan, "", back, payment.currency, "", at, "Given back"]
        )
    return rows


def _broken(style: Style, rng: random.Random, number: int) -> list[str]:
    """A row with one cell that nothing can be made of, for a payment that is in the ledger too: it must not touch it."""
    payment = Payment(
        rng.randrange(50), 77_777_000, 0, style.currencies[0], "complete", number, "No such plan", BEGAN
    )
    row = _rows(replace(style, line_breaks=False), payment)[0]
    columns = {"plain": (0, 5, 6, 7, 8), "stripe": (0, 1, 2, 4, 6)}[style.source]
    column = columns[number % len(columns)]
    row[column] = "" if column == 0 else "31.02.2026 nonsense"
    return row


def money(style: Style, minor: int, currency: str) -> str:
    places = PLACES[currency]
    whole, fraction = divmod(minor, 10**places)
    written = f"{whole:,}".replace(",", style.thousands)
    if places:
        written += {"point": ".", "comma": ","}[style.decimal] + f"{fraction:0{places}}"
    return SIGNS[currency] + written if style.signs else written


@dataclass
class Books:
    """What a site's tables say, in terms of the ledger."""

    totals: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    transactions: list[tuple[object, ...]] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
