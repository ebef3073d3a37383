"""Imports into the real database as the app role: what each kind leaves behind, that a repeat changes nothing, and what is rejected."""

from __future__ import annotations

import argparse
import csv
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from common.db import user_transaction
from common.errors import AppError
from common.sites.imports import run, tables, writer
from common.sites.imports.run import FileReport, import_files, open_file
from local import commands_site
from tests.conftest import NOW, Database, Person, add_person

FIXTURES = Path(__file__).parent.parent / "fixtures" / "imports"


@pytest.fixture
def person(database: Database) -> Person:
    made = add_person(database, "owner@example.com")
    database.run("update sites set data_as_of = null")
    return made


class Import:
    """Imports files for a person and keeps what was rejected."""

    def __init__(self, database: Database, person: Person) -> None:
        self.database, self.person = database, person
        self.rejected: list[tuple[int, str]] = []

    def __call__(self, *files: Path | str, **options: Any) -> list[FileReport]:
        paths = [f if isinstance(f, Path) else FIXTURES / f for f in files]
        opened = [open_file(p, currency="USD", timezone="Europe/Berlin") for p in paths]
        site = tables.Site(self.person.user_id, self.person.site_id, "USD")
        with user_transaction(self.person.user_id, source=self.database.engine("app")) as connection:
            return import_files(
                connection,
                site,
                opened,
                NOW,
                rejected=lambda file, row, reason: self.rejected.append((row.line, reason)),
                **options,
            )

    def rows(self, columns: str, table: str, order: str = "external_id") -> list[tuple[Any, ...]]:
        return [tuple(r) for r in self.database.rows(f"select {columns} from {table} order by {order}")]


@pytest.fixture
def importing(database: Database, person: Person) -> Import:
    return Import(database, person)


def counts(report: FileReport) -> tuple[int, int, int, int, int]:
    assert report.read == report.added + report.updated + report.unchanged + report.rejected
    return report.read, report.added, report.updated, report.unchanged, report.rejected


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


PLAIN = ("plain_transactions.csv", "plain_subscriptions.csv", "plain_members.csv", "plain_memberships.csv")


def test_the_plain_files_fill_the_four_tables_whatever_their_order(importing: Import) -> None:
    reports = importing(*PLAIN)
    assert [(r.kind.split()[1], counts(r)) for r in reports] == [
        ("memberships", (3, 3, 0, 0, 0)),
        ("members", (3, 3, 0, 0, 0)),
        ("subscriptions", (3, 3, 0, 0, 0)),
        ("transactions", (5, 5, 0, 0, 0)),
    ]
    assert importing.rows("external_id, name, price_minor, period, status", "memberships") == [
        ("circle", "Inner Circle", 99000, "year", "active"),
        ("lifetime", "Founders", 50000, "once", "inactive"),
        ("starter", "Starter Pack", 1900, "month", "active"),
    ]
    assert importing.rows("external_id, email, name, registered_at", "members") == [
        ("1", "anna@example.com", "Anna Abel", at("2026-01-10T08:00")),
        ("2", "ben@example.com", "Ben, the second", at("2026-02-10T23:00")),
        ("3", "cleo@example.com", None, at("2026-05-10T06:00")),
    ]
    assert importing.rows(
        "s.external_id, m.external_id, p.external_id, s.status, s.price_minor, s.period, s.ended_at",
        "subscriptions s join members m on m.id = s.member_id join memberships p on p.id = s.membership_id",
        "s.external_id",
    ) == [
        ("s1", "1", "starter", "active", 1900, "month", None),
        ("s2", "2", "starter", "cancelled", 1500, "month", at("2026-03-31T22:00")),
        ("s3", "3", "circle", "active", 99000, "year", None),
    ]
    assert importing.rows(
        "external_id, kind, amount_minor, currency, status, description", "transactions"
    ) == [
        ("t1", "payment", 1900, "USD", "complete", "First month"),
        ("t2", "payment", 1900, "USD", "complete", None),
        ("t3", "refund", 1900, "USD", "complete", "Given back"),
        ("t4", "payment", 1500, "USD", "failed", None),
        ("t5", "payment", 5000, "JPY", "complete", "Gift, with comma"),
    ]


