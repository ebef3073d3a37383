"""The import of large files, against a bare `COPY` of the rows that they became.

    python -m benchmarks.imports [--rows 1000000] [--kinds payments customers subscriptions] [--quick]

The import is the real one as the app role, from the file on disk to the commit. The bare copy writes the same rows (the people and plans
that the file names are among them) into the same tables, emptied, with their indexes and foreign keys, through the same driver; reading and
parsing are not in it. Peak memory is this process's.
"""

from __future__ import annotations

import csv
import random
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Engine

from benchmarks import report
from benchmarks.report import Row
from common.config import Settings
from common.db import copy_out, make_engine, user_transaction
from common.migrations import run as migrations
from common.sites.imports import tables
from common.sites.imports.run import FileReport, import_files, open_file
from local import postgres

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TABLES = ("memberships", "members", "subscriptions", "transactions")
PRICES = ("19.00", "29.00", "49.00", "99.00", "290.00", "1,290.00")


def write_file(path: Path, kind: str, rows: int, *, seed: int = 1) -> None:
    """A Stripe export of two years, one row in two hundred repeated: of payments, a customer for 20 of them and three in a hundred
    refunded; of customers; or of subscriptions, one for each customer. Equal for equal arguments."""
    rng = random.Random(seed)
    header, row_of = KINDS[kind]
    began, step = NOW - timedelta(days=730), timedelta(days=730) / rows
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        row: list[str] = []
        for i in range(rows):
            if not row or rng.random() >= 0.005:
                row = row_of(rng, i, rows, began + i * step)
            out.writerow(row)


