"""The tool `query_site_data`: lists and counts of a site's plans, members, cancellations and transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, ConfigDict, Field

from common.shapes import Shape
from common.sites import listings, money
from common.sites.freshness import NO_IMPORT, NO_SITE, freshness
from common.sites.listings import Listing, Scope, Wanted
from common.text import one_line
from common.tools.types import Site, Tool, ToolContext, ToolMistake, ToolOutput

Target = Literal["memberships", "members", "recent_members", "cancellations", "transactions"]
RECENT = timedelta(days=30)

_PEOPLE = ("active", "cancelled", "no_plan")
STATUSES: dict[Target, tuple[str, ...]] = {
    "memberships": ("active", "inactive"),
    "members": _PEOPLE,
    "recent_members": _PEOPLE,
    "cancellations": ("active", "cancelled"),
    "transactions": ("complete", "pending", "failed", "refunded"),
}
_IN_TIME: tuple[Target, ...] = ("members", "recent_members", "cancellations", "transactions")
ONLY_FOR: dict[str, tuple[Target, ...]] = {
    "since": _IN_TIME,
    "until": _IN_TIME,
    "min_amount": ("transactions",),
}


class Filters(Shape):
    model_config = ConfigDict(extra="forbid")

    status: str | None = Field(
        default=None,
        description="; ".join(f"{target}: {' | '.join(values)}" for target, values in STATUSES.items()),
    )
    plan: str | None = Field(default=None, description="Name of a plan, in any case")
    since: date | None = Field(default=None, description="First day, YYYY-MM-DD, in the site's time zone")
    until: date | None = Field(default=None, description="Last day, inclusive")
    min_amount: Decimal | None = Field(
        default=None, ge=0, lt=10**12, description="Smallest amount in major units (49.50); transactions only"
    )
    search: str | None = Field(
        default=None, min_length=1, max_length=200, description="Part of a name or e-mail address"
    )


class Arguments(Shape):
    model_config = ConfigDict(extra="forbid")

    target: Target = Field(description="What to list")
    filters: Annotated[Filters, BeforeValidator(lambda given: {} if given is None else given)] = Field(
        default_factory=Filters, description="Conditions that hold together"
    )
    limit: int = Field(default=25, ge=1, le=200, description="Most rows to return; `total` counts beyond it")


DESCRIPTION = """\
Lists and counts from the user's site, as of the end of its imported data (`as_of`). `total` is the number of all rows that match.
- memberships: the plans it sells: price, period, status, and how many people are active on each.
- members: people, the latest registered first. status=active answers how many active members there are: a person is active with a
  subscription running at `as_of`, cancelled after having had one, no_plan without ever having had one. With `plan`, the status is about
  that plan. since and until are about the registration.
- recent_members: members who registered in the last 30 days before `as_of`; since and until replace that.
- cancellations: subscriptions that ended, the latest first; since and until are about the end. status=cancelled: the person has left,
  status=active: the person changed plans or came back.
- transactions: payments and refunds, the latest first, with `sums` of completed payments and refunds of all matching rows, one for each
  currency, never mixed. status=refunded gives the refunds.
Days are in the site's time zone, amounts in major units."""


def query_site_data(context: ToolContext, arguments: Arguments) -> ToolOutput:
    """The rows. Raises ToolMistake where there is no site, nothing was imported, or the filters do not fit the target."""
    site = context.site
    if site is None:
        raise ToolMistake(NO_SITE)
    if site.data_as_of is None:
        raise ToolMistake(NO_IMPORT)
    scope = Scope(context.user_id, site.id, site.timezone, site.data_as_of)
    wanted = _wanted(context, scope, arguments)
    listing = _LISTS[arguments.target](context.connection, scope, wanted)
    applied = asdict(wanted) | {"plans": None, "limit": None, "plan": arguments.filters.plan}
    data = {
        "target": arguments.target,
        "filters": {k: v if isinstance(v, str) else str(v) for k, v in applied.items() if v is not None},
        **freshness(site.data_as_of, context.now, site.timezone),
        "total": listing.total,
        "rows": [_TOLD[arguments.target](row, ZoneInfo(site.timezone)) for row in listing.rows],
    }
    if arguments.target == "transactions":
        data["sums"] = _sums(context, scope, wanted, site)
    return ToolOutput(data, site.data_as_of)


def _wanted(context: ToolContext, scope: Scope, arguments: Arguments) -> Wanted:
    """The filters, checked against the target, with defaults filled in."""
    target, filters = arguments.target, arguments.filters
    for name, targets in ONLY_FOR.items():
        if getattr(filters, name) is not None and target not in targets:
            raise ToolMistake(
                f"The filter {name} does not work with target {target}: leave it out, or use target {' or '.join(targets)}."
            )
    if filters.status is not None and filters.status not in STATUSES[target]:
        raise ToolMistake(f"For target {target}, status is one of: {', '.join(STATUSES[target])}.")
    last_day = scope.as_of.astimezone(ZoneInfo(scope.timezone)).date()
    if filters.since and filters.until and filters.since > filters.until:
        raise ToolMistake("since lies after until: exchange them.")
    if filters.since and filters.since > last_day:
        raise ToolMistake(f"The site's data reaches to {last_day} only: use an earlier since.")
    wanted = Wanted(
        status=filters.status,
        since=filters.since,
        until=filters.until,
        min_amount=filters.min_amount,
        search=filters.search,
        limit=arguments.limit,
    )
    if target == "recent_members" and not filters.since and not filters.until:
        wanted = replace(wanted, since=last_day - RECENT)
    if filters.plan is not None:
        wanted = replace(wanted, plans=_plans(context, scope, filters.plan))
    return wanted


