"""An import from file to report: which kind, which conventions, what was added, changed, left alone and rejected."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from common.sites.imports import memberpress, plain, stripe
from common.sites.imports.kinds import Kind, recognise
from common.sites.imports.reading import (
    Conventions,
    Layout,
    RawRow,
    Row,
    Setting,
    cells_of,
    layout_of,
    plain_name,
    rows_of,
    settle,
    zone_of,
)
from common.sites.imports.records import Plan, Record, Subscription, Transaction, moments
from common.sites.imports.references import Known
from common.sites.imports.tables import MEMBERS, Key, Site
from common.sites.imports.values import Fault
from common.sites.imports.writer import date_registrations, key_of, write

KINDS: list[Kind] = [*plain.KINDS, *memberpress.KINDS, *stripe.KINDS]
_ORDER = ("memberships", "members", "subscriptions", "transactions")
_BATCH = 5_000


@dataclass(frozen=True)
class OpenedFile:
    """A file that can be imported: what it is and how it is to be read."""

    path: Path
    layout: Layout
    kind: Kind
    setting: Setting
    notes: tuple[str, ...]


@dataclass
class FileReport:
    """What became of a file's rows: `read` is the sum of the other four. `data_through` is the latest moment it speaks of."""

    file_name: str
    kind: str
    notes: list[str]
    read: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    data_through: datetime | None = None
    future: int = 0
    undated_refunds: int = 0
    unknown_periods: int = 0


Rejected = Callable[[OpenedFile, RawRow, str], None]
Progress = Callable[[OpenedFile, int], None]


def open_file(path: Path, *, currency: str, timezone: str, stated: Conventions | None = None) -> OpenedFile:
    """Recognise the file and settle its conventions; `stated` ones win over what its values show. Raises ImportRefused."""
    layout = layout_of(path)
    kind = recognise(layout.header, KINDS, path.name)
    conventions, notes = settle(path, layout, kind.dates, kind.amounts, stated or Conventions())
    if layout.encoding == "cp1252":
        notes.insert(0, "the text is not UTF-8 and was read as Windows-1252")
    zone = UTC if kind.utc else zone_of(timezone)
    return OpenedFile(path, layout, kind, Setting(currency, zone, conventions), tuple(notes))


def import_files(
    connection: Connection,
    site: Site,
    files: Sequence[OpenedFile],
    now: datetime,
    *,
    exported_at: datetime | None = None,
    rejected: Rejected = lambda file, row, reason: None,
    progress: Progress = lambda file, rows: None,
) -> list[FileReport]:
    """Write the files, plans first and transactions last, in the caller's transaction, and record each in `site_imports`. At most one call
    in a transaction: it takes what the transaction has made for its own.

    Moves the site's `data_as_of` to `exported_at`, else to the latest moment not after `now` that the files speak of, and never back.
    """
    # Reading may take minutes between two statements of a large import, and the last statement looks at every person.
    connection.execute(sa.text("set local idle_in_transaction_session_timeout = 0"))
    connection.execute(sa.text("set local statement_timeout = 0"))
    reports = []
    dates = all(file.kind.table != MEMBERS.name for file in files)  # none comes from a file of people
    for file in sorted(files, key=lambda f: _ORDER.index(f.kind.table)):
        with _seldom_collecting():
            report = _import_file(connection, site, file, now, dates, rejected, progress)
        if exported_at is not None:
            report.data_through = exported_at
        _record(connection, site, file, report)
        reports.append(report)
    if dated := date_registrations(connection, site, made_with_dates=dates):
        reports[-1].notes.append(
            f"{dated} people came without a day of registration; it was taken from their first subscription or payment"
        )
    through = max((r.data_through for r in reports if r.data_through), default=None)
    connection.execute(
        sa.text("""
update sites set data_as_of = greatest(data_as_of, cast(:through as timestamptz))
where user_id = :user_id and id = :site_id"""),
        {"user_id": site.user_id, "site_id": site.site_id, "through": through},
    )
    return reports


@contextlib.contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Look for cyclic garbage less often: rows and records have no cycles, and walking through them again and again would take a fifth
    of the time of an import."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@dataclass
class _Batch:
    """Lines of a file that are not written yet: their records by key, and the keys of each line."""

    records: dict[Key, Record] = field(default_factory=dict)
    lines: list[list[Key]] = field(default_factory=list)


