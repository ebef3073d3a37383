"""The short-term memory: what it gives back, and that it stays within its bounds whatever happens."""

from __future__ import annotations

import sys
import uuid
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.accounts import Account
from common.conversations import BegunTurn
from common.memory import short_term
from common.memory.short_term import ROW_BYTES, ShortTerm
from tests.conftest import NOW

CONVERSATION = uuid.uuid4()


def row(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "text": text, "created_at": NOW.isoformat()}


def test_rows_come_back_for_their_version_only() -> None:
    memory = ShortTerm()
    memory.put(CONVERSATION, 4, [row("hello")], NOW)
    assert memory.get(CONVERSATION, 4, NOW) == (row("hello"),)
    assert memory.get(CONVERSATION, 3, NOW) is None
    assert memory.get(CONVERSATION, 5, NOW) is None
    assert memory.get(uuid.uuid4(), 4, NOW) is None


def test_a_slower_turn_does_not_put_back_an_earlier_version() -> None:
    memory = ShortTerm()
    memory.put(CONVERSATION, 6, [row("late")], NOW)
    memory.put(CONVERSATION, 4, [row("early")], NOW)
    assert memory.get(CONVERSATION, 6, NOW) == (row("late"),)


def test_an_entry_ends_with_its_time_whichever_way_the_clock_goes() -> None:
    memory = ShortTerm(lasts=timedelta(minutes=15))
    memory.put(CONVERSATION, 1, [row("hello")], NOW)
    assert memory.get(CONVERSATION, 1, NOW + timedelta(minutes=14)) is not None
    assert memory.get(CONVERSATION, 1, NOW + timedelta(minutes=15)) is None
    assert len(memory) == 0
    assert memory.size == 0
    memory.put(CONVERSATION, 1, [row("hello")], NOW)
    assert memory.get(CONVERSATION, 1, NOW - timedelta(hours=1)) is None


def test_the_conversation_kept_longest_ago_goes_first() -> None:
    memory = ShortTerm(entries=2)
    first, second, third = (uuid.uuid4() for _ in range(3))
    for conversation in (first, second):
        memory.put(conversation, 1, [row("x")], NOW)
    memory.put(first, 3, [row("x"), row("y")], NOW)
    memory.put(third, 1, [row("x")], NOW)
    assert memory.get(second, 1, NOW) is None
    assert memory.get(first, 3, NOW) is not None


def test_a_conversation_larger_than_all_room_is_not_kept() -> None:
    memory = ShortTerm(size=1_000)
    memory.put(CONVERSATION, 1, [row("x" * 2_000)], NOW)
    assert (len(memory), memory.size) == (0, 0)


texts = st.text(max_size=400)
operations = st.tuples(
    st.sampled_from(["put", "get", "drop"]),
    st.integers(0, 9),
    st.integers(0, 5),
    st.lists(texts, max_size=5),
    st.integers(-30, 30),
)


@given(st.lists(operations, max_size=60))
def test_entries_and_bytes_stay_within_their_bounds(
    steps: list[tuple[str, int, int, list[str], int]],
) -> None:
    memory = ShortTerm(entries=4, size=6_000, lasts=timedelta(minutes=10))
    now = NOW
    for kind, number, version, contents, minutes in steps:
        now += timedelta(minutes=minutes)
        conversation = uuid.UUID(int=number)
        if kind == "put":
            memory.put(conversation, version, [row(text) for text in contents], now)
        elif kind == "get":
            memory.get(conversation, version, now)
        else:
            memory.drop(conversation)
        kept = [r for entry in memory._kept.values() for r in entry.rows]
        assert len(memory) <= 4
        assert memory.size == sum(ROW_BYTES + sys.getsizeof(r["text"]) for r in kept) <= 6_000


# -- as a turn uses it ------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_term, "_messages", ShortTerm())


def begun(version: int, message: str = "How are we doing?", *, new_message: bool = True) -> BegunTurn:
    account = Account(uuid.UUID(int=1), uuid.UUID(int=2), "owner@demo.example", "pro")
    return BegunTurn(
        account=account,
        turn_id=uuid.uuid4(),
        lease=uuid.uuid4(),
        conversation_id=CONVERSATION,
        session_id=uuid.uuid4(),
        user_message_id=uuid.uuid4(),
        assistant_message_id=uuid.uuid4(),
        message=message,
        site=None,
        plans=(),
        remember=True,
        version=version,
        started_at=NOW,
        new_message=new_message,
    )


def said(version: int) -> list[str] | None:
    rows = short_term.recent_messages(begun(version), NOW)
    return None if rows is None else [r["text"] for r in rows]


def test_a_turn_is_there_for_the_next_one() -> None:
    short_term.keep_turn(begun(0, "first"), [], "answer", NOW)
    assert said(2) == ["first", "answer"]
    short_term.keep_turn(begun(2, "second"), short_term.recent_messages(begun(2), NOW), "again", NOW)
    assert said(4) == ["first", "answer", "second", "again"]


def test_a_turn_that_read_no_history_carries_on_what_was_kept() -> None:
    short_term.keep_turn(begun(0, "first"), None, "answer", NOW)
    short_term.keep_turn(begun(2, "second"), None, "again", NOW)
    assert said(4) == ["first", "answer", "second", "again"]


def test_a_turn_that_read_no_history_keeps_nothing_where_nothing_was_known() -> None:
    short_term.keep_turn(begun(6, "fourth"), None, "answer", NOW)
    assert said(8) is None


def test_an_answer_that_failed_before_it_said_anything_is_not_a_message() -> None:
    short_term.keep_turn(begun(0, "first"), [], "", NOW)
    assert said(2) == ["first"]


def test_a_version_that_anything_else_raised_is_a_miss() -> None:
    short_term.keep_turn(begun(0, "first"), [], "answer", NOW)
    assert said(3) is None


def test_a_message_that_is_answered_again_goes_by_the_database() -> None:
    short_term.keep_turn(begun(0, "first"), [], "answer", NOW)
    again = begun(2, "first", new_message=False)
    assert short_term.recent_messages(again, NOW) is None
    short_term.keep_turn(again, [], "another answer", NOW)
    assert said(4) is None


def test_no_more_messages_are_kept_than_a_prompt_takes() -> None:
    history = [row(str(n)) for n in range(20)]
    short_term.keep_turn(begun(20, "new"), history, "answer", NOW)
    rows = said(22)
    assert rows is not None
    assert len(rows) == 20
    assert rows[-2:] == ["new", "answer"]