def _plans(context: ToolContext, scope: Scope, name: str) -> list[Any]:
    known = listings.plan_names(context.connection, scope)
    same = [id_ for id_, known_name in known.items() if _folded(known_name) == _folded(name)]
    if not same:
        names = list(dict.fromkeys(one_line(n, 80) for n in known.values()))
        listed = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        raise ToolMistake(
            f"There is no plan of that name. The plans are: {listed}." if names else "The site has no plans."
        )
    return same


def _folded(name: str) -> str:
    return one_line(name, 500).casefold()


def _sums(context: ToolContext, scope: Scope, wanted: Wanted, site: Site) -> list[dict[str, Any]]:
    """The site's own currency first."""
    found = listings.sums(context.connection, scope, wanted)
    return [
        {
            "currency": s["currency"],
            **{k: money.to_major(s[k], s["currency"]) for k in ("payments", "refunds")},
        }
        for s in sorted(found, key=lambda s: (s["currency"] != site.currency, s["currency"]))
    ]


def _text(value: str | None) -> str | None:
    return None if value is None else one_line(value, 200)


def _day(moment: datetime | None, zone: ZoneInfo) -> str | None:
    return None if moment is None else moment.astimezone(zone).date().isoformat()


def _person(row: dict[str, Any]) -> dict[str, Any]:
    return {"name": _text(row["name"]), "email": _text(row["email"])}


def _membership(row: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    price = row["price_minor"]
    return {
        "name": _text(row["name"]),
        "price": None if price is None else money.to_major(price, row["currency"]),
        "currency": row["currency"],
        "period": row["period"],
        "status": row["status"],
        "active_members": row["active_members"],
    }


def _member(row: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    return {
        **_person(row),
        "registered": _day(row["registered_at"], zone),
        "status": row["status"],
        "plans": [one_line(name, 200) for name in row["plans"] or []],
    }


def _cancellation(row: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    return {
        **_person(row),
        "plan": _text(row["plan"]),
        "started": _day(row["started_at"], zone),
        "ended": _day(row["ended_at"], zone),
        "status": row["status"],
    }


def _transaction(row: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    return {
        "day": _day(row["occurred_at"], zone),
        "kind": row["kind"],
        "amount": money.to_major(row["amount_minor"], row["currency"]),
        "currency": row["currency"],
        "status": row["status"],
        **_person(row),
        "plan": _text(row["plan"]),
        "description": _text(row["description"]),
    }


_LISTS: dict[Target, Callable[..., Listing]] = {
    "memberships": listings.memberships,
    "members": listings.members,
    "recent_members": listings.members,
    "cancellations": listings.cancellations,
    "transactions": listings.transactions,
}
_TOLD: dict[Target, Callable[[dict[str, Any], ZoneInfo], dict[str, Any]]] = {
    "memberships": _membership,
    "members": _member,
    "recent_members": _member,
    "cancellations": _cancellation,
    "transactions": _transaction,
}


def signals(arguments: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The count under its noun, and one telling detail of the list."""
    target, total, rows = data["target"], data["total"], data["rows"]
    if target == "memberships":
        found: dict[str, Any] = {"plans": total}
        if rows:
            found["largest"] = {"name": one_line(rows[0]["name"], 60), "active": rows[0]["active_members"]}
        return found
    if target == "cancellations":
        return {"cancellations": total} | ({"last_ended": rows[0]["ended"]} if rows else {})
    if target == "transactions":
        paid = [f"{s['currency']} {s['payments']:,.{money.digits(s['currency'])}f}" for s in data["sums"][:1]]
        return {"transactions": total} | ({"paid": paid[0]} if paid else {})
    if target == "recent_members":
        return {"members": total} | ({"last_registered": rows[0]["registered"]} if rows else {})
    return {"members": total}


def summarise(new: dict[str, Any], old: dict[str, Any] | None, old_day: date | None) -> str:
    """'5 plans, Starter Pack 23 active', '8 members (was 6 on 2026-05-01), last registered 2026-05-10'."""
    noun = next(n for n in ("plans", "members", "cancellations", "transactions") if n in new)

    def was(before: Any, now: Any) -> str:
        return "" if before is None or before == now or old_day is None else f" (was {before} on {old_day})"

    old = old or {}
    line = f"{new[noun]:,} {noun if new[noun] != 1 else noun[:-1]}{was(old.get(noun), new[noun])}"
    if "largest" in new:
        name, active = new["largest"]["name"], new["largest"]["active"]
        before = old.get("largest") or {}
        line += f", {name} {active} active"
        line += was(before.get("active") if before.get("name") == name else None, active)
    if "last_registered" in new:
        line += f", last registered {new['last_registered']}"
    if "last_ended" in new:
        line += f", last ended {new['last_ended']}"
    if "paid" in new:
        line += f", {new['paid']} paid{was(old.get('paid'), new['paid'])}"
    return line


TOOL = Tool(
    name="query_site_data",
    description=DESCRIPTION,
    arguments=Arguments,
    handler=query_site_data,
    signals=signals,
    summarise=summarise,
    row_lists=("rows",),
)
