"""Everything that is stored about a user, as one JSON document that is written page by page.

Each page is a short transaction of its own, so that a slow download holds no connection and memory stays bounded; what is written or
deleted meanwhile may or may not be in it. The document ends with `"complete": true`: one that does not was cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy import Engine

from common.accounts import Account
from common.db import user_transaction
from common.shapes import Shape
from common.text import to_json


class Export(Shape):
    """Everything stored about the user: the rows of each table under its name, columns as in the database, times in UTC. Left out are
    only what is derived from the same row (vectors, search words) and random marks of running work."""

    exported_at: datetime
    tables: dict[str, list[dict[str, Any]]]
    complete: bool = Field(description="True at the end of a whole document")


@dataclass(frozen=True)
class Table:
    """A table with a user's rows: whose they are, the key that pages go by (columns and types), and how many rows a page has: few
    where a row may be large."""

    name: str
    rows: int = 5000
    owner: str = "user_id = :user_id"
    key: tuple[tuple[str, str], ...] = (("id", "uuid"),)
    hidden: tuple[str, ...] = ()


# Every table that holds a user's rows; a test compares this list with the catalogue.
TABLES = (
    Table("tenants", owner="id = :tenant_id"),
    Table("users", owner="id = :user_id"),
    Table("sites"),
    Table("site_imports"),
    Table("memberships"),
    Table("members"),
    Table("subscriptions"),
    Table("transactions"),
    Table("conversations"),
    Table("sessions", hidden=("wrap_up_lease", "wrap_up_lease_until")),
    Table("turns", rows=100, hidden=("lease", "lease_until")),
    Table("messages", rows=200),
    Table("message_tool_results", rows=20),
    Table("message_feedback", key=(("message_id", "uuid"),)),
    Table("session_logs", rows=200),
    Table("brain_documents", rows=100),
    Table("brain_document_revisions", rows=100),
    Table("brain_entries", rows=200, hidden=("embedding", "lexemes")),
    Table("retrieval_events", key=(("message_id", "uuid"), ("rank", "smallint"))),
    Table("usage_charges"),
    Table("usage_counters", owner="tenant_id = :tenant_id", key=(("counter", "text"), ("period", "date"))),
    Table("request_counts", key=(("user_id", "uuid"),)),
    Table("outbox_events", rows=5),
    Table("access_log"),
)


def export(account: Account, *, now: datetime, source: Engine | None = None) -> Iterator[str]:
    """The document in pieces of at most a page of rows."""
    yield f'{{"exported_at":{to_json(now.isoformat())},"tables":{{'
    for number, table in enumerate(TABLES):
        yield f"{',' if number else ''}{to_json(table.name)}:["
        yield from _rows(account, table, source)
        yield "]"
    yield '},"complete":true}'


def _rows(account: Account, table: Table, source: Engine | None) -> Iterator[str]:
    owner: dict[str, Any] = {"user_id": account.user_id, "tenant_id": account.tenant_id}
    values: dict[str, Any] = {name: value for name, value in owner.items() if f":{name}" in table.owner}
    values |= {"hidden": list(table.hidden), "rows": table.rows}
    after: dict[str, str] = {}
    separator = ""
    while True:
        with user_transaction(account.user_id, source=source) as connection:
            connection.execute(sa.text("select set_config('TimeZone', 'UTC', true)"))
            rows = connection.execute(_page(table, first=not after), values | after).all()
        if rows:
            yield separator + ",\n".join(row.document for row in rows)
            separator = ",\n"
        if len(rows) < table.rows:
            return
        after = {f"after_{i}": getattr(rows[-1], f"key_{i}") for i in range(len(table.key))}


def _page(table: Table, *, first: bool) -> sa.TextClause:
    """The statement of a page. Rows become JSON after the limit has chosen them: before it, every page would convert all that are left."""
    columns = ", ".join(name for name, _ in table.key)
    keys = ", ".join(f"cast({name} as text) as key_{i}" for i, (name, _) in enumerate(table.key))
    bounds = ", ".join(f"cast(cast(:after_{i} as text) as {kind})" for i, (_, kind) in enumerate(table.key))
    further = "" if first else f"and ({columns}) > ({bounds})"
    return sa.text(f"""
        select cast(to_jsonb(t) - cast(:hidden as text[]) as text) as document, {keys}
        from (select * from {table.name} where {table.owner} {further} order by {columns} limit :rows) t
        order by {columns}
    """)
