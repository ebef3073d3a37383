"""Imports of whole files: every oddity of real exports alone and together, in any order, twice, and by the hundred thousand."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from benchmarks.imports import write_file
from common.db import user_transaction
from common.sites.imports import references, tables
from common.sites.imports.reading import Conventions
from common.sites.imports.run import FileReport, import_files, open_file
from tests.conftest import NOW, Database, Person, add_person
from tests.database.import_files import (
    COMBINED,
    FAULTS,
    Books,
    Made,
    Style,
    ledger,
    totals,
    write,
)

ALL = {**FAULTS, **COMBINED}
# What an import of each kind leaves one of for each row.
LARGE = {
    "payments": "select count(*) from transactions where kind = 'payment'",
    "customers": "select count(*) from members where registered_at is not null",
    "subscriptions": "select count(*) from subscriptions s join members m on m.id = s.member_id and m.registered_at = s.started_at",
}


@dataclass
class Importing:
    """A person's site, and what the imports into it rejected."""

    database: Database
    person: Person
    folder: Path
    rejected: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, made: Made) -> FileReport:
        path = self.folder / "export.csv"
        path.write_bytes(made.content)
        return self.file(path)

    def file(self, path: Path, **more: Any) -> FileReport:
        self.rejected.clear()
        opened = open_file(path, currency="USD", timezone="UTC", stated=Conventions())
        site = tables.Site(self.person.user_id, self.person.site_id, "USD")
        with user_transaction(self.person.user_id, source=self.database.engine("app")) as connection:
            (report,) = import_files(
                connection,
                site,
                [opened],
                NOW,
                rejected=lambda _file, row, reason: self.rejected.append((row.line, reason)),
                **more,
            )
        return report

    def books(self) -> Books:
        """The tables, without what a database makes up."""
        rows = self.database.rows("""
select t.external_id, t.kind, t.amount_minor, t.currency, t.status, t.occurred_at, m.email, p.name
from transactions t left join members m on m.id = t.member_id left join memberships p on p.id = t.membership_id order by 1""")
        sums: Counter[tuple[str, str, str]] = Counter()
        for row in rows:
            sums[row.currency, row.kind, row.status] += row.amount_minor
        return Books(
            sums,
            [tuple(row) for row in rows],
            [row[0] for row in self.database.rows("select email from members order by 1")],
            [row[0] for row in self.database.rows("select name from memberships order by 1")],
        )

    def empty(self) -> None:
        self.database.run("truncate transactions, subscriptions, members, memberships, site_imports")


@pytest.fixture(scope="module")
def importing(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Importing:
    person = add_person(module_database, "owner@example.com")
    return Importing(module_database, person, tmp_path_factory.mktemp("exports"))


@pytest.fixture(autouse=True)
def _empty(importing: Importing) -> None:
    importing.empty()


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_what_is_booked_is_what_the_ledger_says(importing: Importing, name: str) -> None:
    style = ALL[name]
    payments = ledger(style, 400)
    made = write(style, payments)
    report = importing(made)
    assert (report.read, report.rejected) == (made.rows, made.broken)
    assert report.unchanged == made.repeats
    assert len(importing.rejected) == made.broken
    assert all(reason for _, reason in importing.rejected)
    books = importing.books()
    assert books.totals == totals(payments)
    assert len(books.transactions) == len(payments) + sum(bool(p.refunded) for p in payments)
    assert books.members == sorted({f"member{p.member}@club.example" for p in payments})
    if style.source == "plain":
        assert books.plans == sorted({p.plan for p in payments})

    again = importing(made)
    assert (again.added, again.updated) == (0, 0)
    assert importing.books() == books


STYLES = st.builds(
    lambda chosen, currencies, signs, line_breaks, repeats, broken, seed: dataclasses.replace(
        ALL[chosen],
        currencies=tuple(currencies),
        signs=signs and ALL[chosen].source == "plain",
        line_breaks=line_breaks,
        repeats=repeats,
        broken=broken,
        seed=seed,
    ),
    st.sampled_from(sorted(ALL)),
    st.lists(st.sampled_from(["USD", "EUR", "JPY"]), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.booleans(),
    st.integers(0, 15),
    st.integers(0, 15),
    st.integers(0, 10_000),
)


@pytest.mark.slow
@hypothesis_settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(style=STYLES, order=st.integers(0, 1000))
def test_neither_order_nor_repetition_nor_broken_rows_change_the_books(
    importing: Importing, style: Style, order: int
) -> None:
    payments = ledger(style, 120)
    importing.empty()
    importing(write(dataclasses.replace(style, broken=0, repeats=0), payments))
    books = importing.books()
    assert books.totals == totals(payments)

    assert importing(write(style, payments)).added == 0
    assert importing.books() == books, "a repeat, or a row that was rejected"

    importing.empty()
    report = importing(write(style, payments, shuffled=order))
    assert report.rejected == style.broken
    assert importing.books() == books, "another order"


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
def test_memory_does_not_grow_with_the_file_and_progress_is_told(
    importing: Importing, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        references, "_MOST_KNOWN", 5_000
    )  # else it grows until a hundred thousand people are known
    peaks, told = [], []
    for count in (10_000, 40_000):
        importing.empty()
        path = tmp_path / f"{count}.csv"
        write_file(path, kind, count)
        tracemalloc.start()
        report = importing.file(path, progress=lambda _file, rows: told.append(rows))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert report.read == told[-1] == count
        assert (report.updated, report.rejected) == (0, 0)
        assert importing.database.scalar(LARGE[kind]) == report.added
        again = importing.file(path)
        assert (again.added, again.updated) == (0, 0)
    assert len(told) > 40_000 / 5_000
    assert peaks[1] < 1.5 * peaks[0] + 4_000_000
