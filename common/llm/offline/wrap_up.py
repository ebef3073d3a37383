"""The offline model's wrap-ups: decisions, open items and facts, found in a transcript by readable rules.

Only the user decides: an assistant's suggestion counts when the user agrees right after it. Pasted or quoted text decides nothing.
A transcript is blocks that begin `[m1] user (2026-05-12): `.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from common.llm.offline.context import sentences, words
from common.llm.offline.cues import phrases
from common.text import one_line

MAX_WORDS = 400
_PROSE_WORDS = 120  # for summary, note and the names of the fields
_TEXT = 200


DECIDES = phrases(
    r"""let'?s(?! (?:see|talk|discuss|think|look));
    we'?ll (?:go with|do|use|keep|set|start|stop|raise|lower|launch|offer|run|move|switch|try|make|drop|add|send|close);
    we will; (?:we|i) won'?t; we(?:'re| are) going (?:to|with); i'?ll(?! (?:think|see|let you know|get back|check|ask)); i will;
    i(?:'m| am) going (?:to|with); (?:i|we)(?:'ve| have)? decided; decision(?: is)?:; agreed;
    it'?s settled; we(?:'re| are) doing; go with; (?:i|we) choose; settle on; lass(?:t)? uns;
    wir (?:machen|nehmen|werden|starten|senken|erhöhen);
    (?:ich|wir) (?:haben? .{0,60})?(?:entschieden|beschlossen); abgemacht; ich werde; vamos (?:a|con);
    hagamos; (?:he|hemos) decidido; decidimos; quedamos en; voy a"""
)
REVERSES = phrases(
    r"""actually; instead; scrap (?:that|it|the); on second thoughts?; changed (?:my|our) minds?;
    forget (?:that|about|it|the); never ?mind; rather than; not .{1,40} after all; no longer;
    cancel (?:that|the); doch (?:lieber|nicht); stattdessen; eigentlich; vergiss; en realidad; mejor;
    en (?:vez|lugar) de; olvida"""
)
DROPS = phrases(
    r"""scrap; forget; never ?mind; cancel; drop; no longer; vergiss; olvida; not .{1,40} after all"""
)
UNDECIDED = phrases(
    r"""(?:not|haven'?t|hasn'?t|n't|yet to) (?:yet )?(?:decided?|sure|settled); undecided;
    (?:can'?t|cannot|couldn'?t) decide; maybe; perhaps; might; what if; if (?:we|i); nicht entschieden;
    vielleicht; quizás?; tal vez"""
)
OPEN = phrases(
    r"""(?:i|we)(?:'ll| will)? (?:still )?(?:need|have|ought) to; todo; to-do; next steps?;
    still (?:have|need) to; open question; remains? to be; follow up; (?:i|we) (?:should|must);
    haven'?t (?:yet )?\w+; not decided; undecided; i'?ll (?:think|check|ask|get back|let you know);
    later we; müssen? noch; muss noch; offen; tenemos que; hay que; falta; todavía"""
)
FACT = phrases(
    r"""i (?:prefer|like|love|hate|dislike|want you to|always|never|usually); we prefer;
    (?:i|we)(?:'m| am|'re| are)(?! (?:going|doing|not sure|thinking|wondering|looking at));
    (?:my|our) (?:audience|members|customers|club|site|team|goal)s? (?:is|are|want|prefer|consists?);
    (?:my|our) (?:budget|business|brand|niche|community|name|partner|price|course)s? (?:is|are);
    (?:i|we) (?:run|own|sell|teach|offer|work with|serve|have a|have an); please (?:always|never); call me;
    ich bevorzuge; wir sind; unsere? \w+ (?:ist|sind); prefiero; somos; nuestr[oa]s? \w+ (?:es|son)"""
)
AGREES = re.compile(
    r"^\W*(?:yes|yep|yeah|agreed|sounds good|(?:good|great) idea|perfect|ok(?:ay)?|sure|deal|exactly|do (?:it|that)"
    r"|let'?s do (?:it|that)|i like (?:it|that)|ja|einverstanden|gute idee|sí|si|de acuerdo|buena idea|vale)\b",
    re.IGNORECASE,
)
SUGGESTS = phrases(
    r"""i(?:'d| would)? (?:suggest|recommend|propose); you could; you should; how about; what about; consider;
    why not; my (?:suggestion|recommendation); shall we; we could; would you like to; ich schlage vor;
    du könntest; sugiero; recomiendo; podrías"""
)
DONE = phrases(r"done; finished; already; i(?:'ve| have) (?:now )?\w+ed; is live; erledigt; hecho")

_BARE_AGREEMENT = re.compile(r"let'?s do (?:it|that)\b|do (?:it|that)\b", re.IGNORECASE)
_LEAD = re.compile(
    r"^(?:(?:and|but|so|ok(?:ay)?|yes|yep|no|well|great|perfect|right|hmm|actually|then|sorry|on second thoughts?"
    r"|scrap (?:that|it)|never ?mind|i changed my mind)\b[\s,:;.–—-]*)+",
    re.IGNORECASE,
)
_PASTED = re.compile(
    r"```.*?(?:```|\Z)|^\s*>.*$|<(\w+)[^>]*>.*?</\1>|[\"“](?:\S+\s+){3,}?\S*?[\"”]",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Line:
    """A message of the transcript."""

    id: str
    role: str
    text: str


@dataclass(frozen=True)
class Item:
    """A decision, an open item or a fact, and the messages it rests on."""

    text: str
    message_ids: tuple[str, ...]


def write_wrap_up(transcript: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The wrap-up of a transcript, at most `MAX_WORDS` words. Items are objects with `message_ids` unless the schema wants strings."""
    lines = read_transcript(transcript)
    decisions, open_items, facts = _extract(lines)
    lists = {"new_context": facts, "open_items": open_items, "decisions": decisions}
    kept = {name: list(items) for name, items in lists.items()}
    while sum(len(i.text.split()) for items in kept.values() for i in items) > MAX_WORDS - _PROSE_WORDS:
        max(kept.values(), key=len).pop(0)
    note = _note(kept["open_items"], kept["decisions"])
    result: dict[str, Any] = {"summary": _summary(lines, decisions, open_items)}
    for name, items in kept.items():
        as_text = schema.get("properties", {}).get(name, {}).get("items", {}).get("type") == "string"
        result[name] = [
            i.text if as_text else {"text": i.text, "message_ids": list(i.message_ids)} for i in items
        ]
    return {**result, "next_session_note": note}


def read_transcript(transcript: str) -> list[Line]:
    """The messages of the user and the assistant; anything else, tool results among it, is left out."""
    pieces = re.split(r"^\[(\w+)\] (\w+)(?: \(\d{4}-\d\d-\d\d[^)]*\))?: ?", transcript, flags=re.MULTILINE)
    found = zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True)
    return [
        Line(id, role, _PASTED.sub("[quoted]", text).strip())
        for id, role, text in found
        if role in ("user", "assistant")
    ]


def _extract(lines: list[Line]) -> tuple[list[Item], list[Item], list[Item]]:
    decisions: list[Item] = []
    open_items: list[Item] = []
    facts: list[Item] = []
    for at, line in enumerate(lines):
        if line.role != "user":
            continue
        before = lines[at - 1] if at and lines[at - 1].role == "assistant" else None
        agreed = _agreed(line, before)
        if agreed:
            decisions.append(agreed)
        for sentence in sentences(line.text):
            if sentence.endswith("?"):
                continue
            item = Item(_plain(sentence), (line.id,))
            if REVERSES.search(sentence) and (reversed_item := _reversed(sentence, decisions)):
                decisions.remove(reversed_item)
                if not _only_drops(sentence):
                    decisions.append(item)
            elif _decides(sentence) and not (agreed and _BARE_AGREEMENT.search(sentence)):
                decisions.append(item)
            elif DONE.search(sentence) and (closed := _closest(sentence, open_items)):
                open_items.remove(closed)
            elif OPEN.search(sentence) or (UNDECIDED.search(sentence) and DECIDES.search(sentence)):
                open_items.append(item)
            elif FACT.search(sentence):
                facts.append(item)
    if lines and lines[-1].role == "user" and lines[-1].text.rstrip().endswith("?"):
        open_items.append(Item(f"Unanswered: {_plain(lines[-1].text)}", (lines[-1].id,)))
    return _once(decisions), _once(open_items), _once(facts)


def _decides(sentence: str) -> bool:
    return bool(DECIDES.search(sentence)) and not UNDECIDED.search(sentence)


def _agreed(line: Line, before: Line | None) -> Item | None:
    """What the assistant suggested, when the user's answer begins with agreement and adds no decision of its own."""
    if before is None or not AGREES.match(line.text):
        return None
    if any(
        _decides(s) and not _BARE_AGREEMENT.search(s) and not AGREES.match(s) for s in sentences(line.text)
    ):
        return None
    suggested = [s for s in sentences(before.text) if SUGGESTS.search(s)]
    return Item(_plain(suggested[0]), (before.id, line.id)) if suggested else None


def _reversed(sentence: str, decisions: list[Item]) -> Item | None:
    """The earlier decision that this sentence takes back: the one it shares most words with, else the last."""
    return _closest(sentence, decisions) or (decisions[-1] if decisions else None)


def _closest(sentence: str, items: list[Item]) -> Item | None:
    shared = [(len(words(sentence) & words(item.text)), at) for at, item in enumerate(items)]
    count, at = max(shared, default=(0, 0))
    return items[at] if count else None


def _only_drops(sentence: str) -> bool:
    """Whether the sentence takes a decision back and puts none in its place."""
    return bool(DROPS.search(sentence)) and not DECIDES.search(_LEAD.sub("", sentence))


def _plain(text: str) -> str:
    bare = _LEAD.sub("", text).strip() or text
    return one_line(bare[:1].upper() + bare[1:], _TEXT)


def _once(items: list[Item]) -> list[Item]:
    return list({item.text.lower(): item for item in items}.values())


def _summary(lines: list[Line], decisions: list[Item], open_items: list[Item]) -> str:
    asked = [_plain(line.text) for line in lines if line.role == "user" and len(line.text.split()) > 3]
    if not asked:
        return "A short exchange without a topic."
    parts = [f"The session began with: {one_line(asked[0], 160)}"]
    if len(asked) > 1:
        parts.append(f"Later the user wrote: {one_line(asked[-1], 120)}")
    parts.append(f"{len(decisions)} decided, {len(open_items)} left open")
    return " ".join(part if part[-1] in ".!?…" else f"{part}." for part in parts)


def _note(open_items: list[Item], decisions: list[Item]) -> str:
    if open_items:
        return f"Take up what was left open: {open_items[-1].text}"
    if decisions:
        return f"Ask how it went: {decisions[-1].text}"
    return "Nothing was left open."