def _payment(rng: random.Random, i: int, rows: int, at: datetime) -> list[str]:
    customer = rng.randrange(max(1, rows // 20))
    price = rng.choice(PRICES)
    refunded = rng.random() < 0.03
    return [
        f"ch_{i:09}",
        f"{at:%Y-%m-%d %H:%M:%S}",
        price,
        price if refunded else "0.00",
        "usd",
        "true",
        "Refunded" if refunded else "Paid",
        "Subscription update",
        f"{at + timedelta(days=5):%Y-%m-%d %H:%M:%S}" if refunded else "",
        f"cus_{customer:07}",
        f"Person {customer}",
        f"person{customer}@club.example",
    ]


def _customer(rng: random.Random, i: int, rows: int, at: datetime) -> list[str]:
    return [f"cus_{i:07}", "", f"Person{i}@Club.example", f"Person {i}", f"{at:%Y-%m-%d %H:%M}", "false"]


def _subscription(rng: random.Random, i: int, rows: int, at: datetime) -> list[str]:
    plan, ended = rng.randrange(6), rng.random() < 0.3
    return [
        f"sub_{i:07}",
        f"cus_{i:07}",
        f"Person {i}",
        f"person{i}@club.example",
        f"price_{plan}",
        f"Plan {plan}",
        "1",
        "usd",
        "month",
        PRICES[plan],
        "canceled" if ended else "active",
        f"{at:%Y-%m-%d %H:%M}",
        f"{at:%Y-%m-%d %H:%M}",
        f"{at + timedelta(days=60):%Y-%m-%d %H:%M}" if ended else "",
    ]


KINDS: dict[str, tuple[str, Callable[[random.Random, int, int, datetime], list[str]]]] = {
    "payments": (
        "id,Created date (UTC),Amount,Amount Refunded,Currency,Captured,Status,Description,Refunded date (UTC),Customer ID,"
        "Customer Description,Customer Email",
        _payment,
    ),
    "customers": ("id,Description,Email,Name,Created (UTC),Delinquent", _customer),
    "subscriptions": (
        "id,Customer ID,Customer Description,Customer Email,Plan,Product,Quantity,Currency,Interval,Amount,Status,Created (UTC),"
        "Start (UTC),Ended At (UTC)",
        _subscription,
    ),
}


def add_site(superuser: Engine) -> tables.Site:
    """A user with an empty site."""
    with superuser.begin() as connection:
        tenant = connection.scalar(
            sa.text("insert into tenants (name, tier) values ('bench', 'pro') returning id")
        )
        user = connection.scalar(
            sa.text("""
insert into users (tenant_id, email, issuer, subject) values (:tenant, 'b@example.com', 'local', 'b') returning id"""),
            {"tenant": tenant},
        )
        site = connection.scalar(
            sa.text(
                "insert into sites (user_id, name, currency, timezone) values (:user, 'Club', 'USD', 'UTC') returning id"
            ),
            {"user": user},
        )
    return tables.Site(user, site, "USD")


def imported(app: Engine, site: tables.Site, path: Path, progress: Callable[[int], None]) -> FileReport:
    """Import `path` as the command does; returns its report."""
    file = open_file(path, currency=site.currency, timezone="UTC")
    with user_transaction(site.user_id, source=app) as connection:
        return import_files(connection, site, [file], NOW, progress=lambda _, rows: progress(rows))[0]


def copied(superuser: Engine, folder: Path) -> int:
    """Write the site's rows to files in `folder` and empty their tables; returns their number."""
    count = 0
    with superuser.begin() as connection:
        for table in TABLES:
            with (folder / table).open("wb") as out:
                count += copy_out(connection, f"copy (select * from {table}) to stdout", out)
        connection.execute(sa.text(f"truncate {', '.join(TABLES)}, site_imports"))
    return count


def copied_back(superuser: Engine, folder: Path) -> None:
    """The bare copy."""
    with superuser.begin() as connection:
        for table in TABLES:
            with (folder / table).open("rb") as rows:
                connection.connection.cursor().execute(f"copy {table} from stdin", stream=rows)  # type: ignore[call-arg]


def peak_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(app: Engine, superuser: Engine, site: tables.Site, file: Path) -> list[Row]:
    """Import `file` into the empty site, copy what it became, and leave the site empty."""
    before = peak_mb()

    def progress(rows: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{file.stem}: {rows:,} rows", end="", file=sys.stderr, flush=True)

    began = time.perf_counter()
    read = imported(app, site, file, progress)
    importing = time.perf_counter() - began
    grown = peak_mb() - before
    count = copied(superuser, file.parent)
    began = time.perf_counter()
    copied_back(superuser, file.parent)
    copying = time.perf_counter() - began
    copied(superuser, file.parent)
    print(
        f"\n{file.stem}: {read.read:,} rows read, {read.added:,} added, {read.unchanged:,} unchanged, {count:,} written"
    )
    print(f"import {importing:.1f} s, {read.read / importing:,.0f} rows a second; bare COPY {copying:.1f} s")
    return [
        Row(
            f"speed of an import of {read.read:,} {file.stem}, against a bare COPY of what they became",
            copying / importing,
            "×",
            "≥ 0.333",
        ),
        Row(f"memory that it took more, {file.stem}", grown, "MB"),
    ]


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write for the runner."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000, help="of payments; a fifth of the others")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--quick", action="store_true", help="20,000 rows: no figure to keep")
    asked = arguments.parse_args(argv)
    rows = 20_000 if asked.quick else asked.rows
    found: list[Row] = []
    with postgres.throw_away() as server:
        postgres.create_database(server)
        config = Settings(database_url=server.url(), statement_timeout_ms=3_600_000)
        migrations.migrate(make_engine(config, "owner"))
        superuser = sa.create_engine(server.url())
        app, site = make_engine(config, "app"), add_site(superuser)
        for kind in asked.kinds:
            file = server.folder / f"{kind}.csv"
            write_file(file, kind, rows if kind == "payments" else rows // 5, seed=asked.seed)
            found += measure(app, superuser, site, file)
    report.publish(found, asked.json)


if __name__ == "__main__":
    main()
