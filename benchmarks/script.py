"""What a turn of the benchmarks is made of: the same words, memories, summaries and tool result for us, the floor and the peers.

Standard library only, for the peers run in environments of their own.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass

DIMENSIONS = 384
MEMORIES, SUMMARIES, TOOL_TURNS = 15, 3, 3
RECALLED = 5
WORDS_IN_A_MESSAGE = 60
# Words as a language has them: a few are said often, most seldom.
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "or")]
_VOCABULARY = ["".join(random.Random(n).choices(_SYLLABLES, k=2 + n % 3)) for n in range(6000)]
_OFTEN = list(itertools.accumulate(1 / (n + 10) for n in range(len(_VOCABULARY))))

TOOL = "query_site_data"
ARGUMENTS = {"target": "memberships", "filters": {}, "limit": 25}
# No skill may take it, and it has the length of a message.
ASKED = "Why do you think people leave after the challenge, and what should we try next?"
SKILL_ASKED = "How many active members do we have?"


@dataclass(frozen=True)
class Turn:
    """What is said in one turn, and whether a tool was asked."""

    question: str
    answer: str
    tool: bool


def words(seed: int, count: int = WORDS_IN_A_MESSAGE) -> str:
    """`count` words, the same for the same seed."""
    return " ".join(random.Random(seed).choices(_VOCABULARY, cum_weights=_OFTEN, k=count))


def vector(seed: int) -> list[float]:
    """A vector of the size that a small model makes."""
    drawn = random.Random(seed)
    return [round(drawn.uniform(-1, 1), 6) for _ in range(DIMENSIONS)]


def earlier(turns: int) -> list[Turn]:
    """The conversation before: the last ones but one asked a tool."""
    return [
        Turn(words(2 * n), words(2 * n + 1), turns - 2 - TOOL_TURNS <= n < turns - 2) for n in range(turns)
    ]


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
        {"name": f"Plan {n}", "price": "49.00", "currency": "USD", "period": "month", "status": "active", "active_members": 40 - n}
        for n in range(9)
    ]
    return {"target": "memberships", "as_of": "2026-05-12", "total": len(rows), "rows": rows}


assert 900 < len(json.dumps(tool_result())) < 1200
