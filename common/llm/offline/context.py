"""What the system prompt tells the offline model: the dated lines, memories, sessions and numbered sources in its sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from common.llm.types import ModelRequest

_EMPTY_WORDS = """a about an and any are as at be been but by can could did do does for from get got go had has have how i if in
is it its last me my not of on or our said say should show so tell that the their them there they this time to us was we were
what when where which who why will with would you your
der die das und ich du wir hast habe haben hat mir was wann wie wer ist bei mal uns el la los las de en es que qué me
mi le les des du nous vous est que quoi"""
_STOP = frozenset(_EMPTY_WORDS.split())
_FENCE = re.compile(r"^\s*</?data\b[^>\n]*>\s*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Fetched:
    """A line of the block "Previously fetched"."""

    day: str
    tool: str
    arguments: str
    summary: str


@dataclass(frozen=True)
class Dated:
    """A memory, a document about the customer or a session's wrap-up, with its day."""

    day: str
    text: str


@dataclass(frozen=True)
class Source:
    """A numbered source of the knowledge base."""

    number: int
    title: str
    text: str


@dataclass(frozen=True)
class Context:
    """The sections of a request, read."""

    today: date | None
    fetched: tuple[Fetched, ...]
    memories: tuple[Dated, ...]
    sessions: tuple[Dated, ...]
    sources: tuple[Source, ...]
    profile: tuple[Dated, ...]


def read_context(request: ModelRequest) -> Context:
    """The facts in the sections of `request`; what is not in the expected form is passed over."""
    sections = {section.name: _FENCE.sub("", section.text) for section in request.system}
    today = re.search(r"Today is (\d{4}-\d\d-\d\d)", sections.get("today", ""))
    return Context(
        date.fromisoformat(today[1]) if today else None,
        tuple(
            Fetched(*found)
            for found in re.findall(
                r"^- (\d{4}-\d\d-\d\d) (\w+)\((.*?)\): (.+)$",
                sections.get("previously_fetched", ""),
                re.MULTILINE,
            )
        ),
        tuple(
            Dated(*found)
            for found in re.findall(r"^- (\d{4}-\d\d-\d\d): (.+)$", sections.get("memory", ""), re.MULTILINE)
        ),
        tuple(_sessions(sections.get("wrap_ups", ""))),
        tuple(_sources(sections.get("knowledge", ""))),
        tuple(
            Dated(day, body.strip())
            for name in ("soul", "bible")
            for day, body in re.findall(
                r"^\w+, as of (\d{4}-\d\d-\d\d):\n(.+)", sections.get(name, ""), re.DOTALL
            )
        ),
    )


def words(text: str) -> frozenset[str]:
    """The words of `text` that say what it is about, cut to a rough stem so that "plans" meets "plan"."""
    found = re.findall(r"[^\W_]{2,}", text.lower())
    return frozenset(_stem(word) for word in found if word not in _STOP)


def sentences(text: str) -> list[str]:
    """The sentences of `text`, each on one line."""
    return [
        " ".join(s.split())
        for s in re.split(r"(?<=[.!?])\s+|\n\s*[-*]\s+|\n\s*\n", text.strip())
        if s and s.strip()
    ]


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ing", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def _sessions(text: str) -> list[Dated]:
    pieces = re.split(r"^.{0,8}Session of (\d{4}-\d\d-\d\d)[^:\n]*:", text, flags=re.MULTILINE)
    return [
        Dated(day, body.strip()) for day, body in zip(pieces[1::2], pieces[2::2], strict=True) if body.strip()
    ]


def _sources(text: str) -> list[Source]:
    pieces = re.split(r"^\[(\d+)\] (.*)$", text, flags=re.MULTILINE)
    return [
        Source(int(number), re.sub(r"\s*\([^()\s]+\)\s*$", "", title), _without_fences(body))
        for number, title, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True)
    ]


def _without_fences(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s*(?:</?[\w-]+.*>|```|---+)\s*$", line)).strip()  # fmt: skip
