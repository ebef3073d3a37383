"""The four tables that imports write, and the one statement that writes them: an upsert on (site_id, external_id)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.text import to_json


@dataclass(frozen=True)
class Site:
    """The site that is written to."""

    user_id: uuid.UUID
    site_id: uuid.UUID
    currency: str


@dataclass(frozen=True)
class Table:
    """`columns` with their types; of those in `kept` a missing value never replaces a known one."""

    name: str
    columns: dict[str, str]
    kept: frozenset[str] = frozenset()

    def upsert(self) -> str:
        """The upsert, which takes each column as a JSON array (moments in seconds) and returns one JSON object: for the external id of
        each row that it wrote, whether it was added."""
        names = list(self.columns)

        def newer(name: str) -> str:
            return (
                f"coalesce(excluded.{name}, {self.name}.{name})" if name in self.kept else f"excluded.{name}"
            )

        return self._write(
            f"""do update set {", ".join(f"{n} = {newer(n)}" for n in names[1:])}
where {self.name}.user_id = :user_id
  and ({", ".join(f"{self.name}.{n}" for n in names[1:])}) is distinct from ({", ".join(newer(n) for n in names[1:])})""",
            gives="xmax = 0",
        )

    def insert(self) -> str:
        """The same for rows that replace nothing; returns the ids of those that were added."""
        return self._write("do nothing", gives="id")

    def _write(self, on_conflict: str, gives: str) -> str:
        names = list(self.columns)
        return f"""
with written as (
insert into {self.name} (user_id, site_id, {", ".join(names)})
select :user_id, :site_id, {", ".join(_from_text(n, t) for n, t in self.columns.items())}
from rows from ({", ".join(f"json_array_elements_text(cast(:{n} as json))" for n in names)}) as r({", ".join(names)})
on conflict (site_id, external_id) {on_conflict}
returning external_id, {gives} as given)
select coalesce(jsonb_object_agg(external_id, given), '{{}}') from written"""


def _from_text(name: str, of: str) -> str:
    """SQL for the value that an element of a JSON array wrote as text."""
    if of == "text[]":
        return f"case when {name} is not null then array(select json_array_elements_text(cast({name} as json))) end"
    if of == "timestamptz":
        return f"to_timestamp(cast({name} as float8))"  # seconds are written and read in a third of the time of text
    return f"cast({name} as {of})"


def _to_json(values: Sequence[Any], of: str) -> str:
    return to_json([value and value.timestamp() for value in values] if of == "timestamptz" else values)


PLANS = Table(
    "memberships",
    {
        "external_id": "text",
        "name": "text",
        "price_minor": "bigint",
        "currency": "text",
        "period": "text",
        "status": "text",
    },
    frozenset({"price_minor"}),
)
MEMBERS = Table(
    "members",
    {
        "external_id": "text",
        "aliases": "text[]",
        "email": "text",
        "name": "text",
        "registered_at": "timestamptz",
    },
    frozenset({"aliases", "email", "name", "registered_at"}),
)
SUBSCRIPTIONS = Table(
    "subscriptions",
    {
        "external_id": "text",
        "member_id": "uuid",
        "membership_id": "uuid",
        "status": "text",
        "price_minor": "bigint",
        "currency": "text",
        "period": "text",
        "started_at": "timestamptz",
        "ended_at": "timestamptz",
    },
    frozenset({"membership_id", "price_minor"}),
)
TRANSACTIONS = Table(
    "transactions",
    {
        "external_id": "text",
        "member_id": "uuid",
        "membership_id": "uuid",
        "kind": "text",
        "amount_minor": "bigint",
        "currency": "text",
        "status": "text",
        "description": "text",
        "occurred_at": "timestamptz",
    },
    frozenset({"member_id", "membership_id"}),
)

Key = tuple[str, str]
"""(table, external id) of a record as the file names it."""


def upsert(
    connection: Connection, site: Site, table: Table, columns: Mapping[str, Sequence[Any]]
) -> dict[Key, bool]:
    """Write rows, given column by column, whose external ids differ. Returns the keys that were written: True where added, False where
    changed."""
    written = _write(connection, site, table, table.upsert(), columns)
    return {(table.name, external_id): added for external_id, added in written.items()}


def insert(
    connection: Connection, site: Site, table: Table, columns: Mapping[str, Sequence[Any]]
) -> dict[str, str]:
    """Add rows, given like those of `upsert`, where their external ids are not there yet. Returns the ids of those that were added, by
    external id."""
    return _write(connection, site, table, table.insert(), columns)


def _write(
    connection: Connection, site: Site, table: Table, statement: str, columns: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    if not columns["external_id"]:
        return {}
    parameters = {name: _to_json(columns[name], of) for name, of in table.columns.items()}
    written: dict[str, Any] = connection.scalar(
        sa.text(statement), parameters | {"user_id": site.user_id, "site_id": site.site_id}
    )
    return written


def columns_of(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, list[Any]]:
    """`rows` column by column, as `upsert` takes them."""
    return {name: [row[name] for row in rows] for name in names}
