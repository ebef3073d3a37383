"""From a model's answer to a wrap-up that may be kept: read, held against the transcript, and bounded. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from common.llm.types import StopReason
from common.memory.transcripts import Said, Transcript
from common.memory.wrap_up_prompts import MAX_WORDS
from common.shapes import Shape
from common.text import one_line, sanitise
from common.words import content_words, count_words

LISTS = ("decisions", "open_items", "new_context")
SUMMARY_WORDS = 120
NOTE_WORDS = 50
ITEM_CHARACTERS = 500
SUMMARY_CHARACTERS = 2_000


class UnusableAnswer(Exception):
    """An answer that is no wrap-up. `reason` is of a closed set; the text says to the model what was wrong."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


@dataclass(frozen=True)
class Item:
    """An entry of a list, and the ids of the stored messages it rests on."""

    text: str
    message_ids: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, "message_ids": list(self.message_ids)}


@dataclass(frozen=True)
class Draft:
    """A wrap-up that holds. `dropped` counts the entries that did not, `answered_words` the words of the whole answer as it came."""

    summary: str
    decisions: tuple[Item, ...]
    open_items: tuple[Item, ...]
    new_context: tuple[Item, ...]
    next_session_note: str
    dropped: int = 0
    answered_words: int = 0

    @property
    def words(self) -> int:
        items = (item.text for name in LISTS for item in getattr(self, name))
        return sum(map(count_words, [self.summary, self.next_session_note, *items]))


class _Item(Shape):
    text: str
    message_ids: list[str]


class _Answer(Shape):
    summary: str
    decisions: list[_Item]
    open_items: list[_Item]
    new_context: list[_Item]
    next_session_note: str

    @property
    def words(self) -> int:
        items = (item.text for name in LISTS for item in getattr(self, name))
        return sum(map(count_words, [self.summary, self.next_session_note, *items]))


_REFUSAL = re.compile(
    r"^\W*(?:(?:i['’]m|i am|we['’]re) (?:sorry|unable|not able)|sorry,|(?:i|we) (?:can(?:no|['’])t|could ?n[o'’]t|won['’]t)\b"
    r"|as an ai\b|ich kann (?:das |dies |ihnen |dir )?(?:leider )?nicht|es tut mir leid|tut mir leid|lo siento|no puedo\b)",
    re.IGNORECASE,
)


def read_draft(answer: str, stopped: StopReason, transcript: Transcript) -> Draft:
    """The wrap-up in a model's answer, sanitised, entries without support dropped. Raises UnusableAnswer for a refusal and for what is
    empty, cut off, no JSON or of another shape."""
    if stopped == "refusal":
        raise UnusableAnswer("refused", "it was a refusal.")
    if stopped not in ("end", "tool_use"):
        raise UnusableAnswer("cut_off", "it was cut off before its end; write less.")
    read = _parsed(answer)
    summary = sanitise(read.summary.strip(), SUMMARY_CHARACTERS)
    if not summary:
        raise UnusableAnswer("empty", "the summary was empty.")
    if _REFUSAL.match(summary):
        raise UnusableAnswer("refused", "the summary was a refusal.")
    kept = {name: _supported(name, getattr(read, name), transcript) for name in LISTS}
    named = sum(len(getattr(read, name)) for name in LISTS)
    return Draft(
        summary=summary,
        **kept,
        next_session_note=_one_line(read.next_session_note),
        dropped=named - sum(map(len, kept.values())),
        answered_words=read.words,
    )


def _parsed(answer: str) -> _Answer:
    """The object in `answer`; around it some models write a code fence or a few words."""
    if not answer.strip():
        raise UnusableAnswer("empty", "it was empty.")
    start = answer.find("{")
    try:
        value, _ = json.JSONDecoder().raw_decode(answer, max(start, 0))
        return _Answer.model_validate(value)
    except ValidationError as exc:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors(include_input=False)[:5]
        )
        raise UnusableAnswer("invalid", f"it has another shape than the schema ({wrong}).") from None
    except (ValueError, RecursionError):
        raise UnusableAnswer("invalid", "it is no valid JSON.") from None


def _supported(name: str, items: list[_Item], transcript: Transcript) -> tuple[Item, ...]:
    """The entries that rest on messages which exist and speak of the same; a decision on one of the customer's. Repeats once."""
    kept: dict[str, Item] = {}
    for item in items:
        text = _one_line(item.text)
        sources = [
            transcript.shown[id]
            for id in dict.fromkeys(map(_short, item.message_ids))
            if id in transcript.shown
        ]
        if text and _rests_on(name, text, sources):
            kept.setdefault(text.casefold(), Item(text, tuple(str(said.id) for said in sources)))
    return tuple(kept.values())


def _short(id: str) -> str:
    return id.strip().strip("[]")


def _rests_on(name: str, text: str, sources: list[Said]) -> bool:
    if name == "decisions" and not any(said.role == "user" for said in sources):
        return False
    words = content_words(text)
    return any(words & content_words(said.text) for said in sources)


def _one_line(text: str) -> str:
    return one_line(sanitise(text), ITEM_CHARACTERS)


def shortened(draft: Draft, limit: int = MAX_WORDS) -> Draft:
    """`draft` within `limit` words: the summary and the note cut at a sentence, then entries dropped from the end of the lists, context
    before open items before decisions."""
    if draft.words <= limit:
        return draft
    short = replace(
        draft,
        summary=cut_at_sentence(draft.summary, SUMMARY_WORDS),
        next_session_note=cut_at_sentence(draft.next_session_note, NOTE_WORDS),
    )
    for name in reversed(LISTS):
        while short.words > limit and getattr(short, name):
            short = replace(short, **{name: getattr(short, name)[:-1]})
    return short


def cut_at_sentence(text: str, limit: int) -> str:
    """The first sentences of `text` that have at most `limit` words together; of a first one that is longer, its beginning."""
    if count_words(text) <= limit:
        return text
    sentences = re.split(r"(?<=[.!?])\s+|(?<=[。！？])", text.strip())
    whole = _longest(len(sentences), lambda n: " ".join(sentences[:n]), limit)
    return whole or _longest(len(text), lambda n: text[:n], limit - 1).rstrip() + "…"


def _longest(size: int, prefix: Callable[[int], str], limit: int) -> str:
    """The longest prefix within the limit, by halving: prefixes only grow."""
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_words(prefix(middle)) <= limit else (low, middle - 1)
    return prefix(low)