@pytest.mark.parametrize(
    "files",
    [
        PLAIN,
        tuple(f"memberpress_{t}.csv" for t in ("members", "transactions", "subscriptions", "memberships")),
        tuple(f"stripe_{t}.csv" for t in ("payments", "subscriptions", "customers")),
    ],
)
def test_the_same_files_twice_change_nothing(importing: Import, files: tuple[str, ...]) -> None:
    tables = ("memberships", "members", "subscriptions", "transactions")
    importing(*files)
    before = [importing.rows("*", t) for t in tables]
    for report in importing(*files):
        assert (report.added, report.updated, report.unchanged) == (0, 0, report.read), report
    assert [importing.rows("*", t) for t in tables] == before


def test_three_systems_about_the_same_people_end_the_same_each_time(importing: Import) -> None:
    files = sorted(p.name for p in FIXTURES.glob("*.csv"))
    importing(*files)
    before = importing.rows("external_id, email, name, registered_at", "members")
    importing(*files)
    assert importing.rows("external_id, email, name, registered_at", "members") == before
    assert len({email for _, email, _, _ in before if email}) == sum(1 for _, email, _, _ in before if email)


def test_files_one_by_one_end_where_files_together_do(database: Database, importing: Import) -> None:
    """Members that a payment named first become the members of the members' file."""
    for name in PLAIN:
        importing(name)
    apart = importing.rows("external_id, email, name, registered_at", "members")
    plans = importing.rows("external_id, name, price_minor", "memberships")
    database.run("delete from memberships")
    database.run("delete from members")
    importing(*PLAIN)
    assert importing.rows("external_id, email, name, registered_at", "members") == apart
    assert importing.rows("external_id, name, price_minor", "memberships") == plans


def test_memberpress_exports(importing: Import) -> None:
    reports = importing(
        *(f"memberpress_{t}.csv" for t in ("members", "transactions", "subscriptions", "memberships"))
    )
    assert [counts(r)[1:] for r in reports] == [(3, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0)]
    assert importing.rows("external_id, name, price_minor, period, status", "memberships") == [
        ("mp-88", "Growth Circle", 2900, "month", "active"),
        ("mp-89", "Founders", 50000, "once", "inactive"),
        ("mp-90", "Summer Term", 7500, "quarter", "active"),
    ]
    assert importing.rows("external_id, name, registered_at", "members") == [
        ("mp-12", "Anna Abel", at("2026-04-01T09:58")),
        ("mp-13", "ben", at("2026-03-05T22:30")),
        ("mp-14", "Cleo Cole", at("2026-02-01T12:00")),
    ]
    assert importing.rows("external_id, status, price_minor, period, ended_at", "subscriptions") == [
        ("mp-31", "active", 2900, "month", None),
        ("mp-32", "cancelled", 2900, "month", at("2026-04-05T23:59:59")),
        ("mp-txn-31", "active", 50000, "once", None),
    ]
    assert importing.rows("external_id, kind, amount_minor, status, occurred_at", "transactions") == [
        ("mp-501", "payment", 2900, "complete", at("2026-04-01T10:00")),
        ("mp-502", "payment", 2900, "complete", at("2026-05-01T10:00")),
        ("mp-502-refund", "refund", 2900, "complete", at("2026-05-01T10:00")),
        ("mp-503", "payment", 2900, "complete", at("2026-03-05T22:30")),
        ("mp-504", "payment", 2900, "failed", at("2026-03-05T22:29")),
    ]
    assert any("1 refunds come without a day of their own" in note for note in reports[3].notes)
    assert any("1 people came without a day of registration" in note for note in reports[3].notes)


def test_a_memberpress_subscription_that_was_only_confirmed_is_no_fault(
    importing: Import, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "id,trans_num,product_name,total,status,created_at,user_email\n"
        "7,mp-txn-7,Growth Circle,0.00,confirmed,2026-05-01 10:00:00,a@x.example\n"
    )
    assert counts(importing(file)[0]) == (1, 1, 0, 0, 0)
    assert importing.rows("amount_minor, status", "transactions") == [(0, "complete")]


