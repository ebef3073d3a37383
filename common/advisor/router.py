"""The Router: where a query goes, decided from its own words alone. No model, no memory, no database.

It reads the raw query as a sequence of *cues*: the phrases in `cues/*.json` and the names of the site's
plans, always the longest that fits. A query reaches a skill only if **every** word of it was read, for the
failure that matters is not a missed shortcut but a skill that answers without the context that the question
leans on. An unknown word, a symbol, another language or an attempt at injection therefore goes to the Advisor
without needing a list of its own; the lists of what a skill cannot answer exist so that the reasons say why.
Three gates stand before high confidence:

* *reference*: a cue that points at earlier talk ("those", "again", "you showed me", a leading "and"), a
  comparison whose other side is not a period named in the query, a bound without its period ("since then"),
  a quantity without its noun ("the last two");
* *beyond*: advice, how-to, explanations, opinions, forecasts, writing, memory, actions, negations, injection,
  anything that could not be read;
* *entity*: one entity that a skill owns (others only where they qualify it, such as a plan's name) and an
  intent cue; the table of `cues/entities.json` says which skill answers that pair, if any does.

Plan names are matched without regard to case, so capitals are no evidence. A name with a word of its own
("Gold Plan", "Pro") is recognised anywhere. One made only of words that the lists know ("Next Level",
"Trends") is recognised in quotes, beside a word such as "plan", or after a preposition. One that reads as a
reference cue ("Those", "Last", "Again") is recognised in quotes only: unquoted it stays a reference. Where a
wording could be either, the query is demoted: that costs a little money, a wrong route costs trust.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

from common.advisor.cue_reader import Cue, read_cues, read_json

Name = Literal["kpi", "site_data", "revenue", "advisor"]

# The strongest intent in a query decides: "show me how many" is a count, "list … by week" a trend.
INTENTS = ("trend", "list", "count", "who", "series", "show", "value", "period")
LIGHT = frozenset(("filler", "filter", "owner", "skip", "join"))
QUALIFIERS = frozenset(("plan", "attribute"))
END = Cue("", {})


class Route(NamedTuple):
    """Who answers, how sure that is, and why: `kind:cue` from our lists and plan names, never other text."""

    name: Name
    confidence: Literal["high", "low"]
    reasons: tuple[str, ...]


class Entity(NamedTuple):
    """A row of the routing table: the skill for each intent, alone or on a plan, and what may qualify it."""

    kind: str
    skills: Mapping[str, Name]
    on_a_plan: Mapping[str, Name]
    companions: frozenset[str]


class Step(NamedTuple):
    """A cue and the next one after it that is more than filler."""

    cue: Cue
    following: Cue


def route(query: str, plan_names: Sequence[str] = ()) -> Route:
    """Returns the route of a raw query on a site with these plans. Never raises; ignores case and spacing."""
    cues = read_cues(query, tuple(plan_names))
    steps = _steps(cues)
    found = {cue.says["entity"]: cue for cue in cues if "entity" in cue.says}
    intent = _intent(cues)
    blocked = [*_references(steps), *_beyond(steps), *_missing(steps, found, intent)]
    skill: Name | None = None
    if not blocked and intent:
        head = _head(steps, found)
        skill = _skill(head, found, intent)
        if head is None:
            blocked.append("mixed:" + "+".join(found))
        elif skill is None:
            blocked.append(f"unsupported:{head}:{intent}")
    reasons = [*blocked, *(_entity_reason(name, cue) for name, cue in found.items())]
    if intent:
        reasons.append(f"intent:{intent}")
    return Route(skill or "advisor", "high" if skill else "low", tuple(dict.fromkeys(reasons)))


def _steps(cues: Sequence[Cue]) -> list[Step]:
    steps, following = [], END
    for cue in reversed(cues):
        steps.append(Step(cue, following))
        if cue.says.keys() - LIGHT:
            following = cue
    return steps[::-1]


def _intent(cues: Sequence[Cue]) -> str | None:
    """Returns the strongest intent. "Did … grow" asks for a trend, a period alone for the value in it."""
    said = {cue.says["intent"] for cue in cues if "intent" in cue.says}
    kinds = _kinds(cues)
    if {"change", "auxiliary"} <= kinds:
        said.add("trend")
    if "period" in kinds:
        said.add("period")
    return next((intent for intent in INTENTS if intent in said), None)


def _references(steps: Sequence[Step]) -> Iterator[str]:
    """Yields each cue that leans on something outside the query."""
    opening = next((cue for cue, _ in steps if not cue.says.keys() & {"greeting", "skip"}), END)
    if "leading" in opening.says:
        yield f"reference:{opening.phrase}"
    for cue, following in steps:
        unbounded = "bound" in cue.says and "period" not in following.says
        uncounted = "quantity" in cue.says and not following.says.keys() & {"entity", "quantity"}
        if "reference" in cue.says or unbounded or uncounted:
            yield f"reference:{cue.phrase}"
    if not any(_sets_against_a_period(step) for step in steps):
        yield from (f"reference:{cue.phrase}" for cue, _ in steps if "comparison" in cue.says)


def _sets_against_a_period(step: Step) -> bool:
    """Says whether a comparison has its other side here: "to last month", "(May) and June"."""
    between = step.cue.says.keys() & {"comparator", "join"} and "skip" not in step.cue.says
    return bool(between) and "period" in step.following.says


def _beyond(steps: Sequence[Step]) -> Iterator[str]:
    """Yields what no skill answers: the listed cues, and counts of what could not be read."""
    kinds = _kinds(cue for cue, _ in steps)
    names_a_plan = any(cue.says.get("entity") == "plan_name" for cue, _ in steps)
    unread = {"words": 0, "symbols": 0, "length": 0}
    for cue, following in steps:
        if "beyond" in cue.says:
            yield f"{cue.says['beyond']}:{cue.phrase}"
        if "change" in cue.says and "auxiliary" not in kinds:
            yield f"advice:{cue.phrase}"  # "increase my revenue"
        loose_number = "number" in cue.says and not following.says.keys() & {"entity", "quantity"}
        loose_noun = "plan_noun" in cue.says and "entity" not in cue.says and not names_a_plan
        if "unread" in cue.says or loose_number or loose_noun:
            unread[cue.says.get("unread", "words")] += 1
    yield from (f"unread:{kind}:{count}" for kind, count in unread.items() if count)
    if "asks_meaning" in kinds and not names_a_plan and not kinds & {"owner", "period"}:
        yield "explanation:definition"  # "what is MRR?" asks for knowledge, "what is our MRR?" for a number


def _missing(steps: Sequence[Step], found: Mapping[str, Cue], intent: str | None) -> Iterator[str]:
    """Yields what a question needs and this one lacks. One cue alone is none: "which plans"."""
    if sum(not cue.says.keys() <= LIGHT - {"owner", "filter"} for cue, _ in steps) == 1:
        yield "missing:question"
    if not found:
        yield "missing:entity"
    if not intent:
        yield "missing:intent"


def _head(steps: Sequence[Step], found: Mapping[str, Cue]) -> str | None:
    """Returns the entity that is asked about, or None where there are two: each other one must qualify it."""
    entities, seen = _entities(), False
    for cue, following in steps:
        second = following.says.get("entity")
        if seen and "join" in cue.says and second and entities[second].kind not in QUALIFIERS:
            return None  # "members and revenue"
        seen = seen or "entity" in cue.says
    names = found.keys()
    return next((n for n in entities if n in names and names - {n} <= entities[n].companions), None)


def _skill(head: str | None, found: Mapping[str, Cue], intent: str) -> Name | None:
    if head is None:
        return None
    entity = _entities()[head]
    return (entity.on_a_plan if "plan_name" in found else entity.skills).get(intent)


def _entity_reason(name: str, cue: Cue) -> str:
    return f"entity:{_entities()[name].kind}:{cue.phrase if name == 'plan_name' else name}"


def _kinds(cues: Iterable[Cue]) -> set[str]:
    return {kind for cue in cues for kind in cue.says}


@cache
def _entities() -> Mapping[str, Entity]:
    """Returns the routing table; the order of its rows decides between two possible heads."""
    return {
        name: Entity(row["kind"], row["skills"], row["on_a_plan"], frozenset(row["with"]))
        for name, row in read_json("entities").items()
    }
