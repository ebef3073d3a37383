"""A row in every per-user table, found by walking the catalogue, so that a new table cannot be forgotten."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conftest import NOW, Database, Person

# What a column needs where any value would break a constraint.
_VALUES: dict[str, Any] = {
    "tier": "pro",
    "kind": None,
    "status": "complete",
    "role": "user",
    "state": "settled",
    "period": "month",
    "wrap_up": "waiting",
    "collection": "memory",
    "currency": "USD",
    "timezone": "UTC",
    "outcome": "ok",
}
_KINDS = {"transactions": "payment", "brain_documents": "soul", "usage_charges": "chat"}


def fill_every_table(database: Database, person: Person, canary: str = "canary") -> None:
    """Insert one row for `person` into each table that has a user_id and none of theirs yet; its texts contain `canary`."""
    with database.superuser.begin() as connection:
        connection.exec_driver_sql("select 1")
    ids: dict[str, uuid.UUID] = {
        "users": person.user_id,
        "tenants": person.tenant_id,
        "sites": person.site_id,
    }
    for table in _in_order(database):
        if table in ids:
            continue
        ids[table] = uuid.uuid4()
        values = _row(database, table, person, ids, canary)
        names = ", ".join(values)
        places = ", ".join(f"cast(:{n} as {t})" for n, (t, _) in values.items())
        database.run(
            f"insert into {table} ({names}) values ({places})", **{n: v for n, (_, v) in values.items()}
        )


def _row(
    database: Database, table: str, person: Person, ids: dict[str, uuid.UUID], canary: str
) -> dict[str, tuple[str, Any]]:
    references = {
        name: (parent, column)
        for name, parent, column in database.rows(
            "select a.attname, k.confrelid::regclass::text, p.attname from pg_constraint k"
            " cross join unnest(k.conkey, k.confkey) as pair (own, referred)"
            " join pg_attribute a on a.attrelid = k.conrelid and a.attnum = pair.own"
            " join pg_attribute p on p.attrelid = k.confrelid and p.attnum = pair.referred"
            " where k.contype = 'f' and k.conrelid = cast(:t as regclass)",
            t=table,
        )
    }
    row: dict[str, tuple[str, Any]] = {}
    for name, kind, required in database.rows(
        "select attname, format_type(atttypid, atttypmod), attnotnull from pg_attribute"
        " where attrelid = cast(:t as regclass) and attnum > 0 and not attisdropped",
        t=table,
    ):
        if name == "id":
            row[name] = (kind, ids[table])
        elif name == "user_id":
            row[name] = (kind, person.user_id)
        elif name == "tenant_id":
            row[name] = (kind, str(person.tenant_id) if kind == "text" else person.tenant_id)
        elif (
            name in references
            and references[name][0] in ids
            and not (table == "brain_documents" and name == "site_id")
        ):
            parent, column = references[name]
            referred = f"select {column} from {parent} where id = :id"
            row[name] = (kind, database.scalar(referred, id=ids[parent]))
        elif required:
            row[name] = (kind, _value(table, name, kind, canary))
    return row


def _value(table: str, name: str, kind: str, canary: str) -> Any:
    if name == "kind":
        return _KINDS.get(table, "chat")
    if name in _VALUES:
        return _VALUES[name]
    if name == "status" and table == "turns":
        return "complete"
    if kind.startswith("timestamp"):
        return NOW if "with time zone" in kind else NOW.replace(tzinfo=None)
    if kind == "jsonb":
        return '["x"]' if name in ("decisions", "open_items", "new_context") else f'{{"text": "{canary}"}}'
    if kind == "uuid":
        return uuid.uuid4()
    if kind == "boolean":
        return False
    if kind in ("bigint", "integer", "smallint", "numeric(14,6)", "double precision"):
        return 1
    if kind == "date":
        return NOW.date()
    return f"{canary} {uuid.uuid4()}"


def _in_order(database: Database) -> list[str]:
    """The tables with a user_id, each after the ones it refers to."""
    tables = [
        row[0]
        for row in database.rows(
            "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'user_id'"
            " where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace order by c.relname"
        )
    ]
    needs = {
        t: {
            row[0]
            for row in database.rows(
                "select confrelid::regclass::text from pg_constraint where contype = 'f' and conrelid = cast(:t as regclass)",
                t=t,
            )
        }
        & set(tables) - {t}
        for t in tables
    }
    ordered: list[str] = []
    while needs:
        ready = sorted(t for t, wanted in needs.items() if wanted <= set(ordered))
        ordered += ready
        for t in ready:
            del needs[t]
    return ordered