def test_memberships_as_memberpress_imports_them_are_known_by_their_name(
    importing: Import, tmp_path: Path
) -> None:
    """Its importer's columns have no id: the plan of that name is meant, whichever file comes first."""
    file = tmp_path / "plans.csv"
    file.write_text(
        "name,price,period,period_type,trial\nGrowth Circle,35.00,1,months,0\nEvening,9.00,1,weeks,0\n"
    )
    assert counts(importing(file)[0]) == (2, 2, 0, 0, 0)
    assert counts(importing("memberpress_memberships.csv")[0]) == (3, 2, 1, 0, 0)
    assert importing.rows("external_id, name, price_minor, period", "memberships")[0] == (
        "mp-88",
        "Growth Circle",
        2900,
        "month",
    )
    assert counts(importing(file)[0]) == (2, 0, 1, 1, 0)
    assert importing.rows("external_id, price_minor", "memberships where name = 'Growth Circle'") == [
        ("mp-88", 3500)
    ]
    assert counts(importing(file)[0]) == (2, 0, 0, 2, 0)


def test_payments_of_stripes_test_mode_are_no_money(importing: Import, tmp_path: Path) -> None:
    file = tmp_path / "payments.csv"
    file.write_text(
        "id,Created date (UTC),Amount,Amount Refunded,Currency,Mode,Status\n"
        "ch_1,2026-05-01 10:00:00,19.00,0.00,usd,Live,Paid\n"
        "ch_2,2026-05-01 10:00:00,19.00,0.00,usd,Test,Paid\n"
    )
    assert counts(importing(file)[0]) == (2, 1, 0, 0, 1)
    assert importing.rejected == [(3, "mode: a payment of the test mode is no money")]


def test_stripe_exports(importing: Import) -> None:
    reports = importing(*(f"stripe_{t}.csv" for t in ("payments", "subscriptions", "customers")))
    assert [counts(r)[1:] for r in reports] == [(2, 0, 0, 0), (3, 0, 0, 0), (5, 0, 0, 0)]
    assert importing.rows(
        "external_id, kind, amount_minor, currency, status, occurred_at", "transactions"
    ) == [
        ("ch_A1", "payment", 129000, "USD", "complete", at("2026-05-01T09:12:33")),
        ("ch_B1", "payment", 2900, "USD", "complete", at("2026-05-02T18:40:02")),
        ("ch_B1-refund", "refund", 2900, "USD", "complete", at("2026-05-08T11:00")),
        ("ch_C1", "payment", 4900, "JPY", "complete", at("2026-05-03T07:05:10")),
        ("ch_D1", "payment", 8900, "USD", "failed", at("2026-05-04T11:00")),
        ("ch_E1", "payment", 5000, "EUR", "complete", at("2026-05-05T11:00")),
        ("ch_E1-refund", "refund", 2000, "EUR", "complete", at("2026-05-05T11:00")),
    ]
    assert importing.rows(
        "external_id, status, price_minor, currency, period, ended_at", "subscriptions"
    ) == [
        ("sub_A", "active", 129000, "USD", "year", None),
        ("sub_B", "cancelled", 5800, "USD", "month", at("2026-05-08T11:00")),
        ("sub_C", "trialing", 2900, "USD", "month", None),
    ]
    assert importing.rows("external_id, name", "members") == [
        ("cus_A", "Anna Abel"),
        ("cus_B", "Ben from the fair"),
        ("cus_C", None),
        ("cus_D", None),
    ]


def test_one_address_is_one_person_in_two_systems(importing: Import) -> None:
    """Whichever comes first keeps its id; the other fills in and replaces nothing."""
    importing("stripe_payments.csv")
    importing("memberpress_members.csv")
    assert importing.rows("external_id, email, name, registered_at", "members") == [
        ("cleo@example.com", "cleo@example.com", None, at("2026-05-03T07:05:10")),
        ("cus_A", "anna@example.com", "Anna Abel", at("2026-04-01T09:58")),
        ("cus_B", "ben@example.com", "ben", at("2026-03-05T22:30")),
        ("cus_D", None, None, at("2026-05-04T11:00")),
    ]


def test_a_later_export_updates(importing: Import, tmp_path: Path) -> None:
    importing("stripe_payments.csv")
    later = tmp_path / "later.csv"
    text = (FIXTURES / "stripe_payments.csv").read_text()
    later.write_text(
        text.replace('"1,290.00",0.00,usd,true', '"1,290.00",290.00,usd,true', 1).replace("Failed", "Paid")
    )
    report = importing(later)[0]
    assert counts(report) == (5, 0, 2, 3, 0)
    assert importing.rows("amount_minor", "transactions where external_id = 'ch_A1-refund'") == [(29000,)]


