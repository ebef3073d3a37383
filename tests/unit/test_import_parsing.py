"""Reading cells, headers and files of many makes; nothing that can be read in two ways is guessed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.sites.imports.reading import Conventions, ImportRefused, plain_name, rows_of
from common.sites.imports.run import KINDS, OpenedFile, open_file
from common.sites.imports.values import Fault, parse_moment, parse_money, parse_period
from common.sites.money import digits, to_major, written

BERLIN = ZoneInfo("Europe/Berlin")
FIXTURES = Path(__file__).parent.parent / "fixtures" / "imports"


# ------------------------------------------------------------------ money


@pytest.mark.parametrize(
    ("text", "currency", "mark", "minor", "named"),
    [
        ("19", "USD", None, 1900, "USD"),
        ("19.9", "USD", None, 1990, "USD"),
        ("19,90", "EUR", None, 1990, "EUR"),
        ("1,234.50", "USD", None, 123450, "USD"),
        ("1.234,50", "EUR", None, 123450, "EUR"),
        ("1.234.567", "EUR", None, 123456700, "EUR"),
        ("1,234", "USD", "point", 123400, "USD"),
        ("1.234", "EUR", "comma", 123400, "EUR"),
        ("0.999", "KWD", None, 999, "KWD"),
        ("1.234", "KWD", "point", 1234, "KWD"),
        ("1 234,50 €", "USD", None, 123450, "EUR"),
        ("1\u202f234,50\u00a0€", "EUR", None, 123450, "EUR"),
        ("1'234.50", "CHF", None, 123450, "CHF"),
        ("$19.00", "CAD", None, 1900, "CAD"),
        ("US$19.00", "CAD", None, 1900, "USD"),
        ("GBP 5", "USD", None, 500, "GBP"),
        ("5.00 usd", "EUR", None, 500, "USD"),
        ("-5.00", "USD", None, -500, "USD"),
        ("-$5.00", "USD", None, -500, "USD"),
        ("$-5.00", "USD", None, -500, "USD"),
        ("(5.00)", "USD", None, -500, "USD"),
        ("5,00-", "EUR", None, -500, "EUR"),
        ("−5.00", "USD", None, -500, "USD"),
        ("¥5000", "JPY", None, 5000, "JPY"),
        ("5,000", "JPY", None, 5000, "JPY"),
        ("5000.00", "JPY", None, 5000, "JPY"),
        (".50", "USD", None, 50, "USD"),
        ("19.900", "USD", "point", 1990, "USD"),
    ],
)
def test_amounts_in_many_forms(text: str, currency: str, mark: str | None, minor: int, named: str) -> None:
    assert parse_money(text, currency, mark) == (minor, named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1.234", "thousands or a fraction"),
        ("12,345", "thousands or a fraction"),
        ("ten", "no amount"),
        ("1.2.3", "no amount"),
        ("12,34.5", "no amount"),
        ("1,23,456.00", "no amount"),
        ("19.999 x", "no amount"),
        ("5.005.5", "no amount"),
        ("0.005", "more decimal places"),
        ("9" * 30, "too large"),
    ],
)
def test_what_is_no_amount_or_could_be_two_is_a_fault(text: str, why: str) -> None:
    with pytest.raises(Fault, match=why):
        parse_money(text, "USD", None)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["USD", "JPY", "KWD"]))
def test_written_amounts_read_back(minor: int, currency: str) -> None:
    assert parse_money(written(minor, currency), currency, "point") == (minor, currency)


@given(st.text(max_size=30), st.sampled_from(["USD", "JPY"]), st.sampled_from([None, "comma", "point"]))
def test_any_text_is_an_amount_or_a_fault(text: str, currency: str, mark: str | None) -> None:
    try:
        minor, named = parse_money(text, currency, mark)  # type: ignore[arg-type]
    except Fault:
        return
    assert isinstance(minor, int)
    assert len(named) == 3


def test_major_units() -> None:
    assert [to_major(123450, c) for c in ("USD", "JPY", "KWD")] == [1234.5, 123450, 123.45]
    assert [digits(c) for c in ("EUR", "KRW", "BHD")] == [2, 0, 3]
    assert written(-50, "USD") == "USD -0.50"


# ------------------------------------------------------------------ dates


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-05-10", "2026-05-09T22:00"),
        ("2026-05-10 14:30:15", "2026-05-10T12:30:15"),
        ("2026-05-10T14:30", "2026-05-10T12:30"),
        ("2026-05-10T14:30:15.123Z", "2026-05-10T14:30:15"),
        ("2026-05-10 14:30:15 UTC", "2026-05-10T14:30:15"),
        ("2026-05-10T14:30:00-04:00", "2026-05-10T18:30"),
        ("2026-05-10 14:30:00 +0200", "2026-05-10T12:30"),
        ("2026/5/1", "2026-04-30T22:00"),
        ("31.12.2025", "2025-12-30T23:00"),
        ("1.2.2026 9:05", "2026-02-01T08:05"),
        ("25/04/2026", "2026-04-24T22:00"),
        ("05/05/2026", "2026-05-04T22:00"),
        ("May 10, 2026", "2026-05-09T22:00"),
        ("May 10, 2026 2:30 pm", "2026-05-10T12:30"),
        ("10 May 2026, 14:30", "2026-05-10T12:30"),
        ("10-May-2026", "2026-05-09T22:00"),
        ("September 3rd, 2025", "2025-09-02T22:00"),
        ("2026-01-15 12:00 am", "2026-01-14T23:00"),
    ],
)
def test_dates_in_many_forms(text: str, moment: str) -> None:
    assert parse_moment(text, BERLIN, "day-first") == datetime.fromisoformat(moment).replace(tzinfo=UTC)


def test_the_order_of_day_and_month_comes_from_the_file() -> None:
    assert parse_moment("03/04/26", UTC, "day-first") == datetime(2026, 4, 3, tzinfo=UTC)
    assert parse_moment("03/04/26", UTC, "month-first") == datetime(2026, 3, 4, tzinfo=UTC)
    with pytest.raises(Fault, match="day or month first"):
        parse_moment("03/04/2026", UTC, None)
    with pytest.raises(Fault, match="calendar"):
        parse_moment("25/04/2026", UTC, "month-first")


@pytest.mark.parametrize("text", ["", " ", "-", "N/A", "null", "Never", "0000-00-00", "0000-00-00 00:00:00"])
def test_empty_dates_are_none(text: str) -> None:
    assert parse_moment(text, UTC, None) is None


@pytest.mark.parametrize(
    "text", ["2026-02-30", "2026-13-01", "yesterday", "20260510", "46152", "2026-05-10 25:00", "13 pm"]
)
def test_what_is_no_date_is_a_fault(text: str) -> None:
    with pytest.raises(Fault):
        parse_moment(text, UTC, "day-first")


@given(st.text(max_size=30))
def test_any_text_is_a_date_none_or_a_fault(text: str) -> None:
    try:
        found = parse_moment(text, BERLIN, None)
    except Fault:
        return
    assert found is None or found.tzinfo is UTC


def test_periods() -> None:
    assert [
        parse_period(w) for w in ("Monthly", "annual", "3 months", "6 month", "Lifetime", "fortnight", "")
    ] == [
        "month",
        "year",
        "quarter",
        "half_year",
        "once",
        "unknown",
        "unknown",
    ]


# ------------------------------------------------------------------ files


def opened(path: Path, text: str | bytes, **options: object) -> OpenedFile:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_file(path, currency="USD", timezone="Europe/Berlin", **options)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.csv"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plain_memberships.csv", "plain memberships CSV"),
        ("plain_members.csv", "plain members CSV"),
        ("plain_subscriptions.csv", "plain subscriptions CSV"),
        ("plain_transactions.csv", "plain transactions CSV"),
        ("memberpress_members.csv", "MemberPress members export"),
        ("memberpress_transactions.csv", "MemberPress transactions export"),
        ("memberpress_subscriptions.csv", "MemberPress subscriptions export"),
        ("memberpress_memberships.csv", "MemberPress memberships export"),
        ("stripe_payments.csv", "Stripe payments export"),
        ("stripe_subscriptions.csv", "Stripe subscriptions export"),
        ("stripe_customers.csv", "Stripe customers export"),
    ],
)
def test_each_kind_is_recognised_from_its_header(name: str, kind: str) -> None:
    assert open_file(FIXTURES / name, currency="USD", timezone="UTC").kind.name == kind


def test_every_kind_has_an_example() -> None:
    assert len(list(FIXTURES.glob("*.csv"))) == len(KINDS)


def test_a_wrong_file_is_told_the_nearest_kind_and_what_it_lacks(file: Path) -> None:
    with pytest.raises(ImportRefused) as error:
        opened(file, "id,Created date (UTC),Amount,Amount Refunded,Status\n")
    assert "nearest is Stripe payments export, but these columns are missing: currency" in str(error.value)
    with pytest.raises(ImportRefused, match=r"are missing: currency \(is it 'Curency'\?\), status\. Its"):
        opened(file, "id,Created date (UTC),Amount,Amount Refunded,Curency\n")
    with pytest.raises(
        ImportRefused, match=r"Its header is: colour, weight\. Known are: plain memberships CSV"
    ):
        opened(file, "colour,weight\nred,3\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"PK\x03\x04rest", "spreadsheet"),
        (b"member_id,email,registered_at\n1,\x81\x8d@,2026-01-01\n", "neither"),
    ],
)
def test_what_is_no_csv_is_refused(file: Path, text: bytes, why: str) -> None:
    with pytest.raises(ImportRefused, match=why):
        opened(file, text)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_and_delimiters_are_found(file: Path, delimiter: str, encoding: str) -> None:
    lines = ["member_id,email,name,registered_at", '1,a@x.example,"Zoë Müller",2026-05-01']
    made = opened(file, "\r\n".join(lines).replace(",", delimiter).encode(encoding))
    assert made.layout.delimiter == delimiter
    assert [r.cells[2] for r in rows_of(file, made.layout)] == ["Zoë Müller"]
    assert any("Windows-1252" in note for note in made.notes) == (encoding == "cp1252")


def test_a_stated_separator_and_empty_lines_before_the_header(file: Path) -> None:
    made = opened(file, "\n\nsep=;\nmember_id;email;registered_at\n1;a@x.example;2026-01-01\n")
    assert [(r.line, r.cells[0]) for r in rows_of(file, made.layout)] == [(5, "1")]


def test_line_numbers_survive_quoted_line_breaks(file: Path) -> None:
    made = opened(
        file,
        'member_id,email,name,registered_at\n1,a@x.example,"two\nlines",2026-01-01\n\n2,b@x.example,,2026-01-01\n',
    )
    assert [r.line for r in rows_of(file, made.layout)] == [2, 5]


def test_rows_with_broken_quotes_or_too_many_fields_carry_their_fault(file: Path) -> None:
    made = opened(
        file,
        'member_id,email,registered_at\n1,a@x.example,2026-01-01,surplus\n2,"a"b,2026-01-01\n3,c@x.example,2026-01-01,,\n',
    )
    faults = {r.line: r.fault for r in rows_of(file, made.layout)}
    assert faults == {2: "4 fields under 3 headers", 3: "broken quotation marks", 4: None}


def test_headers_are_compared_without_case_spaces_or_underscores() -> None:
    assert {plain_name(h) for h in ("\ufeffFirst_Name", " first  name", "FIRST NAME")} == {"first name"}


# ------------------------------------------------------------------ conventions

HEADER = "transaction_id,amount,occurred_at\n"


def test_one_clear_value_settles_the_file_and_the_report_says_so(file: Path) -> None:
    made = opened(file, HEADER + "1,1.50,03/04/2026\n2,2.50,25/04/2026\n")
    assert made.setting.conventions == Conventions("day-first", "point")
    assert list(made.notes) == [
        "dates such as 03/04/2026 were read day first, as line 3, occurred at: 25/04/2026 shows"
    ]
    amounts = opened(file, HEADER.replace(",", ";") + "1;1.234;2026-05-01\n2;9,90;2026-05-01\n")
    assert amounts.setting.conventions.decimal_mark == "comma"
    assert "amounts such as 1.234 were read with a decimal comma" in amounts.notes[0]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("1,1.50,03/04/2026\n", "--dates"),
        ('1,"1,234",2026-05-01\n', "--decimal"),
        ("1,1.50,13/04/2026\n2,1.50,04/13/2026\n", "mixes two ways to write a date"),
        ('1,"1,234",2026-05-01\n2,"9,9",2026-05-01\n3,9.9,2026-05-01\n', "mixes two ways to write an amount"),
    ],
)
def test_what_nothing_settles_is_refused_with_the_option_that_would(file: Path, rows: str, why: str) -> None:
    with pytest.raises(ImportRefused, match=why):
        opened(file, HEADER + rows)


def test_what_is_no_amount_settles_nothing(file: Path) -> None:
    made = opened(file, HEADER + '1,"1,234",2026-05-01\n2,31.02.2026,2026-05-01\n3,1.50,2026-05-01\n')
    assert made.setting.conventions.decimal_mark == "point"


def test_a_stated_convention_wins(file: Path) -> None:
    made = opened(file, HEADER + '1,"1,234",03/04/2026\n', stated=Conventions("month-first", "comma"))
    assert made.setting.conventions == Conventions("month-first", "comma")


def test_a_wrong_zone_is_refused(file: Path) -> None:
    file.write_text(HEADER)
    with pytest.raises(ImportRefused, match="Europe/Berlin"):
        open_file(file, currency="USD", timezone="Berlin")
