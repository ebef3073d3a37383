"""Who and what a row refers to: people and plans found among the site's, and made where they are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.sites.imports.records import MemberRef, PlanRef, plan_stub
from common.sites.imports.tables import MEMBERS, PLANS, Site, columns_of, insert, upsert
from common.text import to_json

_MOST_KNOWN = 100_000


@dataclass
class Known:
    """Whom and what the rows of a file have named so far: ids of people, rows of plans. It is for one file of one transaction, in which
    these cannot change, and starts afresh when it has grown large. With `dates`, people who are made get the first day of theirs that is
    known by then."""

    dates: bool = False
    people: dict[MemberRef, str] = field(default_factory=dict)
    plans: dict[PlanRef, dict[str, Any]] = field(default_factory=dict)

    def learn(
        self, connection: Connection, site: Site, people: Mapping[MemberRef, datetime], plans: set[PlanRef]
    ) -> None:
        """Look up, and make where there is none, those of `people` (with their first moment here) and `plans` that are not known yet."""
        if len(self.people) > _MOST_KNOWN:
            self.people.clear()
        if new := {ref: at if self.dates else None for ref, at in people.items() if ref not in self.people}:
            self.people |= members_of(connection, site, new)
        if unseen := plans - self.plans.keys():
            self.plans |= plans_of(connection, site, unseen)


_COLUMNS = "id, external_id, aliases, email, name, registered_at, created_at"


def _each_by(column: str, parameter: str) -> str:
    """The people whose `column` is one of the texts of a JSON array. Each is looked up by itself, which "offset 0" makes sure of: there
    are no statistics of what this very transaction wrote, and a join planned without them goes through everyone, each time."""
    return f"""
select m.* from jsonb_array_elements_text(cast(:{parameter} as jsonb)) as wanted(value)
cross join lateral (
    select {_COLUMNS} from members
    where user_id = :user_id and site_id = :site_id and {column} = wanted.value offset 0) as m"""


# Only in the state that misleads the planner, for the analysis keeps other imports waiting until this one is committed.
_COUNT_AGAIN = sa.text("""
select analyze_members() from pg_class
where oid = cast('members' as regclass) and relpages > 0 and reltuples = 0""")


def find_members(
    connection: Connection, site: Site, wanted: Iterable[MemberRef]
) -> dict[MemberRef, dict[str, Any]]:
    """Those of `wanted` that are known, as rows: by external id or an alias, else by address."""
    refs = list(wanted)
    connection.execute(_COUNT_AGAIN)
    ids, emails = [r.external_id for r in refs if r.external_id], [r.email for r in refs if r.email]
    own = {"user_id": site.user_id, "site_id": site.site_id, "ids": to_json(ids)}
    known = connection.execute(
        sa.text(
            f"{_each_by('external_id', 'ids')} union {_each_by('email', 'emails')} order by created_at, id"
        ),
        own | {"emails": to_json(emails)},
    ).mappings()
    # By itself, for under row level security an overlap of arrays keeps a condition beside it from using its index.
    aliased = connection.execute(
        sa.text(f"""
select {_COLUMNS} from members
where user_id = :user_id and site_id = :site_id
  and aliases is not null and aliases && array(select jsonb_array_elements_text(cast(:ids as jsonb)))"""),
        own,
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


def members_of(
    connection: Connection, site: Site, refs: Mapping[MemberRef, datetime | None]
) -> dict[MemberRef, str]:
    """The ids of these people, made where they are not known, with their moment as that of their registration."""
    found = find_members(connection, site, refs)
    ids = {ref: str(row["id"]) for ref, row in found.items()}
    made: dict[str, dict[str, Any]] = {}  # by external id
    made_for: dict[MemberRef, str] = {}
    by_key: dict[str, str] = {}
    for ref in sorted(refs.keys() - found.keys(), key=lambda r: (r.external_id or "", r.email or "")):
        external_id = by_key.setdefault(
            ref.email or ref.external_id or "", ref.external_id or ref.email or ""
        )
        made_for[ref] = external_id
        before = made.get(external_id)
        moments = [at for at in (refs[ref], before and before["registered_at"]) if at]
        made[external_id] = {
            "external_id": external_id,
            "aliases": None,
            "email": ref.email,
            "name": ref.name,
            "registered_at": min(moments, default=None),
        }
    if made:
        known = insert(connection, site, MEMBERS, columns_of(list(made.values()), MEMBERS.columns))
        if (
            others := made.keys() - known.keys()
        ):  # another's old address is this one's id, or another import was faster
            known |= _ids_of(connection, site, list(others))
        ids |= {ref: known[external_id] for ref, external_id in made_for.items()}
    return ids


def _ids_of(connection: Connection, site: Site, external_ids: list[str]) -> dict[str, str]:
    rows = connection.execute(
        sa.text(f"select external_id, cast(id as text) as id from ({_each_by('external_id', 'ids')}) as m"),
        {"user_id": site.user_id, "site_id": site.site_id, "ids": to_json(external_ids)},
    )
    return {row.external_id: row.id for row in rows}


def plans_of(connection: Connection, site: Site, refs: set[PlanRef]) -> dict[PlanRef, dict[str, Any]]:
    """These plans, made where they are not known: without a price, of unknown period."""
    found = find_plans(connection, site, refs)
    missing = {
        ref.external_id or plan_stub(ref.name): ref.name or ref.external_id or ""
        for ref in refs - found.keys()
    }
    if missing:
        made = [
            {
                "external_id": external_id,
                "name": name,
                "price_minor": None,
                "currency": site.currency,
                "period": "unknown",
                "status": "active",
            }
            for external_id, name in sorted(missing.items())
        ]
        upsert(connection, site, PLANS, columns_of(made, PLANS.columns))
        found = find_plans(connection, site, refs)
    return found


def find_plans(connection: Connection, site: Site, refs: set[PlanRef]) -> dict[PlanRef, dict[str, Any]]:
    """Those of `refs` that are known, as rows."""
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