def members_file(path: Path, *rows: str) -> Path:
    path.write_text("member_id,email,name,registered_at\n" + "\n".join(rows) + "\n")
    return path


def test_rejected_rows_have_their_line_and_reason_and_the_others_are_imported(
    importing: Import, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "transaction_id,amount,currency,status,occurred_at\n"
        "1,10.00,USD,complete,2026-05-01\n"
        "2,ten,USD,complete,2026-05-01\n"
        "3,10.00,dollars,complete,2026-05-01\n"
        "4,10.00,USD,odd,2026-05-01\n"
        "5,10.00,USD,complete,2026-02-30\n"
        "6,10.00,USD,complete,\n"
        ",10.00,USD,complete,2026-05-01\n"
        "8,10.005,USD,complete,2026-05-01\n"
    )
    assert counts(importing(file)[0]) == (8, 1, 0, 0, 7)
    assert [(line, reason.split(":")[0]) for line, reason in importing.rejected] == [
        (3, "amount"),
        (4, "'dollars' is no currency code such as USD"),
        (5, "status"),
        (6, "occurred at"),
        (7, "occurred at is empty"),
        (8, "transaction id is empty"),
        (9, "amount"),
    ]


def test_repeated_rows_count_once_and_the_last_word_wins(importing: Import, tmp_path: Path) -> None:
    rows = [
        "1,a@x.example,Anna,2026-05-01",
        "1,a@x.example,Anna,2026-05-01",
        "1,a@x.example,Anna A,2026-05-01",
    ]
    report = importing(members_file(tmp_path / "m.csv", *rows))[0]
    assert counts(report) == (3, 1, 1, 1, 0)
    assert importing.rows("name", "members") == [("Anna A",)]


