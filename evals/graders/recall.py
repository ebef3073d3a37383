"""Recalled numbers: dated, never passed off as today's, fetched afresh when today's are asked for, and with their tool named.

`expect` says what the question calls for: `recall` what was shown before, `now` the state now, `both`, or `either` where it names no
time, so that a fresh call and a dated old number are both right.
"""

from __future__ import annotations

import re
from decimal import Decimal

from evals.case import Fact, Facts, Reply, Verdict, verdict
from evals.graders.reading import days_in, names_day, numbers_in, passages, says
from evals.graders.words import phrases

_NOW, _COMPARES, _CONFIRMS = phrases("now"), phrases("compares"), phrases("confirms")
_NOT_NOW = phrases("not_now")  # takes a now-word back: "not today's figure", "may be different now"
_TOOL_NAME = re.compile(r"\b(?:query_\w+)")


def _fact(facts: Facts) -> Fact:
    assert facts.main is not None, "a case on recall is about a fact"
    return facts.main


def fetched(reply: Reply, fact: Fact) -> bool:
    """Whether the turn made a call whose result holds the live value."""
    return any(c.name.startswith("query_") and not c.is_error and _holds(c.output, fact) for c in reply.calls)


def _holds(output: object, fact: Fact) -> bool:
    return fact.new in numbers_in(re.sub(r"[\[\]{}\"':]", " ", str(output)))


def bare_old_value(reply: Reply, fact: Fact) -> str | None:
    """The fault of giving the old value, or the one before it, as the state now, or never with its day."""
    known = [(fact.old, fact.day)]
    if fact.earlier is not None and fact.earlier_day is not None:
        known.append((fact.earlier, fact.earlier_day))
    fresh = fetched(reply, fact)
    for value, day in known:
        told = [(near, passage) for near, passage in _with_neighbours(reply.text) if says(passage, value)]
        if any(_claims_now(passage, value, fact.new) for _, passage in told):
            return f"{value} of {day} is called the state now"
        dated = any(names_day(near, day) for near, _ in told)
        # "up from 46" beside the fresh number misleads nobody; where the day itself is asked for, other rules want it.
        compared = fresh and all(says(passage, fact.new) or _COMPARES.search(passage) for _, passage in told)
        if told and not dated and not compared:
            return f"{value} is given without its day, {day}"
    return None


def _claims_now(passage: str, value: Decimal, new: Decimal) -> bool:
    """Whether the clause with the old value says that it holds now, and nothing in the sentence takes that back."""
    return (
        bool(_NOW.search(_about(passage, value))) and not _NOT_NOW.search(passage) and not says(passage, new)
    )


def _about(passage: str, value: Decimal) -> str:
    """The clause of `passage` in which the value stands."""
    clauses = re.split(r"[;:—–]|,\s|\b(?:but|and|while|aber|und|pero|mais)\b", passage)
    return next((c for c in clauses if says(c, value)), passage)


def _with_neighbours(text: str) -> list[tuple[str, str]]:
    """Each passage, behind it and the ones beside it, which may date it: "On 5 May I looked this up. There were 46."."""
    found = passages(text)
    return [(" ".join(found[max(0, n - 1) : n + 2]), passage) for n, passage in enumerate(found)]


def recalled(reply: Reply, facts: Facts) -> str | None:
    """The fault of not giving the old value where it was asked for."""
    fact = _fact(facts)
    return None if says(reply.text, fact.old) else f"the value that was shown, {fact.old}, is not given"


def gave_live_value(reply: Reply, facts: Facts) -> str | None:
    """The fault of not having fetched and given the state now."""
    fact = _fact(facts)
    if not fetched(reply, fact):
        return "nothing was fetched for a question about now"
    return None if says(reply.text, fact.new) else f"the live value, {fact.new}, is not given"


def as_of_date(reply: Reply, facts: Facts, expect: str) -> Verdict:
    """Old numbers carry their day and are never called the state now; what was asked for is given."""
    fact = _fact(facts)
    wrong = bare_old_value(reply, fact)
    if expect == "recall":
        return verdict(recalled(reply, facts), wrong, _undated(reply, fact))
    if expect == "now":
        return verdict(gave_live_value(reply, facts), wrong)
    if expect == "both":
        return verdict(recalled(reply, facts), _undated(reply, fact), gave_live_value(reply, facts), wrong)
    either = None
    if not says(reply.text, fact.old) and gave_live_value(reply, facts):
        either = "neither the live value nor the old one with its day is given"
    return verdict(either, wrong)


