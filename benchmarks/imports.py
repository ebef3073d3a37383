"""The import of a large file of payments, against a bare `COPY` of the rows that it became.

    python -m benchmarks.imports [--rows 1000000] [--seed 1]

The import is the real one as the app role, from the file on disk to the commit. The bare copy writes the same rows into the same table,
emptied, with its indexes and foreign keys, through the same driver; reading and parsing are not in it. Peak memory is this process's.
"""

from __future__ import annotations

import argparse
import csv
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Engine

from common.config import Settings
from common.db import copy_out, make_engine, user_transaction
from common.migrations import run as migrations
from common.sites.imports import tables
from common.sites.imports.run import FileReport, import_files, open_file
from local import postgres

NOW = datetime(2026, 6, 1, tzinfo=UTC)
_COLUMNS = "id,Created date (UTC),Amount,Amount Refunded,Currency,Captured,Status,Description,Refunded date (UTC),Customer ID"
HEADER = (*_COLUMNS.split(","), "Customer Description", "Customer Email")
PRICES = ("19.00", "29.00", "49.00", "99.00", "290.00", "1,290.00")


def write_payments(path: Path, rows: int, *, seed: int = 1) -> None:
    """A Stripe payments export of two years: a customer for 20 rows, three in a hundred refunded, one in two hundred repeated. Equal
    for equal arguments."""
    rng = random.Random(seed)
    began, step = NOW - timedelta(days=730), timedelta(days=730) / rows
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(HEADER)
        row: list[str] = []
        for i in range(rows):
            if not row or rng.random() >= 0.005:
                row = _payment(rng, i, rows, began + i * step)
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


def copied(superuser: Engine, path: Path) -> int:
    """Write the rows of `transactions` to `path` and empty the table; returns their number."""
    with superuser.begin() as connection, path.open("wb") as out:
        count = copy_out(connection, "copy (select * from transactions) to stdout", out)
        connection.execute(sa.text("truncate transactions"))
    return count


def copied_back(superuser: Engine, path: Path) -> None:
    """The bare copy."""
    with superuser.begin() as connection, path.open("rb") as rows:
        connection.connection.cursor().execute("copy transactions from stdin", stream=rows)  # type: ignore[call-arg]


def peak_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="memberintel-bench-") as name,
        postgres.server(Path(name), durable=False) as server,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        postgres.create_database(server)
        config = Settings(database_url=server.url(), statement_timeout_ms=3_600_000)
        migrations.migrate(make_engine(config, "owner"))
        superuser = sa.create_engine(server.url())
        measure(make_engine(config, "app"), superuser, add_site(superuser), folder, arguments)


def measure(
    app: Engine, superuser: Engine, site: tables.Site, folder: Path, arguments: argparse.Namespace
) -> None:
    file = folder / "payments.csv"
    write_payments(file, arguments.rows, seed=arguments.seed)
    before = peak_mb()

    def progress(rows: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{rows:,} rows", end="", file=sys.stderr, flush=True)

    began = time.perf_counter()
    report = imported(app, site, file, progress)
    importing = time.perf_counter() - began
    grown = peak_mb() - before
    count = copied(superuser, folder / "rows.copy")
    began = time.perf_counter()
    copied_back(superuser, folder / "rows.copy")
    copying = time.perf_counter() - began
    print(f"{report.read:,} rows read: {report.added:,} added, {report.unchanged:,} unchanged")
    print(
        f"import of {count:,} transactions: {importing:.1f} s, {count / importing:,.0f} a second, {grown:.0f} MB more memory"
    )
    print(f"bare COPY of the same rows: {copying:.1f} s, {count / copying:,.0f} a second")
    print(f"the import runs at {copying / importing:.0%} of the bare copy's speed (must: 33 %)")


if __name__ == "__main__":
    main()