def test_an_analysis_that_saw_no_row_of_a_running_import_does_not_mislead_it(
    importing: Import, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As autovacuum's does, in the middle of a file: it takes the table for empty, and every index for as good as any other."""
    monkeypatch.setattr(run, "_BATCH", 100)
    owner = database.engine("owner")
    counted = sa.text("select reltuples from pg_class where oid = cast('members' as regclass)")
    seen: list[float] = []

    def progress(_file: object, read: int) -> None:
        if read == 301:
            with owner.begin() as connection:
                connection.execute(sa.text("analyze members"))
                seen.append(connection.scalar(counted))

    rows = [f"{n},p{n}@x.example,Somebody,2026-05-01" for n in range(1000)]
    assert counts(importing(members_file(tmp_path / "m.csv", *rows), progress=progress)[0])[1] == 1000
    assert seen == [0], "the state that misleads"
    with owner.connect() as connection:
        assert connection.scalar(counted) > 0


def test_batches_make_no_difference(
    importing: Import, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    rows = [
        f"{n},p{n % 30}@x.example,N{rng.randint(1, 3)},2026-05-{rng.randint(1, 9):02}"
        for n in (rng.randint(1, 40) for _ in range(300))
    ]
    file = members_file(tmp_path / "m.csv", *rows)
    found = []
    for size in (1, 7, 2000):
        monkeypatch.setattr(run, "_BATCH", size)
        database.run("delete from members")
        importing(file)
        found.append(importing.rows("external_id, email, name, registered_at", "members"))
    assert found[0] == found[1] == found[2]


def payments_file(path: Path, *rows: tuple[int, str]) -> Path:
    """Payments on these days of May by these people."""
    lines = [
        f"{path.stem}{n},10.00,2026-05-{day:02}T10:00:00Z,{who}@x.example"
        for n, (day, who) in enumerate(rows)
    ]
    path.write_text("transaction_id,amount,occurred_at,email\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("size", [1, 2, 5000])
def test_who_comes_without_a_day_of_registration_came_with_their_first_payment(
    importing: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """In whatever order and batch the payments come; a day that a file of people gave stays."""
    monkeypatch.setattr(run, "_BATCH", size)
    first = payments_file(
        tmp_path / "p.csv", (4, "a"), (2, "a"), (9, "b"), (3, "a"), (1, "c"), (5, "c"), (8, "b")
    )
    (report,) = importing(first)
    assert any(note.startswith("3 people came without a day of registration") for note in report.notes)
    assert importing.rows("email, registered_at", "members") == [
        ("a@x.example", at("2026-05-02T10:00")),
        ("b@x.example", at("2026-05-08T10:00")),
        ("c@x.example", at("2026-05-01T10:00")),
    ]
    people = members_file(tmp_path / "people.csv", "7,d@x.example,Dora,2026-05-06T10:00:00Z")
    importing(people, payments_file(tmp_path / "q.csv", (6, "d"), (5, "d"), (4, "e"), (3, "e")))
    importing(payments_file(tmp_path / "r.csv", (1, "d"), (1, "a")))
    assert importing.rows("email, registered_at", "members", "email") == [
        ("a@x.example", at("2026-05-02T10:00")),
        ("b@x.example", at("2026-05-08T10:00")),
        ("c@x.example", at("2026-05-01T10:00")),
        ("d@x.example", at("2026-05-06T10:00")),
        ("e@x.example", at("2026-05-03T10:00")),
    ]


def test_who_pays_by_an_old_address_keeps_the_day_that_a_file_of_people_gave(
    importing: Import, tmp_path: Path
) -> None:
    importing(members_file(tmp_path / "m.csv", "a@x.example,new@x.example,Anna,2026-05-01T10:00:00Z"))
    importing(payments_file(tmp_path / "p.csv", (9, "a"), (8, "a")))
    assert importing.rows("external_id, email, registered_at", "members") == [
        ("a@x.example", "new@x.example", at("2026-05-01T10:00"))
    ]
    assert importing.rows("count(*)", "transactions t join members m on m.id = t.member_id", "1") == [(2,)]


def test_a_missing_value_never_replaces_a_known_one(importing: Import, tmp_path: Path) -> None:
    importing(members_file(tmp_path / "a.csv", "1,a@x.example,Anna,2026-05-01"))
    report = importing(members_file(tmp_path / "b.csv", "1,,,"))[0]
    assert counts(report) == (1, 0, 0, 1, 0)
    assert importing.rows("email, name", "members") == [("a@x.example", "Anna")]


def test_the_sites_data_reaches_to_the_latest_moment_that_is_not_in_the_future(
    importing: Import, database: Database, tmp_path: Path
) -> None:
    importing(
        members_file(tmp_path / "a.csv", "1,a@x.example,,2026-05-01 10:00", "2,b@x.example,,2031-01-01")
    )
    assert database.scalar("select data_as_of from sites") == at("2026-05-01T08:00")
    importing(members_file(tmp_path / "b.csv", "3,c@x.example,,2026-04-01"))
    assert database.scalar("select data_as_of from sites") == at("2026-05-01T08:00"), "never back"
    importing(
        members_file(tmp_path / "c.csv", "3,c@x.example,,2026-04-01"), exported_at=NOW - timedelta(hours=1)
    )
    assert database.scalar("select data_as_of from sites") == NOW - timedelta(hours=1)
    assert database.rows(
        "select source, rows_read, rows_added, rows_unchanged from site_imports order by created_at"
    ) == [
        ("plain members CSV", 2, 2, 0),
        ("plain members CSV", 1, 1, 0),
        ("plain members CSV", 1, 0, 1),
    ]


def test_a_failure_half_way_leaves_nothing(importing: Import, database: Database, monkeypatch: Any) -> None:
    real = writer.write

    def fail_on_transactions(connection: Any, site: Any, records: Any, known: Any) -> Any:
        if any(isinstance(r, run.Transaction) for r in records):
            raise OSError("the disk is gone")
        return real(connection, site, records, known)

    monkeypatch.setattr(run, "write", fail_on_transactions)
    with pytest.raises(OSError, match="disk"):
        importing(*PLAIN)
    for table in ("memberships", "members", "subscriptions", "site_imports"):
        assert database.scalar(f"select count(*) from {table}") == 0


def test_another_sites_rows_with_the_same_ids_are_left_alone(importing: Import, database: Database) -> None:
    importing(*PLAIN)
    before = importing.rows("*", "members", "id")
    other = Import(database, add_person(database, "other@example.com"))
    assert counts(other(*PLAIN)[0])[:2] == (3, 3)
    after = importing.rows("*", "members", "id")
    assert set(before) < set(after)
    assert len(after) == 2 * len(before)


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """The reader never holds the file: its peak does not grow with the number of rows."""
    import tracemalloc

    peaks = []
    for count in (2_000, 40_000):
        path = tmp_path / f"{count}.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["member_id", "email", "name", "registered_at"])
            rows.writerows([i, f"p{i}@x.example", "Somebody", "2026-05-01 10:00"] for i in range(count))
        tracemalloc.start()
        opened = open_file(path, currency="USD", timezone="UTC")
        assert sum(1 for _ in run.rows_of(path, opened.layout)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 3_000_000


# ------------------------------------------------------------------ the command


class Command:
    """`memberintel import-site`, as the command line would call it."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder = database, folder

    def __call__(self, *words: str | Path, user: str = "owner@example.com", site: str = "Club") -> int:
        parser = argparse.ArgumentParser()
        commands_site.add_parsers(parser.add_subparsers())
        arguments = parser.parse_args(["import-site", "--user", user, "--site", site, *map(str, words)])
        return commands_site.import_site(
            arguments, owner=self.database.engine("owner"), app=self.database.engine("app"), now=NOW
        )

    def copy(self, name: str) -> Path:
        return Path(shutil.copy(FIXTURES / name, self.folder))


@pytest.fixture
def command(database: Database, person: Person, tmp_path: Path) -> Command:
    return Command(database, tmp_path)


def test_the_command_reports_each_file_and_keeps_rejected_rows_for_mending(
    command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = members_file(tmp_path / "m.csv", "1,a@x.example,Anna,2026-05-01", "2,b@x.example,Ben,2026-02-30")
    assert command(file) == 0
    out = capsys.readouterr().out
    assert "m.csv: plain members CSV" in out
    assert "2 rows read: 1 added, 0 updated, 0 unchanged, 1 rejected" in out
    assert "rejected line 3: registered at: '2026-02-30' is no day in the calendar" in out
    mended = tmp_path / "m.rejected.csv"
    assert mended.read_text().splitlines()[1].startswith("2,b@x.example,Ben,2026-02-30,3,")
    mended.write_text(mended.read_text().replace("2026-02-30,", "2026-02-28,"))
    assert command(mended) == 0
    assert command.database.scalar("select count(*) from members") == 2


def test_a_dry_run_reports_the_same_and_writes_nothing(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [command.copy(name) for name in PLAIN]
    command("--dry-run", *files)
    dry = capsys.readouterr().out
    for table in ("memberships", "members", "subscriptions", "transactions", "site_imports"):
        assert command.database.scalar(f"select count(*) from {table}") == 0
    command(*files)
    assert capsys.readouterr().out.splitlines()[:-1] == dry.splitlines()[:-1]


def test_a_new_site_needs_its_currency_and_zone_and_keeps_them(command: Command) -> None:
    file = command.copy("plain_members.csv")
    with pytest.raises(AppError, match="--currency and --timezone"):
        command(file, site="Studio")
    command(file, "--currency", "eur", "--timezone", "Europe/Paris", site="Studio")
    assert command.database.rows("select currency, timezone from sites where name = 'Studio'") == [
        ("EUR", "Europe/Paris")
    ]
    with pytest.raises(AppError, match="has EUR, which --currency USD contradicts"):
        command(file, "--currency", "USD", site="Studio")


@pytest.mark.parametrize(
    ("words", "user", "why"),
    [
        (["nowhere.csv"], "owner@example.com", "nowhere.csv cannot be read: No such file"),
        (["nowhere.csv"], "nobody@example.com", "no user nobody@example.com"),
        (["--exported-at", "2031-01-01", "nowhere.csv"], "owner@example.com", "has passed"),
        (["--timezone", "Berlin", "nowhere.csv"], "owner@example.com", "no time zone 'Berlin'"),
    ],
)
def test_the_command_fails_with_one_clear_line(
    command: Command, words: list[str], user: str, why: str
) -> None:
    with pytest.raises(AppError, match=why) as error:
        command(*words, user=user)
    assert "\n" not in str(error.value)
