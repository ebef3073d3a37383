"""Writing records: batches of upserts on (site_id, external_id), in the transaction of the caller.

Nothing is written for what is already so, which is how a second import of a file changes nothing. A batch is a bounded number of rows,
whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.sites.imports.records import (
    Member,
    MemberRef,
    Plan,
    PlanRef,
    Record,
    Subscription,
    Transaction,
    plan_stub,
)
from common.sites.imports.references import Known, find_members, find_plans
from common.sites.imports.tables import (
    MEMBERS,
    PLANS,
    SUBSCRIPTIONS,
    TRANSACTIONS,
    Key,
    Site,
    Table,
    columns_of,
    upsert,
)
from common.text import to_json

_TABLES: dict[type[Record], str] = {
    Plan: PLANS.name,
    Member: MEMBERS.name,
    Subscription: SUBSCRIPTIONS.name,
    Transaction: TRANSACTIONS.name,
}


def key_of(record: Record) -> Key:
    """The key that tells a record from all others of its site."""
    return _TABLES[type(record)], record.external_id


def write(
    connection: Connection, site: Site, records: Sequence[Record], known: Known | None = None
) -> dict[Key, bool]:
    """Upsert `records`, of which no two have the same key. Returns the keys that were written: True where added, False where changed;
    what is missing was already so. People and plans that are named and not `known` are found or made."""
    known = known or Known()
    written: dict[Key, bool] = {}
    written |= _write_plans(connection, site, [r for r in records if isinstance(r, Plan)])
    written |= _write_members(connection, site, [r for r in records if isinstance(r, Member)])
    named = [r for r in records if isinstance(r, Subscription | Transaction)]
    known.learn(connection, site, _first_moments(named), {r.plan for r in named if r.plan})
    subscriptions = [r for r in named if isinstance(r, Subscription)]
    written |= upsert(connection, site, SUBSCRIPTIONS, _referring(subscriptions, Subscription._fields, known))
    transactions = [r for r in named if isinstance(r, Transaction)]
    written |= upsert(connection, site, TRANSACTIONS, _referring(transactions, Transaction._fields, known))
    return written


def _first_moments(records: Sequence[Subscription | Transaction]) -> dict[MemberRef, datetime]:
    first: dict[MemberRef, datetime] = {}
    for record in records:
        if record.member:
            at = record.started_at if isinstance(record, Subscription) else record.occurred_at
            first[record.member] = min(at, first.get(record.member, at))
    return first


def date_registrations(connection: Connection, site: Site, *, made_with_dates: bool) -> int:
    """Give people without a day of registration the moment of their first subscription or payment. Returns how many got it.

    `made_with_dates`: no file of this transaction was of people, so that who was made in it was made because a subscription or a payment
    named them, with the moment of one of theirs; it is put right where a later row has an earlier one.
    """
    # There are no statistics of what this very transaction wrote, and a nested loop chosen without them goes through every payment for
    # every person.
    connection.execute(sa.text("set local enable_nestloop = off"))
    dated: int = connection.scalar(
        sa.text("""
with dated as (
    update members as m set registered_at = seen.first_at
    from (
        select member_id, min(at) as first_at from (
            select member_id, started_at as at from subscriptions where user_id = :user_id and site_id = :site_id
            union all
            select member_id, occurred_at from transactions where user_id = :user_id and site_id = :site_id
        ) as moments group by member_id
    ) as seen
    where m.id = seen.member_id and m.user_id = :user_id and m.site_id = :site_id
      and (m.registered_at is null or (:made_with_dates and m.created_at = now() and m.registered_at > seen.first_at))
    returning old.registered_at as before)
select (select count(*) from dated where before is null)
     + (select count(*) from members where :made_with_dates and user_id = :user_id and site_id = :site_id
          and created_at = now() and registered_at is not null)"""),
        {"user_id": site.user_id, "site_id": site.site_id, "made_with_dates": made_with_dates},
    )
    connection.execute(sa.text("set local enable_nestloop = on"))
    return dated


def _name_stubs(connection: Connection, site: Site, table: Table, stubs: dict[str, str]) -> None:
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


def _write_plans(connection: Connection, site: Site, plans: list[Plan]) -> dict[Key, bool]:
    """A plan that comes without an id is the one of its name, where there is one."""
    if not plans:
        return {}
    nameless = {PlanRef(None, p.name) for p in plans if p.external_id == plan_stub(p.name)}
    known = {
        plan_stub(ref.name): row["external_id"] for ref, row in find_plans(connection, site, nameless).items()
    }
    _name_stubs(connection, site, PLANS, {plan_stub(p.name): p.external_id for p in reversed(plans)})
    found = [p._replace(external_id=known.get(p.external_id, p.external_id)) for p in plans]
    done = upsert(connection, site, PLANS, _columns(found, Plan._fields))
    lines = {external_id: stub for stub, external_id in known.items()}
    return {
        ("memberships", lines.get(external_id, external_id)): added
        for (_, external_id), added in done.items()
    }


def _write_members(connection: Connection, site: Site, members: list[Member]) -> dict[Key, bool]:
    """One address is one person: a row that finds its person by the address alone, under another external id, fills in what is
    missing and the earlier day of registration, and replaces nothing."""
    if not members:
        return {}
    refs = [MemberRef(m.external_id, m.email) for m in members]
    found = find_members(connection, site, refs)
    stubs = {row["email"] for row in found.values() if row["external_id"] == row["email"]}
    if stubs:
        named = {m.email: m.external_id for m in reversed(members) if m.email and m.email in stubs}
        _name_stubs(connection, site, MEMBERS, named)
        found = find_members(connection, site, refs)
    by_email = {row["email"]: row for row in found.values() if row["email"]}
    rows: dict[str, dict[str, Any]] = {}
    lines: dict[str, str] = {}
    for member in members:
        values = member._asdict() | {"aliases": None}
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
    done = upsert(connection, site, MEMBERS, columns_of(list(rows.values()), MEMBERS.columns))
    return {("members", lines[external_id]): added for (_, external_id), added in done.items()}


def _columns(records: Sequence[Record], fields: Sequence[str]) -> dict[str, list[Any]]:
    columns = zip(*records, strict=True) if records else ((),) * len(fields)
    return {name: list(values) for name, values in zip(fields, columns, strict=True)}


def _referring(
    records: Sequence[Subscription | Transaction], fields: Sequence[str], known: Known
) -> dict[str, list[Any]]:
    """The columns, members and plans as ids. A subscription that has no price or no period has its plan's."""
    columns = _columns(records, fields)
    plans = [known.plans[plan] if plan else None for plan in columns["plan"]]
    columns["member_id"] = [known.people[member] if member else None for member in columns["member"]]
    columns["membership_id"] = [plan["id"] if plan else None for plan in plans]
    if "period" in columns:
        for i, plan in enumerate(plans):
            if plan and columns["price_minor"][i] is None and plan["price_minor"] is not None:
                columns["price_minor"][i], columns["currency"][i] = plan["price_minor"], plan["currency"]
            if plan and columns["period"][i] == "unknown":
                columns["period"][i] = plan["period"]
    return columns
