"""Filling a block of the prompt with what search found, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from common.knowledge.search import Candidate
from common.text import count_tokens

Write = Callable[[Candidate], str]


def pack(
    found: Sequence[Candidate], budget: int, *, heading: Write, line: Write
) -> tuple[str, list[Candidate]]:
    """A block of at most `budget` tokens and what of `found` (best first) is in it. Entries with the same heading stand under it
    together, so that it is paid for once; one that does not fit leaves its room to those after it.

    Rank alone decides: weighing an entry's worth by its length was measured to lose (benchmarks/locomo.py).
    """
    groups: dict[str, list[Candidate]] = {}
    for candidate in found:
        title = heading(candidate)
        cost = count_tokens(line(candidate) + "\n") + (0 if title in groups else count_tokens(title + "\n"))
        if cost <= budget:
            budget -= cost
            groups.setdefault(title, []).append(candidate)
    text = "\n".join("\n".join([title, *map(line, group)]) for title, group in groups.items())
    taken = {candidate.entry_id for group in groups.values() for candidate in group}
    return text, [candidate for candidate in found if candidate.entry_id in taken]
