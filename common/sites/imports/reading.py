"""Reading a delimited file of unknown make as a stream of rows: encoding, delimiter, header, line numbers.

Memory does not grow with the file: it is read twice, once to settle what only the whole of it can tell, once to import.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from common.errors import InvalidRequest
from common.sites.imports.values import (
    EMPTY,
    DateOrder,
    DecimalMark,
    Fault,
    date_order_of,
    decimal_mark_shown,
    parse_currency,
    parse_moment,
    parse_money,
)
from common.text import clean_text

_BLOCK = 1 << 20


class ImportRefused(InvalidRequest):
    """The file cannot be imported as it is."""

    type = "import-refused"


@dataclass(frozen=True)
class Layout:
    """How a file is written down: what is needed to read it again from the start."""

    encoding: str
    delimiter: str
    skip_lines: int
    header: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Conventions:
    """How dates and amounts of a file are meant: None where no value needs it. `utc` says that times without a zone are in UTC."""

    date_order: DateOrder | None = None
    decimal_mark: DecimalMark | None = None


@dataclass(frozen=True)
class Setting:
    """What a file does not say: the site's currency and zone, and the file's conventions."""

    currency: str
    zone: tzinfo
    conventions: Conventions = field(default_factory=Conventions)


@dataclass(slots=True)
class Row:
    """A data row. Cells are without space around them and asked for by header names as `plain_name` writes them; the first that is
    there and not empty counts.

    Every reader raises Fault with the column's name where the cell cannot be read.
    """

    line: int
    cells: dict[str, str]
    setting: Setting

    def text(self, *names: str) -> str | None:
        """The cell, None if empty."""
        for name in names:
            if value := self.cells.get(name):
                return value
        return None

    def needed(self, *names: str) -> str:
        """The same where empty is a fault."""
        value = self.text(*names)
        if value is None:
            raise Fault(f"{names[0]} is empty")
        return value

    def moment(self, *names: str) -> datetime | None:
        """A date or time; in UTC where the header says so, else in the zone of the setting."""
        for name in names:
            if value := self.text(name):
                zone = UTC if name.endswith("(utc)") else self.setting.zone
                try:
                    return parse_moment(value, zone, self.setting.conventions.date_order)
                except Fault as fault:
                    raise Fault(f"{name}: {fault}") from None
        return None

    def needed_moment(self, *names: str) -> datetime:
        found = self.moment(*names)
        if found is None:
            raise Fault(f"{names[0]} is empty")
        return found

    def currency(self, *names: str) -> str:
        """The row's currency, else the site's."""
        value = self.text(*names)
        return parse_currency(value) if value else self.setting.currency

    def money(self, currency: str, *names: str) -> tuple[int, str] | None:
        """(minor units, currency) of an amount, None if empty."""
        for name in names:
            if (value := self.text(name)) and value.lower() not in EMPTY:
                try:
                    return parse_money(value, currency, self.setting.conventions.decimal_mark)
                except Fault as fault:
                    raise Fault(f"{name}: {fault}") from None
        return None

    def email(self, *names: str) -> str | None:
        """An address in small letters; what has no @ is no address."""
        value = self.text(*names)
        return value.lower() if value and "@" in value else None


def plain_name(header: str) -> str:
    """A header as it is compared: small letters, single spaces for any run of spaces and underscores."""
    return " ".join(re.sub(r"[_\s]+", " ", clean_text(header).strip("\ufeff \"'")).lower().split())


def layout_of(path: Path) -> Layout:
    """Encoding, delimiter and header of the file. Raises ImportRefused for what is empty or not text."""
    digest = hashlib.sha256()
    decoders = {"utf-8": codecs.getincrementaldecoder("utf-8")()}
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            while block := file.read(_BLOCK):
                digest.update(block)
                if "utf-8" in decoders:
                    try:
                        decoders["utf-8"].decode(block)
                    except UnicodeDecodeError:
                        del decoders["utf-8"]
    except OSError as error:
        raise ImportRefused(f"{path.name} cannot be read: {error.strerror}.") from None
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        encoding = "utf-16"
    elif start[:2] == b"PK":
        raise ImportRefused(f"{path.name} is a spreadsheet or an archive: save it as CSV first.")
    else:
        encoding = "utf-8-sig" if decoders else "cp1252"
    return _header_of(path, encoding, digest.hexdigest())


def _header_of(path: Path, encoding: str, sha256: str) -> Layout:
    try:
        with path.open(encoding=encoding, newline="") as file:
            skip = 0
            while (line := file.readline(_BLOCK)) and not line.strip(" \t\r\n\ufeff;,"):
                skip += 1
            stated = re.fullmatch(r"sep=(.)", line.strip(), re.IGNORECASE)
            if stated:
                line, skip = file.readline(_BLOCK), skip + 1
            delimiter = stated[1] if stated else max(",;\t|", key=re.sub(r'"[^"]*"', "", line).count)
            header = next(csv.reader([line], delimiter=delimiter), [])
    except UnicodeError:
        raise ImportRefused(f"{path.name} is neither UTF-8, UTF-16 nor Windows-1252 text.") from None
    if not any(header):
        raise ImportRefused(f"{path.name} is empty.")
    return Layout(encoding, delimiter, skip, tuple(header), sha256)


class RawRow(NamedTuple):
    """A data row as it stands in the file, or what is wrong with it."""

    line: int
    cells: list[str]
    fault: str | None = None


def rows_of(path: Path, layout: Layout) -> Iterator[RawRow]:
    """The data rows, with the number of the line each begins on; empty lines are passed over."""
    with path.open(encoding=layout.encoding, newline="") as file:
        for _ in range(layout.skip_lines + 1):
            file.readline()
        before, width = layout.skip_lines + 1, len(layout.header)
        reader = csv.reader(file, delimiter=layout.delimiter, strict=True)
        line = before + 1
        while True:
            try:
                for cells in reader:
                    text = "".join(cells)
                    if text and not text.isspace():
                        too_many = len(cells) > width and any(cell.strip() for cell in cells[width:])
                        fault = f"{len(cells)} fields under {width} headers" if too_many else None
                        # What is printable has nothing to clean away; most rows are.
                        yield RawRow(
                            line, cells if text.isprintable() else [clean_text(c) for c in cells], fault
                        )
                    line = before + reader.line_num + 1
                return
            except csv.Error:
                last = before + reader.line_num
                more = f", up to line {last}" if last > line else ""
                yield RawRow(line, [], f"broken quotation marks{more}")
                line = last + 1
            except UnicodeError:
                raise ImportRefused(f"{path.name}, after line {line}: not {layout.encoding} text.") from None


def cells_of(raw: RawRow, header: Sequence[str]) -> dict[str, str]:
    """The cells, stripped, under their plain header names; of two columns with one name the first that is not empty."""
    stripped = [cell.strip() for cell in raw.cells]
    cells = dict(zip(header, stripped, strict=False))
    if len(cells) == min(len(header), len(stripped)):
        return cells
    cells.clear()
    for name, value in zip(header, stripped, strict=False):
        if not cells.get(name):
            cells[name] = value
    return cells


Convention = TypeVar("Convention", DateOrder, DecimalMark)


def settle(
    path: Path, layout: Layout, dates: Sequence[str], amounts: Sequence[str], stated: Conventions
) -> tuple[Conventions, list[str]]:
    """The file's conventions from all its values, and sentences that say what settled them. What was `stated` wins.

    Raises ImportRefused where a value could be read in two ways and nothing settles it.
    """
    header = [plain_name(h) for h in layout.header]
    seen: dict[str, dict[str, str]] = {"date": {}, "amount": {}}
    showing = [
        (i, name, what, shows)
        for what, names, shows in (("date", dates, date_order_of), ("amount", amounts, decimal_mark_shown))
        for i, name in enumerate(header)
        if name in names
    ]
    for raw in rows_of(path, layout):
        for i, name, what, shows in showing:
            value = raw.cells[i].strip() if i < len(raw.cells) else ""
            if value and (shown := shows(value)) is not None:
                seen[what].setdefault(shown, f"line {raw.line}, {name}: {value[:40]}")
    notes: list[str] = []
    order: DateOrder | None = stated.date_order or _settled(
        path, "date", seen["date"], ("day-first", "month-first"), notes
    )
    mark: DecimalMark | None = stated.decimal_mark or _settled(
        path, "amount", seen["amount"], ("comma", "point"), notes
    )
    return Conventions(order, mark), notes


def _settled(
    path: Path,
    what: Literal["date", "amount"],
    seen: dict[str, str],
    choices: tuple[Convention, Convention],
    notes: list[str],
) -> Convention | None:
    option = "--dates day-first|month-first" if what == "date" else "--decimal comma|point"
    shown = [choice for choice in choices if choice in seen]
    if len(shown) == 2 and (what == "date" or "either" in seen):
        raise ImportRefused(
            f"{path.name} mixes two ways to write a{'n' if what == 'amount' else ''} {what} ({seen[shown[0]]}; {seen[shown[1]]}). "
            f"Say {option}; rows that do not fit are then rejected."
        )
    if "either" not in seen:
        return shown[0] if len(shown) == 1 else None
    if not shown:
        raise ImportRefused(
            f"{path.name}, {seen['either']} can be read in two ways, and no other {what} in the file settles it. Say {option}."
        )
    notes.append(
        f"{what}s such as {seen['either'].split(': ', 1)[1]} were read {_read_as(shown[0])}, as {seen[shown[0]]} shows"
    )
    return shown[0]


def _read_as(choice: str) -> str:
    return f"with a decimal {choice}" if choice in ("comma", "point") else choice.replace("-", " ")


def zone_of(timezone: str) -> tzinfo:
    """The zone of that name. Raises ImportRefused."""
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise ImportRefused(f"There is no time zone {timezone!r}; write it as Europe/Berlin.") from None
