"""Writing records: batches of upserts on (site_id, external_id), in the transaction of the caller.

Nothing is written for what is already so, which is how a second import of a file changes nothing. A batch is a bounded number of rows,
whatever the size of the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.sites.imports.records import Member, MemberRef, Plan, PlanRef, Record, Subscription, Transaction
from common.text import to_json


@dataclass(frozen=True)
class Site:
    """The site that is written to."""

    user_id: uuid.UUID
    site_id: uuid.UUID
    currency: str


@dataclass(frozen=True)
class _Table:
    """`columns` with their types; of those in `kept` a missing value never replaces a known one."""

    name: str
    columns: dict[str, str]
    kept: frozenset[str] = frozenset()

    def upsert(self) -> str:
        names = list(self.columns)

        def newer(name: str) -> str:
            return (
                f"coalesce(excluded.{name}, {self.name}.{name})" if name in self.kept else f"excluded.{name}"
            )

        return f"""
insert into {self.name} (user_id, site_id, {", ".join(names)})
select :user_id, :site_id, {", ".join(names)}
from jsonb_to_recordset(cast(:rows as jsonb)) as r({", ".join(f"{n} {t}" for n, t in self.columns.items())})
on conflict (site_id, external_id) do update set {", ".join(f"{n} = {newer(n)}" for n in names[1:])}
where {self.name}.user_id = :user_id
  and ({", ".join(f"{self.name}.{n}" for n in names[1:])}) is distinct from ({", ".join(newer(n) for n in names[1:])})
returning external_id, xmax = 0 as added"""


_PLANS = _Table(
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
_MEMBERS = _Table(
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
_SUBSCRIPTIONS = _Table(
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
_TRANSACTIONS = _Table(
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


def key_of(record: Record) -> Key:
    table = {Plan: _PLANS, Member: _MEMBERS, Subscription: _SUBSCRIPTIONS, Transaction: _TRANSACTIONS}[
        type(record)
    ]
    return table.name, record.external_id


def write(connection: Connection, site: Site, records: Sequence[Record]) -> dict[Key, bool]:
    """Upsert `records`, of which no two have the same key. Returns the keys that were written: True where added, False where changed;
    what is missing was already so. People and plans that are named and not known are made."""
    written: dict[Key, bool] = {}
    plans = [r for r in records if isinstance(r, Plan)]
    _name_stubs(connection, site, _PLANS, {_stub_of(p.name): p.external_id for p in reversed(plans)})
    written |= _upsert(connection, site, _PLANS, [_values(plan) for plan in plans])
    written |= _write_members(connection, site, [r for r in records if isinstance(r, Member)])
    named = [r for r in records if isinstance(r, Subscription | Transaction)]
    if named:
        people = _members(connection, site, {r.member for r in named if r.member})
        offered = _plans(connection, site, {r.plan for r in named if r.plan})
        for table, of in ((_SUBSCRIPTIONS, Subscription), (_TRANSACTIONS, Transaction)):
            rows_of = [_referring(r, people, offered) for r in named if isinstance(r, of)]
            written |= _upsert(connection, site, table, rows_of)
    return written


def date_registrations(connection: Connection, site: Site) -> int:
    """Give people without a day of registration the moment of their first subscription or payment. Returns how many."""
    return connection.execute(
        sa.text("""
update members as m set registered_at = seen.first_at
from (
    select p.id, least(
        (select min(started_at) from subscriptions as s where s.user_id = :user_id and s.member_id = p.id),
        (select min(occurred_at) from transactions as t where t.user_id = :user_id and t.member_id = p.id)
    ) as first_at
    from members as p where p.user_id = :user_id and p.site_id = :site_id and p.registered_at is null
) as seen
where m.id = seen.id and m.user_id = :user_id and seen.first_at is not null"""),
        {"user_id": site.user_id, "site_id": site.site_id},
    ).rowcount


def _name_stubs(connection: Connection, site: Site, table: _Table, stubs: dict[str, str]) -> None:
    """Give rows that were made because something named them by name or address alone the id that their own file has: `stubs` maps
    the id such a row was made with to its new one."""
    if stubs:
        connection.execute(
            sa.text(f"""