def _undated(reply: Reply, fact: Fact) -> str | None:
    if not says(reply.text, fact.old) or names_day(reply.text, fact.day):
        return None
    return f"the day of the recalled value, {fact.day}, is not named"


def routing(reply: Reply, facts: Facts, expect: str) -> Verdict:
    """What was shown is recalled without a fresh call; the state now is fetched. How it is dated is for other gates."""
    fact = _fact(facts)
    if expect == "now":
        return verdict(gave_live_value(reply, facts))
    fresh = [call.name for call in reply.calls if call.name.startswith("query_")]
    live_instead = says(reply.text, fact.new) and not says(reply.text, fact.old)
    return verdict(
        f"{fresh[0]} was called for what was shown before" if fresh else None,
        "the live value is given for what was shown before" if live_instead else None,
        recalled(reply, facts),
    )


def citation(reply: Reply, facts: Facts) -> Verdict:
    """A recalled value is given with its day and the tool it came from, and with no other day or tool as its source."""
    fact = _fact(facts)
    if fault := recalled(reply, facts):
        return verdict(fault)
    around = [near for near, passage in _with_neighbours(reply.text) if says(passage, fact.old)]
    named = set(_TOOL_NAME.findall(reply.text))
    allowed = {
        fact.tool,
        *(call.name for call in reply.calls),
        *(_TOOL_NAME.findall("\n".join(reply.recalled))),
    }
    days = [d for text in around for d in days_in(text)]
    return verdict(
        None if any(names_day(t, fact.day) for t in around) or names_day(reply.text, fact.day) else f"its day, {fact.day}, is not named",
        f"it is dated otherwise: {fact.day} is meant" if days and not any(fact.day in d for d in days) else None,
        None if fact.tool in named else f"its tool, {fact.tool}, is not named",
        f"a tool that gave nothing is named: {sorted(named - allowed)}" if named - allowed else None,
        "an article is cited and none was found" if _cites_nothing_there(reply) else None,
    )  # fmt: skip


def _cites_nothing_there(reply: Reply) -> bool:
    has_sources = any('<data name="knowledge">' in prompt for prompt in reply.prompts)
    return not has_sources and re.search(r"(?<![\w\])])\[\d{1,2}\](?!\()", reply.text) is not None


def premise(reply: Reply, facts: Facts, expect: str) -> Verdict:
    """A question that assumes an outdated number is answered with the number that holds: fetched, or where the assumed number is the one
    before (`earlier`), the stored one with its day. The assumed number is not confirmed."""
    fact = _fact(facts)
    assumed = fact.earlier if expect == "earlier" and fact.earlier is not None else fact.old
    newer = expect == "earlier" and says(reply.text, fact.old) and names_day(reply.text, fact.day)
    corrected = newer or gave_live_value(reply, facts) is None
    return verdict(
        None if corrected else f"the assumed {assumed} is neither corrected nor looked up",
        f"the outdated {assumed} is confirmed" if _confirms(reply, assumed, fact) else None,
    )


def _confirms(reply: Reply, assumed: Decimal, fact: Fact) -> bool:
    """Whether the answer begins by agreeing to the assumed number, and with no newer one in the same breath."""
    first = next(iter(passages(reply.text)), "")
    agrees = _CONFIRMS.match(first.lstrip('¡*_"“ ')) is not None
    return agrees and says(first, assumed) and not says(first, fact.new)


def in_block(prompts: tuple[str, ...], facts: Facts) -> bool:
    """Whether the line with the fact, its value and its day, was in the recall block of a request that left."""
    fact = _fact(facts)
    return any(
        line.startswith(f"- {fact.day} {fact.tool}(") and fact.old in numbers_in(line.partition("): ")[2])
        for prompt in prompts
        for line in prompt.splitlines()
    )


def budget(reply: Reply, facts: Facts) -> Verdict:
    """The fact that answers the question stood in the block, and the answer gives it."""
    there = in_block(reply.prompts, facts)
    return verdict(None if there else "the fact did not survive in the block", recalled(reply, facts))