class _Writer:
    """Writes batches one after the other, each while the next is being read, and counts their lines. The connection is its own until it
    has `settled`."""

    def __init__(
        self, connection: Connection, site: Site, dates: bool, report: FileReport, beside: Executor
    ) -> None:
        self._write = partial(write, connection, site, known=Known(dates))
        self._report = report
        self._beside = beside
        self._writing: Future[dict[Key, bool]] | None = None
        self._lines: list[list[Key]] = []

    def hand_over(self, batch: _Batch) -> None:
        """Begin to write `batch` once the one before is written."""
        self.settle()
        if batch.lines:
            self._lines = batch.lines
            self._writing = self._beside.submit(self._write, list(batch.records.values()))

    def settle(self) -> None:
        """Wait for what is being written and count its lines: a line is added where the record it is about is new, updated where any of
        its records was written."""
        if self._writing is None:
            return
        written, self._writing = self._writing.result(), None
        for keys in self._lines:
            if written.get(keys[0]):
                self._report.added += 1
            elif any(key in written for key in keys):
                self._report.updated += 1
            else:
                self._report.unchanged += 1


def _import_file(
    connection: Connection,
    site: Site,
    file: OpenedFile,
    now: datetime,
    dates: bool,
    rejected: Rejected,
    progress: Progress,
) -> FileReport:
    report = FileReport(file.path.name, file.kind.name, list(file.notes))
    header = [plain_name(h) for h in file.layout.header]
    batch = _Batch()
    with ThreadPoolExecutor(1, "import-writer") as beside:
        writer = _Writer(connection, site, dates, report, beside)
        for raw in rows_of(file.path, file.layout):
            report.read += 1
            try:
                if raw.fault:
                    raise Fault(raw.fault)
                records = file.kind.read(Row(raw.line, cells_of(raw, header), file.setting))
            except Fault as fault:
                report.rejected += 1
                rejected(file, raw, str(fault))
                continue
            _observe(report, records, now)
            keyed = {key_of(record): record for record in records}
            if keyed.items() <= batch.records.items():
                report.unchanged += 1  # the same row again
                continue
            if len(batch.lines) >= _BATCH or not batch.records.keys().isdisjoint(keyed):
                writer.hand_over(batch)
                progress(file, report.read)
                batch = _Batch()
            batch.records |= keyed
            batch.lines.append(list(keyed))
        writer.hand_over(batch)
        writer.settle()
    progress(file, report.read)
    _add_notes(report)
    return report


def _observe(report: FileReport, records: list[Record], now: datetime) -> None:
    first = records[0]  # what the row is about; with a payment may come its refund
    future = False
    for record in records:
        for moment in moments(record):
            if moment > now:
                future = True
            elif report.data_through is None or moment > report.data_through:
                report.data_through = moment
    if isinstance(first, Transaction):
        report.future += future
        report.undated_refunds += len(records) > 1 and first.occurred_at in moments(records[1])
    elif isinstance(first, Plan | Subscription):
        report.unknown_periods += bool(first.price_minor) and first.period == "unknown"


def _add_notes(report: FileReport) -> None:
    if report.future:
        report.notes.append(f"{report.future} rows are dated in the future")
    if report.undated_refunds:
        report.notes.append(
            f"{report.undated_refunds} refunds come without a day of their own; they were booked on the day of their payment"
        )
    if report.unknown_periods:
        report.notes.append(
            f"{report.unknown_periods} prices are for no period that is known; they count nothing in recurring revenue"
        )


def _record(connection: Connection, site: Site, file: OpenedFile, report: FileReport) -> None:
    connection.execute(
        sa.text("""
insert into site_imports (user_id, site_id, source, file_name, file_hash, rows_read, rows_added, rows_updated, rows_unchanged,
                          rows_rejected, data_through)
values (:user_id, :site_id, :source, :file_name, :file_hash, :read, :added, :updated, :unchanged, :rejected,
        cast(:through as timestamptz))"""),
        {
            "user_id": site.user_id,
            "site_id": site.site_id,
            "source": report.kind,
            "file_name": report.file_name,
            "file_hash": file.layout.sha256,
            "read": report.read,
            "added": report.added,
            "updated": report.updated,
            "unchanged": report.unchanged,
            "rejected": report.rejected,
            "through": report.data_through,
        },
    )
