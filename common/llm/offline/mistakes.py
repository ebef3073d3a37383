"""What becomes of a tool's error: a call mended as the error says, or one sentence in the customer's words. Never the error itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from common.llm.offline.context import sentences, words
from common.llm.offline.results import data_of
from common.text import one_line

ALREADY = "it is on record already"

# What an error means to the customer; groups of the pattern may be named in the sentence.
_MEANINGS = tuple(
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (r"reaches to (\S+) only", "the data reaches only to {0}"),
        (r"status is one of: (.+?)\.$", "the only kinds I can look up are: {0}"),
        (r"did not answer within", "looking it up took too long"),
        (r"the tool failed|looked up right now", "it cannot be looked up right now"),
        (r"wrong arguments|there is no tool", "I do not know how to look that up"),
        (r"memory is full(?: \((\d+) of \d+\))?", "I remember as much as I may; delete an entry first"),
        (r"already", ALREADY),
        (r"nothing of this conversation is remembered", "nothing of this conversation is to be remembered"),
        (r"customer did not say this", "I keep only what you say yourself"),
    )
)
_TO_THE_MODEL = re.compile(r"(?:ask|call|decide|give|keep|leave|mend|name|say|tell|use)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Mended:
    """A call's arguments made right, and what the customer must know about the change."""

    arguments: dict[str, Any]
    note: str


def reason(content: str) -> str:
    """Why a look-up failed, as the end of a sentence without its full stop; what was meant for the model alone is left out."""
    error = _error(content)
    for pattern, meaning in _MEANINGS:
        if found := pattern.search(error):
            return meaning.format(*(one_line(group or "", 120).replace("_", " ") for group in found.groups()))
    told = [s for s in sentences(error) if not _TO_THE_MODEL.match(s)]
    if told and told[0].startswith("There is no plan of that name"):
        told = [" ".join(told[:2]).replace(". The plans", "; the plans")]
    said = one_line(told[0], 200).rstrip(".") if told else "it cannot be looked up right now"
    return said[:1].lower() + said[1:]


def mended(arguments: dict[str, Any], content: str) -> Mended | None:
    """The arguments as the error says how to mend them; None where it does not."""
    error = _error(content)
    filters = dict(arguments.get("filters") or {})
    if error.startswith("since lies after until") and {"since", "until"} <= filters.keys():
        exchanged = {**filters, "since": filters["until"], "until": filters["since"]}
        return Mended(
            {**arguments, "filters": exchanged},
            f"I took it as {exchanged['since']} to {exchanged['until']}.",
        )
    if (found := re.match(r"The filter (\w+) does not work", error)) and found[1] in filters:
        del filters[found[1]]
        rest = {name: value for name, value in arguments.items() if name != "filters"}
        return Mended(
            {**rest, "filters": filters} if filters else rest,
            f"I cannot narrow this list by {found[1].removeprefix('min_')}, so it is shown without that.",
        )
    if (found := re.search(r"The plans are: (.+)\.$", error)) and (asked := str(filters.get("plan") or "")):
        near = [name for name in found[1].split(", ") if words(name) & words(asked)]
        if len(near) == 1 and near[0] != asked:
            return Mended(
                {**arguments, "filters": {**filters, "plan": near[0]}}, f'I took "{asked}" for "{near[0]}".'
            )
    if found := re.search(r"\b(limit|periods): Input should be less than or equal to (\d+)", error):
        return Mended({**arguments, found[1]: int(found[2])}, f"I can look up at most {found[2]} at once.")
    return None


def _error(content: str) -> str:
    return str(data_of(content).get("error") or content)
