"""What a grader may hold an answer against: what the tools returned when the world was made, and what the same calls return now."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from common import db
from common.llm.types import ToolCall
from common.text import canonical_hash
from common.tools.run import run_tool
from common.tools.types import Site
from evals.case import Case, Fact, Facts

NOW = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Person:
    """Whose world it is: their account and their site."""

    email: str
    user_id: uuid.UUID
    site: Site


@dataclass(frozen=True)
class Call:
    """A tool call of a seeding turn and what it returned."""

    name: str
    input: dict[str, Any]
    output: dict[str, Any]
    at: datetime


def facts_of(person: Person, scene: dict[str, Any], calls: list[Call], case: Case) -> Facts:
    """The facts of a case in its scene, whose seeding turns made these calls."""
    facts = Facts(
        today=NOW.astimezone(ZoneInfo(person.site.timezone)).date(),
        told=tuple(case.data.get("told", ())),
        told_day=_told_day(scene, case),
        invented=tuple(case.data.get("invented", ())),
        secrets=tuple(scene.get("secrets", ())),
        attack=case.data.get("attack", {}),
    )
    if case.about in scene.get("facts", {}):
        return replace(facts, main=_fact(person, scene["facts"][case.about], calls))
    return facts


def _told_day(scene: dict[str, Any], case: Case) -> date | None:
    """The day of the session that the case is about: the one it names, or the scene's only one."""
    days = (
        [case.data["told_day"]]
        if "told_day" in case.data
        else [s["at"][:10] for s in scene.get("sessions", [])]
    )
    return date.fromisoformat(days[0]) if len(days) == 1 and case.expect == "wrap_up" else None


def _fact(person: Person, where: dict[str, Any], calls: list[Call]) -> Fact:
    """The fact at `call` (counted over the scene's turns) and `path`, with what the same call gives now and gave before."""
    call = calls[where["call"]]
    zone = ZoneInfo(person.site.timezone)
    before = [
        c for c in calls[: where["call"]] if canonical_hash([c.name, c.input]) == canonical_hash([call.name, call.input])
    ]  # fmt: skip
    earlier = before[-1] if before else None
    fact = Fact(
        tool=call.name,
        arguments=call.input,
        old=value_at(call.output, where["path"]),
        day=call.at.astimezone(zone).date(),
        new=value_at(_live(person, call), where["path"]),
        earlier=value_at(earlier.output, where["path"]) if earlier else None,
        earlier_day=earlier.at.astimezone(zone).date() if earlier else None,
    )
    told = [v for v in (fact.earlier, fact.old, fact.new) if v is not None]
    assert len(set(told)) == len(told), f"the values must differ: {fact}"
    assert min(told) >= 10, f"smaller numbers occur in any text: {fact}"
    return fact


def _live(person: Person, call: Call) -> dict[str, Any]:
    """What the call returns now."""
    with db.user_transaction(person.user_id) as connection:
        as_of = connection.scalar(
            sa.text("select data_as_of from sites where user_id = :user_id and id = :id"),
            {"user_id": person.user_id, "id": person.site.id},
        )

    site = Site(person.site.id, "Club", "USD", person.site.timezone, as_of)
    return run_tool(
        ToolCall("live", call.name, call.input),
        allowed=frozenset({call.name}),
        open_transaction=lambda limits: db.user_transaction(person.user_id, local=limits),
        user_id=person.user_id,
        site=site,
        conversation_id=uuid.uuid4(),
        now=NOW,
    ).output


def value_at(output: dict[str, Any], path: str) -> Decimal:
    """The number at `path`: `latest` of a trend, the `total` or the `payments` of a list, `active:Gold` people on a plan."""
    kind, _, name = path.partition(":")
    found: Any = {
        "latest": lambda: output["series"][0]["latest"]["value"],
        "total": lambda: output["total"],
        "payments": lambda: output["sums"][0]["payments"],
        "active": lambda: next(row["active_members"] for row in output["rows"] if row["name"] == name),
    }[kind]()
    return Decimal(str(found)).normalize() + 0


def filled(ask: str, facts: Facts) -> str:
    """The question with its placeholders filled: {old}, {earlier} and {new}, {day} as ISO and {day_long} as "5 May"."""
    fact = facts.main
    if fact is None:
        return ask
    days = {"day": fact.day, "earlier_day": fact.earlier_day}
    words = {"old": fact.old, "new": fact.new, "earlier": fact.earlier}
    values = {k: f"{v:f}" for k, v in words.items() if v is not None}
    for name, day in days.items():
        if day is not None:
            values |= {name: day.isoformat(), f"{name}_long": f"{day.day} {day:%B}"}
    return ask.format(**values)
