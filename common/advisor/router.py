"""The Router: where a query goes, decided from its own words alone. No model, no memory, no database.

It reads the raw query as a sequence of *cues*, the phrases in `cues/*.json` and the names of the site's plans, always the longest
that fits. A query reaches a skill only if **every** word of it was read, for the failure that matters is not a missed shortcut but
a skill that answers without the context the question leans on. An unknown word, a symbol, another language or an attempt at
injection therefore goes to the Advisor without needing a list of its own; the lists of what a skill cannot answer exist so that the
reasons say why. Three gates stand in the way of high confidence:

* *reference*: a cue that points at earlier talk ("those", "again", "you showed me", a leading "and"), a comparison whose other
  side is not a period named in the query, a bound without its period ("since then"), a quantity without its noun ("the last two");
* *beyond*: advice, how-to, explanations, opinions, forecasts, writing, memory, actions, negations, injection, anything unread;
* *entity*: one entity that a skill owns (others only where they qualify it, such as a plan's name) and an intent cue; the table
  of `cues/entities.json` says which skill answers that pair, if any does.

Plan names are matched without regard to case, so capitals are no evidence. A name with a word of its own ("Gold Plan", "Pro") is
recognised anywhere. One made only of words the lists know ("Next Level", "Trends") is recognised in quotes, beside a word such as
"plan", or after a preposition. One that reads as a reference cue ("Those", "Last", "Again") is recognised in quotes only: unquoted
it stays a reference. Where a wording could be either, the query is demoted: that costs a little money, a wrong route costs trust.

A misspelt word of five letters or more is read as the one cue word a single edit away.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from common.advisor.cue_reader import UNREAD, Cue, read_cues, read_json

Name = Literal["kpi", "site_data", "revenue", "advisor"]

MAX_CHARACTERS = (
    400  # nothing a skill can answer takes more; it also bounds the work a hostile query can cause
)
# The strongest intent in a query decides: "show me how many" is a count, "list … by week" a trend.
INTENTS = ("trend", "list", "count", "who", "series", "show", "value", "period")
LIGHT = frozenset(("filler", "owner", "skip", "join"))
QUALIFIERS = frozenset(("plan", "attribute"))
END = Cue("", {})


@dataclass(frozen=True)
class Route:
    """Who answers, how sure that is, and the cues behind it (`gate-or-kind:cue`), never the customer's own words."""

    name: Name
    confidence: Literal["high", "low"]
    reasons: tuple[str, ...]


class Entity(NamedTuple):
    """A row of the routing table: the skill for each intent, alone or on a named plan, and what may qualify it."""

    kind: str
    skills: Mapping[str, Name]
    on_a_plan: Mapping[str, Name]
    companions: frozenset[str]


def route(query: str, plan_names: Sequence[str] = ()) -> Route:
    """Returns the route of a raw query on a site with these plans. Deterministic; never raises; ignores case and spacing."""
    text = " ".join(query.split())
    if len(text) > MAX_CHARACTERS:
        return Route("advisor", "low", ("beyond:length",))
    cues = read_cues(text, tuple(plan_names))
    found = {cue.says["entity"]: cue for cue in cues if "entity" in cue.says}
    intent = _intent(cues)
    blocked = [*_references(cues), *_beyond(cues)]
    if not blocked and _has(cues, "asks_meaning") and not _is_about_this_site(cues):
        blocked.append(
            "explanation:definition"
        )  # "what is MRR?" asks for knowledge, "what is our MRR?" for a number
    skill = _skill(cues, found, intent, blocked)
    reasons = [f"entity:{_entities()[name].kind}:{_label(name, cue)}" for name, cue in found.items()]
    if intent:
        reasons.append(f"intent:{intent}")
    if skill is None or blocked:
        return Route("advisor", "low", tuple(dict.fromkeys([*blocked, *reasons])))
    return Route(skill, "high", tuple(reasons))


