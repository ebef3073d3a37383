"""Whole exports, one file of each kind with faults of its own: what is reported and booked is what the ledger behind the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.db import user_transaction
from common.sites.imports import tables
from common.sites.imports.run import KINDS, FileReport, import_files, open_file
from tests.conftest import NOW, Database, Person, add_person
from tests.database.export_files import FOLDER, Export, exports, files, write

FILES = sorted(FOLDER.glob("*.csv"))
TABLES = ("memberships", "members", "subscriptions", "transactions")


@pytest.fixture(scope="module")
def person(module_database: Database) -> Person:
    return add_person(module_database, "owner@example.com")


@pytest.fixture(autouse=True)
def _empty(module_database: Database, person: Person) -> None:
    module_database.run(f"truncate {', '.join(TABLES)}, site_imports")


def imported(
    database: Database, person: Person, path: Path, currency: str
) -> tuple[FileReport, dict[int, str]]:
    rejected: dict[int, str] = {}
    opened = open_file(path, currency=currency, timezone="Europe/Berlin")
    with user_transaction(person.user_id, source=database.engine("app")) as connection:
        (report,) = import_files(
            connection,
            tables.Site(person.user_id, person.site_id, currency),
            [opened],
            NOW,
            rejected=lambda _file, row, reason: rejected.update({row.line: reason}),
        )
    return report, rejected


def booked(database: Database) -> dict[str, int]:
    rows = database.rows(
        "select currency, kind, status, sum(amount_minor) from transactions group by 1, 2, 3"
    )
    return {f"{currency} {kind} {status}": int(total) for currency, kind, status, total in rows}


def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """The tables, without what the database makes up."""
    return {
        table: [
            tuple(row)
            for row in database.rows(
                f"select to_jsonb(t) - 'id' - 'created_at' - 'member_id' - 'membership_id' from {table} t order by external_id"
            )
        ]
        for table in TABLES
    }


def test_the_files_are_what_their_ledger_writes() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == dict(files())


def test_there_is_one_of_each_kind_of_export() -> None:
    kinds = {json.loads(path.read_text())["kind"] for path in FOLDER.glob("*.report.json")}
    assert kinds == {kind.name for kind in KINDS if not kind.name.startswith("plain")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_export_is_imported_as_its_ledger_says(
    module_database: Database, person: Person, path: Path
) -> None:
    expected = json.loads(path.with_suffix(".report.json").read_text())
    report, rejected = imported(module_database, person, path, expected["currency"])
    assert report.kind == expected["kind"]
    assert (report.read, report.added, report.updated, report.unchanged, report.rejected) == (
        expected["read"],
        expected["added"],
        0,
        expected["unchanged"],
        len(expected["rejected"]),
    )
    assert sorted(rejected) == sorted(map(int, expected["rejected"]))
    for line, why in expected["rejected"].items():
        assert why in rejected[int(line)]
    assert booked(module_database) == expected["totals"]
    refunds = "external_id like '%-refund'"  # those that came in the row of their payment
    count = f"select count(*) from {expected['table']} where not {refunds}"
    assert module_database.scalar(count) == expected["added"]

    before = everything(module_database)
    again, _ = imported(module_database, person, path, expected["currency"])
    assert (again.added, again.updated, again.rejected) == (0, 0, report.rejected)
    assert everything(module_database) == before


@pytest.mark.parametrize("export", exports(), ids=lambda export: export.name)
def test_the_order_of_an_exports_rows_does_not_matter(
    module_database: Database, person: Person, export: Export, tmp_path: Path
) -> None:
    imported(module_database, person, FOLDER / f"{export.name}.csv", export.currency)
    in_order = everything(module_database)
    module_database.run(f"truncate {', '.join(TABLES)}, site_imports")
    content, expected = write(export, order=7)
    (tmp_path / "shuffled.csv").write_bytes(content)
    report, rejected = imported(module_database, person, tmp_path / "shuffled.csv", export.currency)
    assert report.added == expected["added"]
    assert sorted(rejected) == sorted(map(int, expected["rejected"]))
    assert everything(module_database) == in_order
