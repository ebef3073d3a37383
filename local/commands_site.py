"""The subcommand `import-site`: load exports into a site of a user's, and say what became of each row."""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from common.db import engine, transaction, user_transaction
from common.errors import InvalidRequest, NotFound
from common.sites.imports import tables
from common.sites.imports.reading import Conventions, RawRow, zone_of
from common.sites.imports.run import FileReport, OpenedFile, import_files, open_file
from common.sites.imports.values import Fault, parse_currency, parse_moment
from local.stack import now, opened

_SHOWN = 10  # rejected rows on the screen, for each file; the file of rejected rows has them all


def add_parsers(subparsers: Any) -> None:
    """The subcommands of this group."""
    parser = subparsers.add_parser(
        "import-site",
        help="load CSV exports into a user's site",
        description="Load exports into a site: MemberPress (members, transactions, subscriptions, memberships), Stripe (payments, "
        "subscriptions, customers) or the plain CSV. The kind of each file is recognised from its header. All files are one transaction; "
        "the same file again changes nothing, a later export updates.",
    )
    parser.add_argument("--user", required=True, metavar="EMAIL", help="whose site it is")
    parser.add_argument(
        "--site", required=True, metavar="NAME", help="the site, made if the user has none of that name"
    )
    parser.add_argument("--currency", metavar="USD", help="the site's currency; needed for a new site")
    parser.add_argument(
        "--timezone", metavar="Europe/Berlin", help="the site's time zone; needed for a new site"
    )
    parser.add_argument(
        "--dates", choices=["day-first", "month-first"], help="how dates such as 03/04/2026 are meant"
    )
    parser.add_argument("--decimal", choices=["comma", "point"], help="how amounts such as 1.234 are meant")
    parser.add_argument(
        "--exported-at",
        metavar="ISO",
        help="when the files were exported, where their last row is older than that",
    )
    parser.add_argument(
        "--rejected",
        metavar="FOLDER",
        type=Path,
        help="where files of rejected rows go; else beside each file",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the report and write nothing")
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    parser.set_defaults(run=import_files_of_user)


def import_files_of_user(arguments: argparse.Namespace) -> int:
    """Import into the database of the data folder."""
    with opened(arguments.data):
        return import_site(arguments, owner=engine("owner"), app=engine("app"), now=now())


def import_site(arguments: argparse.Namespace, *, owner: Engine, app: Engine, now: datetime) -> int:
    """Import `arguments.files`; returns the exit status, 0 also where rows were rejected. Raises AppError with one clear line."""
    with transaction("owner", source=owner) as connection:
        user_id = _user(connection, arguments.user)
    with user_transaction(user_id, source=app) as connection:
        known = _site(connection, user_id, arguments.site)
    currency, timezone = _settled(arguments, known)
    exported_at = _exported_at(arguments.exported_at, timezone, now)
    stated = Conventions(arguments.dates, arguments.decimal)
    files = []
    for path in arguments.files:
        _progress(f"{path.name}: looking at it")
        files.append(open_file(path, currency=currency, timezone=timezone, stated=stated))
    with (
        contextlib.ExitStack() as stack,
        user_transaction(user_id, source=app) as connection,
    ):
        site_id = (
            known["id"] if known else _make_site(connection, user_id, arguments.site, currency, timezone)
        )
        rejects = Rejects(stack, arguments)
        reports = import_files(
            connection,
            tables.Site(user_id, site_id, currency),
            files,
            now,
            exported_at=exported_at,
            rejected=rejects.add,
            progress=lambda file, rows: _progress(f"{file.path.name}: {rows:,} rows"),
        )
        if arguments.dry_run:
            connection.rollback()
    _progress("")
    for report in reports:
        _print(report, rejects)
    print("Dry run: nothing was written." if arguments.dry_run else f"Imported into {arguments.site}.")
    return 0


class Rejects:
    """Rejected rows: the first for the screen, all in a file beside the input, with its columns, that can be mended and imported."""

    def __init__(self, stack: contextlib.ExitStack, arguments: argparse.Namespace) -> None:
        self.stack, self.folder, self.dry_run = stack, arguments.rejected, arguments.dry_run
        self.shown: dict[str, list[str]] = {}
        self.paths: dict[str, Path] = {}
        self.writers: dict[Path, Any] = {}

    def add(self, file: OpenedFile, row: RawRow, reason: str) -> None:
        shown = self.shown.setdefault(file.path.name, [])
        if len(shown) < _SHOWN:
            shown.append(f"line {row.line}: {reason}")
        if not self.dry_run:
            self._writer(file).writerow(
                [*row.cells, *[""] * (len(file.layout.header) - len(row.cells)), row.line, reason]
            )

    def _writer(self, file: OpenedFile) -> Any:
        if file.path not in self.writers:
            path = (self.folder or file.path.parent) / f"{file.path.stem}.rejected.csv"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                opened = self.stack.enter_context(path.open("w", encoding="utf-8", newline=""))
            except OSError as error:
                raise InvalidRequest(
                    f"{path} cannot be written: {error.strerror}. Say --rejected FOLDER."
                ) from None
            self.writers[file.path] = csv.writer(opened)
            self.writers[file.path].writerow([*file.layout.header, "line", "reason"])
            self.paths[file.path.name] = path
        return self.writers[file.path]


def _print(report: FileReport, rejects: Rejects) -> None:
    print(f"{report.file_name}: {report.kind}")
    print(
        f"  {report.read} rows read: {report.added} added, {report.updated} updated, {report.unchanged} unchanged, "
        f"{report.rejected} rejected"
    )
    if report.data_through:
        print(f"  data through {report.data_through:%Y-%m-%d %H:%M} UTC")
    for note in report.notes:
        print(f"  note: {note}")
    shown = rejects.shown.get(report.file_name, [])
    for line in shown:
        print(f"  rejected {line}")
    if report.rejected > len(shown):
        print(f"  and {report.rejected - len(shown)} more")
    if path := rejects.paths.get(report.file_name):
        print(f"  rejected rows are in {path}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<79}", end="\r", file=sys.stderr, flush=True)


def _user(connection: Connection, email: str) -> uuid.UUID:
    found = connection.execute(
        sa.text("select id from users where lower(email) = lower(:email)"), {"email": email}
    ).all()
    if not found:
        raise NotFound(f"There is no user {email}. Add one with: memberintel user add.")
    if len(found) > 1:
        raise InvalidRequest(f"{len(found)} users have the address {email}, from different issuers.")
    user_id: uuid.UUID = found[0].id
    return user_id


def _site(connection: Connection, user_id: uuid.UUID, name: str) -> dict[str, Any] | None:
    row = (
        connection.execute(
            sa.text("select id, currency, timezone from sites where user_id = :user_id and name = :name"),
            {"user_id": user_id, "name": name},
        )
        .mappings()
        .first()
    )
    return dict(row) if row else None


def _settled(arguments: argparse.Namespace, known: dict[str, Any] | None) -> tuple[str, str]:
    """The site's currency and zone: those it has, which stated ones must equal, or the stated ones of a new site."""
    try:
        currency = parse_currency(arguments.currency) if arguments.currency else None
    except Fault as fault:
        raise InvalidRequest(f"--currency: {fault}.") from None
    if arguments.timezone:
        zone_of(arguments.timezone)
    if known is None:
        if currency is None or not arguments.timezone:
            raise InvalidRequest(
                f"The user has no site {arguments.site}: to make it, say --currency and --timezone."
            )
        return currency, arguments.timezone
    for option, stated, has in (
        ("--currency", currency, known["currency"]),
        ("--timezone", arguments.timezone, known["timezone"]),
    ):
        if stated and stated != has:
            raise InvalidRequest(f"The site {arguments.site} has {has}, which {option} {stated} contradicts.")
    return known["currency"], known["timezone"]


def _exported_at(text: str | None, timezone: str, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parse_moment(text, zone_of(timezone), None)
    except Fault as fault:
        raise InvalidRequest(f"--exported-at: {fault}.") from None
    if moment is None or moment > now:
        raise InvalidRequest("--exported-at must be a moment that has passed.")
    return moment.astimezone(UTC)


def _make_site(
    connection: Connection, user_id: uuid.UUID, name: str, currency: str, timezone: str
) -> uuid.UUID:
    made: uuid.UUID = connection.execute(
        sa.text("""
insert into sites (user_id, name, currency, timezone) values (:user_id, :name, :currency, :timezone) returning id"""),
        {"user_id": user_id, "name": name, "currency": currency, "timezone": timezone},
    ).scalar_one()
    return made
