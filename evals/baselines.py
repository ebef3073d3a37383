"""The naive blocks beside the design's: what would stand in 300 tokens if the last results were simply put there, or the lines had no
dates, or no changes. They are made from the same stored results, so that one sees what each part of the design buys.

`held` needs no model: does the block hold what a right answer needs? For a recalled fact, its value under its day; for a premise
that is outdated, the assumed number under its day, and the newer one where there is one. `answered` puts each block into the
prompt and asks the provider.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from common import db
from common.memory.snapshot_summary import (
    BUDGET_TOKENS,
    FOOTER,
    HEADER,
    K,
    Snapshot,
    recall_block,
    snapshot_line,
)
from common.memory.snapshots import recall_snapshots
from common.text import count_tokens, to_json
from evals.case import Case, Fact, Facts, Reply, Verdict
from evals.fixture import Ready
from evals.graders import recall
from evals.graders.reading import names_day, numbers_in
from evals.run import WORLDS, Worlds, run
from evals.suite import ChatSuite
from evals.system import System

Share = tuple[int, int]  # so many, of so many


@dataclass(frozen=True)
class Stored:
    """A stored result, as a naive design would read it."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_output: dict[str, Any]
    signals: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True)
class Memory:
    """What is stored for a conversation: each result, newest first, and what recall makes of them."""

    stored: tuple[Stored, ...]
    recalled: tuple[Snapshot, ...]
    timezone: str


def load(ready: Ready) -> Memory:
    """What is stored for the case's conversation, in the system's database."""
    conversation = uuid.UUID(ready.conversation_id)
    with db.user_transaction(ready.user_id) as connection:
        rows = connection.execute(
            sa.text("""
                select tool_name, tool_input, tool_output, signals, created_at from message_tool_results
                where user_id = :user_id and conversation_id = :conversation_id and not is_error
                order by created_at desc, position desc
            """),
            {"user_id": ready.user_id, "conversation_id": conversation},
        ).all()
        zone: str = connection.execute(
            sa.text("select timezone from sites where user_id = :user_id"), {"user_id": ready.user_id}
        ).scalar_one()
        recalled = recall_snapshots(connection, user_id=ready.user_id, conversation_id=conversation)
    return Memory(tuple(Stored(*row) for row in rows), tuple(recalled), zone)


def design(memory: Memory) -> str:
    """The block as it is: newest of each call, dated, with what changed."""
    return recall_block(memory.recalled, memory.timezone)[0]


def last_k(memory: Memory) -> str:
    """The last K results as lines, whether or not a later one of the same call is among them."""
    lines = [
        snapshot_line(Snapshot(s.tool_name, s.tool_input, s.signals, s.created_at), memory.timezone)
        for s in memory.stored[:K]
    ]
    return _within(lines)


def raw(memory: Memory) -> str:
    """The last K results as the tools returned them, cut where the budget ends."""
    zone = ZoneInfo(memory.timezone)
    text = "\n".join(
        f"- {s.created_at.astimezone(zone).date()} {s.tool_name}({to_json(s.tool_input)}): {to_json(s.tool_output)}"
        for s in memory.stored[:K]
    )
    while count_tokens(text) > BUDGET_TOKENS:
        text = text[: int(len(text) * min(0.95, BUDGET_TOKENS / count_tokens(text)))]
    return text


def no_dates(memory: Memory) -> str:
    """The design's block without any day."""
    return re.sub(r"20\d\d-\d\d-\d\d", "", design(memory))


def no_change(memory: Memory) -> str:
    """The design's block without what changed."""
    return re.sub(r" \(was [^)]*\)", "", design(memory))


ARMS: dict[str, Callable[[Memory], str]] = {
    "the design": design,
    "last K": last_k,
    "raw results": raw,
    "no dates": no_dates,
    "no change shown": no_change,
}


def recalls(block: str, fact: Fact) -> bool:
    """Whether a line of the block gives the fact's value under its day."""
    return any(names_day(line, fact.day) and fact.old in numbers_in(line) for line in block.splitlines())


def explains(block: str, fact: Fact, expect: str) -> bool:
    """Whether the block shows the assumed number under its day, and where it is not the newest, the newer one beside it."""
    if expect != "earlier" or fact.earlier is None or fact.earlier_day is None:
        return recalls(block, fact)
    before = any(
        names_day(line, fact.earlier_day) and fact.earlier in numbers_in(line) for line in block.splitlines()
    )
    return before and recalls(block, fact)


def held(suite: str, ready: Sequence[Ready]) -> dict[str, Share]:
    """Arm -> in how many of the suite's cases its block holds what is needed."""
    return {
        arm: (sum(_holds(make(load(one)), one) for one in ready), len(ready)) for arm, make in ARMS.items()
    }


def _holds(block: str, ready: Ready) -> bool:
    fact = ready.facts.main
    assert fact is not None, "these suites are about facts"
    if ready.case.suite == "budget_recall":
        return recalls(block, fact)
    return explains(block, fact, ready.case.expect)


def answered(system: System, suite: ChatSuite, ready: Worlds) -> dict[str, Share]:
    """Arm -> how many cases are answered rightly with its block in the prompt: a recalled number with its day, an outdated premise
    corrected or looked up."""
    found: dict[str, Share] = {}
    for arm, make in ARMS.items():
        right: list[bool] = []
        with system.database(WORLDS):
            blocks = {one.case.id: make(load(one)) for one in ready[suite.name]}
        asked = replace(suite, grade=_GRADES[suite.name], reached=lambda case, reply, facts: True)
        run(
            system,
            [asked],
            ready,
            repeat=1,
            done=lambda result, right=right: right.append(result.passed),  # type: ignore[misc]
            asking=lambda trace, one, blocks=blocks: system.blocks.update({trace: blocks[one.case.id]}),  # type: ignore[misc]
        )
        found[arm] = (sum(right), len(right))
    system.blocks.clear()
    return found


_GRADES: dict[str, Callable[[Case, Reply, Facts], Verdict]] = {
    "budget_recall": lambda case, reply, facts: recall.as_of_date(reply, facts, "recall"),
    "premise_resistance": lambda case, reply, facts: recall.premise(reply, facts, case.expect),
}


def _within(lines: list[str]) -> str:
    while lines:
        block = "\n".join([HEADER, *lines, FOOTER])
        if count_tokens(block) <= BUDGET_TOKENS:
            return block
        lines.pop()
    return ""
