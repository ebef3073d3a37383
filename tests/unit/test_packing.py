"""Filling a block of the prompt within a budget of tokens."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from common.knowledge.packing import pack
from common.knowledge.search import Candidate
from common.text import count_tokens

NOW = datetime(2026, 5, 12, tzinfo=UTC)


def found(title: str, content: str, rank: int = 1) -> Candidate:
    return Candidate(uuid.uuid4(), "d", title, None, content, NOW, NOW, 0.5, rank, True)


def heading(candidate: Candidate) -> str:
    return f"{candidate.title}:"


def line(candidate: Candidate) -> str:
    return f"- {candidate.content}"


def test_entries_of_one_heading_stand_under_it_together() -> None:
    hits = [found("8 May", "first"), found("9 May", "second"), found("8 May", "third")]
    text, taken = pack(hits, 300, heading=heading, line=line)
    assert text == "8 May:\n- first\n- third\n9 May:\n- second"
    assert taken == hits


def test_what_does_not_fit_leaves_its_room_to_the_next() -> None:
    hits = [found("a", "short"), found("b", "long " * 500), found("c", "short too")]
    text, taken = pack(hits, 60, heading=heading, line=line)
    assert taken == [hits[0], hits[2]]
    assert "long" not in text


def test_nothing_fits_no_budget() -> None:
    assert pack([found("a", "text")], 0, heading=heading, line=line) == ("", [])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=80)), max_size=12), st.integers(0, 120))
def test_the_block_is_never_larger_than_its_budget(entries: list[tuple[str, str]], budget: int) -> None:
    hits = [found(title, content) for title, content in entries]
    text, taken = pack(hits, budget, heading=heading, line=line)
    assert count_tokens(text) <= budget
    assert taken == [hit for hit in hits if hit in taken]
    assert all(line(hit) in text for hit in taken)
