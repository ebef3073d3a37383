"""The transcript of a session: what was said, by whom and on which day, under short ids that a model can name."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Connection

from common.text import count_tokens, plain_tokens, sanitise

# By the careful count. Longer sessions lose their middle: the question is asked at the beginning and decided at the end.
TRANSCRIPT_TOKENS = 12_000
SUBSTANTIVE_TOKENS = 20  # plain ones, of one message of the customer


@dataclass(frozen=True)
class Said:
    """A message of the session."""

    id: uuid.UUID
    role: str
    text: str
    at: datetime


@dataclass(frozen=True)
class Transcript:
    """What a model gets to read, and the messages behind the ids in it. What was left out has no id."""

    text: str
    shown: dict[str, Said]
    left_out: int


_SAID = sa.text("""
    select m.id, m.role, m.text, m.created_at as at
    from messages m left join turns t on t.id = m.turn_id and t.user_id = :user_id
    where m.user_id = :user_id and m.conversation_id = :conversation_id and m.text <> '' and m.superseded_at is null
      and (m.session_id = :session_id or t.session_id = :session_id)
    order by m.position
""")


def load_said(
    connection: Connection, *, user_id: uuid.UUID, conversation_id: uuid.UUID, session_id: uuid.UUID
) -> list[Said]:
    """The messages of the session, in order. A message of an earlier session that was answered in this one belongs to both."""
    rows = connection.execute(
        _SAID, {"user_id": user_id, "conversation_id": conversation_id, "session_id": session_id}
    )
    return [Said(row.id, row.role, row.text, row.at) for row in rows]


def is_substantive(said: Sequence[Said]) -> bool:
    """Whether there is something to remember: a message of the customer of 20 tokens or more."""
    return any(one.role == "user" and plain_tokens(one.text) >= SUBSTANTIVE_TOKENS for one in said)


def write_transcript(said: Sequence[Said], timezone: str, *, budget: int = TRANSCRIPT_TOKENS) -> Transcript:
    """The messages as lines `[m1] user (2026-05-12): text`, days in `timezone`. What goes over `budget` is cut from the middle, by whole
    messages, with a note in its place; the last message always stands."""
    zone = ZoneInfo(timezone)
    lines = {f"m{n}": _line(f"m{n}", one, zone) for n, one in enumerate(said, start=1)}
    first, last = _ends_within([count_tokens(line) for line in lines.values()], budget)
    ids = list(lines)
    left_out = len(ids) - first - last
    kept = [*ids[:first], *ids[len(ids) - last :]]
    parts = [lines[id] for id in kept]
    if left_out:
        parts.insert(first, f"[… {left_out} messages of the middle are left out here …]")
    by_id = dict(zip(ids, said, strict=True))
    return Transcript("\n".join(parts), {id: by_id[id] for id in kept}, left_out)


def _line(id: str, one: Said, zone: ZoneInfo) -> str:
    # Only our own lines begin with a bracket: a message cannot pass for another one.
    text = sanitise(one.text).replace("\r", "\n").replace("\n", "\n  ")
    return f"[{id}] {one.role} ({one.at.astimezone(zone).date()}): {text}"


def _ends_within(sizes: Sequence[int], budget: int) -> tuple[int, int]:
    """How many of the first and of the last fit together: taken in turn, beginning with the last, until one does not fit."""
    first, last, room = 0, 0, budget
    while first + last < len(sizes):
        from_end = last <= first
        size = sizes[-1 - last] if from_end else sizes[first]
        if size > room and last:
            break
        room -= size
        first, last = (first, last + 1) if from_end else (first + 1, last)
    return first, last