def _skill(cues: list[Cue], found: Mapping[str, Cue], intent: str | None, blocked: list[str]) -> Name | None:
    """Returns the skill that answers, or none and adds to `blocked` what the entity gate misses."""
    entities = _entities()
    if not found:
        blocked.append("missing:entity")
    if not intent:
        blocked.append("missing:intent")
    if not found or not intent:
        return None
    heads = [
        name for name in entities if name in found and found.keys() - {name} <= entities[name].companions
    ]
    if not heads or _joins_entities(cues):
        blocked.append("mixed:" + "+".join(found))
        return None
    head = entities[heads[0]]
    skill = (head.on_a_plan if "plan_name" in found else head.skills).get(intent)
    if skill is None:
        blocked.append(f"unsupported:{heads[0]}:{intent}")
    return skill


def _intent(cues: list[Cue]) -> str | None:
    """Returns the strongest intent; a bare verb of change counts in "did … grow", and a period alone asks for its value."""
    said = {cue.says["intent"] for cue in cues if "intent" in cue.says}
    said |= {"trend"} if _has(cues, "change") and _has(cues, "auxiliary") else set()
    said |= {"period"} if _has(cues, "period") else set()
    return next((intent for intent in INTENTS if intent in said), None)


def _references(cues: list[Cue]) -> Iterator[str]:
    """Yields each cue that leans on something outside the query."""
    opening = next((cue for cue in cues if not cue.says.keys() & {"greeting", "skip"}), UNREAD)
    if "leading" in opening.says:
        yield f"reference:{opening.phrase}"
    for i, cue in enumerate(cues):
        dangling = ("bound" in cue.says and not _next_is(cues, i, "period")) or (
            "quantity" in cue.says and not _next_is(cues, i, "entity", "quantity")
        )
        if "reference" in cue.says or dangling:
            yield f"reference:{cue.phrase}"
    against_a_period = any(
        cue.says.keys() & {"comparator", "join"} and _next_is(cues, i, "period") for i, cue in enumerate(cues)
    )
    if not against_a_period:
        yield from (f"reference:{cue.phrase}" for cue in cues if "comparison" in cue.says)


def _beyond(cues: list[Cue]) -> Iterator[str]:
    """Yields what no skill answers: the listed cues, and counts of what could not be read."""
    can_change = _has(cues, "auxiliary")
    beside_a_plan = any(cue.says.get("entity") == "plan_name" for cue in cues)
    unread = {"words": 0, "symbols": 0}
    for i, cue in enumerate(cues):
        if "beyond" in cue.says:
            yield f"{cue.says['beyond']}:{cue.phrase}"
        if "change" in cue.says and not can_change:
            yield f"advice:{cue.phrase}"
        if "number" in cue.says and not _next_is(cues, i, "entity", "quantity"):
            unread["words"] += 1
        if "plan_noun" in cue.says and "entity" not in cue.says and not beside_a_plan:
            unread["words"] += 1
        if "unread" in cue.says:
            unread[cue.says["unread"]] += 1
    yield from (f"unread:{kind}:{count}" for kind, count in unread.items() if count)


def _is_about_this_site(cues: list[Cue]) -> bool:
    return any(cue.says.keys() & {"owner", "period"} or cue.says.get("entity") == "plan_name" for cue in cues)


def _joins_entities(cues: list[Cue]) -> bool:
    """Says whether "and", a comma or the like stands between two things to ask about: two questions, not one."""
    seen = False
    for i, cue in enumerate(cues):
        following = _next(cues, i).says.get("entity")
        if "join" in cue.says and seen and following and _entities()[following].kind not in QUALIFIERS:
            return True
        seen = seen or "entity" in cue.says
    return False


def _has(cues: list[Cue], kind: str) -> bool:
    return any(kind in cue.says for cue in cues)


def _next_is(cues: list[Cue], i: int, *kinds: str) -> bool:
    """Says whether the next cue of weight after `i` is of one of these kinds."""
    return not _next(cues, i).says.keys().isdisjoint(kinds)


def _next(cues: list[Cue], i: int) -> Cue:
    """Returns the first cue after `i` that is more than filler."""
    return next((cue for cue in cues[i + 1 :] if cue.says.keys() - LIGHT), END)


def _label(name: str, cue: Cue) -> str:
    return cue.phrase if name == "plan_name" else name


@cache
def _entities() -> Mapping[str, Entity]:
    return {
        name: Entity(row["kind"], row["skills"], row["on_a_plan"], frozenset(row["with"]))
        for name, row in read_json("entities").items()
    }