update {table.name} as made set external_id = r.external_id
from jsonb_to_recordset(cast(:rows as jsonb)) as r(stub text, external_id text)
where made.user_id = :user_id and made.site_id = :site_id and made.external_id = r.stub and not exists (
    select from {table.name} as k where k.user_id = :user_id and k.site_id = :site_id and k.external_id = r.external_id
)"""),
            {
                "user_id": site.user_id,
                "site_id": site.site_id,
                "rows": to_json(
                    [{"stub": stub, "external_id": external_id} for stub, external_id in stubs.items()]
                ),
            },
        )


def _write_members(connection: Connection, site: Site, members: list[Member]) -> dict[Key, bool]:
    """One address is one person: a row that finds its person by the address alone, under another external id, fills in what is
    missing and the earlier day of registration, and replaces nothing."""
    if not members:
        return {}
    _name_stubs(connection, site, _MEMBERS, {m.email: m.external_id for m in reversed(members) if m.email})
    found = _find_members(connection, site, [MemberRef(m.external_id, m.email) for m in members])
    by_email = {row["email"]: row for row in found.values() if row["email"]}
    rows: dict[str, dict[str, Any]] = {}
    lines: dict[str, str] = {}
    for member in members:
        values = _values(member) | {"aliases": None}
        known = found.get(MemberRef(member.external_id, member.email))
        if known is None or known["external_id"] != member.external_id:
            known = by_email.get(member.email) or (known and rows.get(known["external_id"])) or known
        if known and known["external_id"] != member.external_id:
            days = [d for d in (known["registered_at"], member.registered_at) if d]
            values = {
                "external_id": known["external_id"],
                "aliases": sorted({*(known["aliases"] or []), member.external_id}),
                "email": known["email"] or member.email,
                "name": known["name"] or member.name,
                "registered_at": min(days, default=None),
            }
        rows[values["external_id"]] = values
        lines.setdefault(values["external_id"], member.external_id)
        if member.email:
            by_email[member.email] = values
    done = _upsert(connection, site, _MEMBERS, list(rows.values()))
    return {("members", lines[external_id]): added for (_, external_id), added in done.items()}


def _stub_of(plan_name: str | None) -> str:
    return f"name:{plan_name}"


def _values(record: Plan | Member) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _referring(
    record: Subscription | Transaction, people: dict[MemberRef, str], plans: dict[PlanRef, dict[str, Any]]
) -> dict[str, Any]:
    values = {n: getattr(record, n) for n in record.__slots__ if n not in ("member", "plan")}
    plan = plans[record.plan] if record.plan else None
    values |= {
        "member_id": people[record.member] if record.member else None,
        "membership_id": plan["id"] if plan else None,
    }
    if isinstance(record, Subscription) and plan:
        if record.price_minor is None and plan["price_minor"] is not None:
            values |= {"price_minor": plan["price_minor"], "currency": plan["currency"]}
        if record.period == "unknown":
            values["period"] = plan["period"]
    return values


def _upsert(connection: Connection, site: Site, table: _Table, rows: list[dict[str, Any]]) -> dict[Key, bool]:
    if not rows:
        return {}
    parameters = {"user_id": site.user_id, "site_id": site.site_id, "rows": to_json(rows)}
    found = connection.execute(sa.text(table.upsert()), parameters)
    return {(table.name, row.external_id): row.added for row in found}


_PEOPLE = """
select cast(id as text) as id, external_id, aliases, email, name, registered_at from members
where user_id = :user_id and site_id = :site_id"""


def _find_members(
    connection: Connection, site: Site, wanted: Iterable[MemberRef]
) -> dict[MemberRef, dict[str, Any]]:
    refs = list(wanted)
    ids, emails = [r.external_id for r in refs if r.external_id], [r.email for r in refs if r.email]
    own = {"user_id": site.user_id, "site_id": site.site_id}
    # Two statements, for under row level security an overlap of arrays keeps a condition beside it from using its index.
    known = connection.execute(
        sa.text(f"""{_PEOPLE}
  and (external_id = any(cast(:ids as text[])) or email = any(cast(:emails as text[])))
order by created_at, id"""),
        own | {"ids": ids, "emails": emails},
    ).mappings()
    aliased = connection.execute(
        sa.text(f"{_PEOPLE} and aliases is not null and aliases && cast(:ids as text[])"), own | {"ids": ids}
    ).mappings()
    by_id: dict[str, dict[str, Any]] = {}
    by_email: dict[str, dict[str, Any]] = {}
    for row in known:
        by_id[row["external_id"]] = dict(row)
        if row["email"]:
            by_email.setdefault(row["email"], dict(row))
    for row in aliased:
        for alias in row["aliases"]:
            by_id.setdefault(alias, dict(row))
    found = {ref: by_id.get(ref.external_id or "") or by_email.get(ref.email or "") for ref in refs}
    return {ref: row for ref, row in found.items() if row}


def _members(connection: Connection, site: Site, refs: set[MemberRef]) -> dict[MemberRef, str]:
    """The ids of these people, made where they are not known."""
    found = _find_members(connection, site, refs)
    missing: dict[str, dict[str, Any]] = {}
    for ref in sorted(refs - found.keys(), key=lambda r: (r.external_id or "", r.email or "")):
        key = ref.email or ref.external_id or ""
        missing.setdefault(
            key,
            {
                "external_id": ref.external_id or ref.email,
                "email": ref.email,
                "name": ref.name,
                "registered_at": None,
            },
        )
    if missing:
        _upsert(connection, site, _MEMBERS, list({m["external_id"]: m for m in missing.values()}.values()))
        found = _find_members(connection, site, refs)
    return {ref: row["id"] for ref, row in found.items()}


def _plans(connection: Connection, site: Site, refs: set[PlanRef]) -> dict[PlanRef, dict[str, Any]]:
    """These plans, made where they are not known: without a price, of unknown period."""
    found = _find_plans(connection, site, refs)
    missing = {
        ref.external_id or _stub_of(ref.name): ref.name or ref.external_id or ""
        for ref in refs - found.keys()
    }
    if missing:
        made = [
            Plan(external_id, name, None, site.currency, "unknown", "active")
            for external_id, name in sorted(missing.items())
        ]
        _upsert(connection, site, _PLANS, [_values(plan) for plan in made])
        found = _find_plans(connection, site, refs)
    return found


def _find_plans(connection: Connection, site: Site, refs: set[PlanRef]) -> dict[PlanRef, dict[str, Any]]:
    rows = connection.execute(
        sa.text("""
select cast(id as text) as id, external_id, name, price_minor, currency, period from memberships
where user_id = :user_id and site_id = :site_id
  and (external_id = any(cast(:ids as text[])) or name = any(cast(:names as text[])))
order by created_at, id"""),
        {
            "user_id": site.user_id,
            "site_id": site.site_id,
            "ids": [r.external_id for r in refs if r.external_id],
            "names": [r.name for r in refs if r.name],
        },
    ).mappings()
    by_id: dict[str, dict[str, Any]] = {}
    by_name: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_id[row["external_id"]] = dict(row)
        by_name.setdefault(row["name"], dict(row))
    found = {
        ref: by_id.get(ref.external_id) if ref.external_id else by_name.get(ref.name or "") for ref in refs
    }
    return {ref: row for ref, row in found.items() if row}
