"""What a turn of the benchmarks is made of: the same words, memories, summaries and tool result for us, the floor and the peers.

Standard library only, for the peers run in environments of their own.
"""

from __future__ import annotations

import functools
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

DIMENSIONS = 384
MEMORIES, SUMMARIES = 15, 3
RECALLED = 5
WORDS_IN_A_MESSAGE = 60
# Words as a language has them, a few often and most seldom: those of this repository's own texts.
_TEXTS = sorted(Path(__file__).parents[1].glob("docs/*.md")) + sorted(
    Path(__file__).parents[1].glob("local/demo_knowledge/*.md")
)
_SAID = re.findall(r"[a-z]{2,}", "\n".join(path.read_text() for path in _TEXTS).lower())

TOOL = "query_site_data"
ARGUMENTS = {"target": "memberships", "filters": {}, "limit": 25}
# No skill may take it, and it has the length of a message.
ASKED = "Why do you think people leave after the challenge, and what should we try next?"
SKILL_ASKED = "Which plans do we have?"


@dataclass(frozen=True)
class Turn:
    """What is said in one turn, which asks a tool as every turn does."""

    question: str
    answer: str


@functools.cache
def words(seed: int, count: int = WORDS_IN_A_MESSAGE) -> str:
    """`count` words, the same for the same seed."""
    return " ".join(random.Random(seed).choices(_SAID, k=count))


@functools.cache
def vector(seed: int) -> list[float]:
    """A vector of the size that a small model makes."""
    drawn = random.Random(seed)
    return [round(drawn.uniform(-1, 1), 6) for _ in range(DIMENSIONS)]


def earlier(turns: int) -> list[Turn]:
    """The conversation before, of turns like the measured one."""
    return [Turn(words(2 * n), words(2 * n + 1)) for n in range(turns)]


def question(number: int) -> str:
    """What the measured turn asks: of the same length as the messages before it."""
    return f"{ASKED} {words(10_000 + number, WORDS_IN_A_MESSAGE - 15)}"


def answer(number: int) -> str:
    """What the measured turn says."""
    return words(20_000 + number)


def memories() -> list[tuple[str, list[float]]]:
    """What is kept of the customer, with vectors."""
    return [(words(30_000 + n, 20), vector(n)) for n in range(MEMORIES)]


def summaries() -> list[str]:
    """Of earlier sessions."""
    return [words(40_000 + n, 120) for n in range(SUMMARIES)]


def tool_result() -> dict[str, object]:
    """About 1 KB of JSON."""
    rows = [
        {
            "name": f"Plan {n}",
            "price": "49.00",
            "currency": "USD",
            "period": "month",
            "status": "active",
            "active_members": 40 - n,
        }
        for n in range(9)
    ]
    return {"target": "memberships", "as_of": "2026-05-12", "total": len(rows), "rows": rows}


assert 900 < len(json.dumps(tool_result())) < 1200
