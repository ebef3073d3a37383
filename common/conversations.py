"""Conversations and messages: what a turn is on its way through the code, and the history that a model gets."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Connection

from common.accounts import Account
from common.errors import Conflict, NotFound
from common.llm.types import Message
from common.text import canonical_hash
from common.tools.types import Site

MAX_HISTORY_TURNS = 10
LEASE = timedelta(seconds=60)
TITLE_CHARACTERS = 80

TurnStatus = Literal["complete", "interrupted", "failed"]


class LeaseLost(Conflict):
    """This turn was given up meanwhile: its conversation was deleted, or another turn took over."""

    type = "lease-lost"


@dataclass(frozen=True)
class TurnRequest:
    """What a client asks for, checked. `conversation_id` is ours, `client_id` the client's own name for a conversation; with neither
    a new one begins. `replaces` is an earlier message of the customer's, by our id or its turn's: it is answered anew, with another text if
    that was edited, and what followed it is superseded. `regenerate` takes its text as it is stored, and the last message where `replaces`
    is not known."""

    message: str
    turn_id: str
    conversation_id: uuid.UUID | None = None
    client_id: str | None = None
    site_id: uuid.UUID | None = None
    remember: bool | None = None
    end_session: bool = False
    regenerate: bool = False
    replaces: str | None = None

    def body_hash(self) -> str:
        """Equal for a repeat of the same request; another body under the same turn id is refused."""
        ids = [str(self.conversation_id or ""), self.client_id, str(self.site_id or "")]
        return canonical_hash([self.message, *ids, self.regenerate, self.replaces])


@dataclass(frozen=True)
class BegunTurn:
    """A turn whose message and lease are committed. `version` is the conversation's before it: what caches are keyed by. `again` answers a
    message that was there; `edited_from` is the position from which on its own message replaces what was said."""

    account: Account
    turn_id: uuid.UUID
    lease: uuid.UUID
    conversation_id: uuid.UUID
    session_id: uuid.UUID
    user_message_id: uuid.UUID
    assistant_message_id: uuid.UUID
    message: str
    site: Site | None
    plans: tuple[str, ...]
    remember: bool
    version: int
    started_at: datetime
    again: bool = False
    edited_from: int | None = None
    end_session: bool = False
    new_message: bool = True

    @property
    def continues(self) -> bool:
        """Whether the turn follows all that was said before it."""
        return self.new_message and self.edited_from is None

    @property
    def timezone(self) -> str:
        """The site's zone; UTC without a site."""
        return self.site.timezone if self.site else "UTC"

    @property
    def zone(self) -> ZoneInfo:
        """The same, to reckon with."""
        return ZoneInfo(self.timezone)


class Replay(NamedTuple):
    """A turn that was finished before: its stored answer is given again."""

    turn_id: uuid.UUID


@dataclass
class FinishedTurn:
    """What a turn made, ready to be written. `tool_results` are the rows that become snapshots."""

    status: TurnStatus
    text: str
    details: dict[str, Any]
    trace: dict[str, Any]
    tool_results: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None


def delete_message(connection: Connection, user_id: uuid.UUID, message_id: uuid.UUID) -> None:
    """Delete a message with its snapshots, those not yet written included, and raise the conversation's version, so that no process
    goes on with the message in its memory. Raises NotFound when it is not there or not theirs."""
    deleted = connection.execute(
        sa.text("""
            with gone as (
                delete from messages where id = :message_id and user_id = :user_id returning id, conversation_id),
            waiting as (
                delete from outbox_events e using gone
                where e.user_id = :user_id and e.type = 'tool-results' and e.conversation_id = gone.conversation_id
                  and e.payload->>'message_id' = cast(gone.id as text))
            update conversations c set version = c.version + 1 from gone
            where c.id = gone.conversation_id and c.user_id = :user_id
        """),
        {"message_id": message_id, "user_id": user_id},
    )
    if deleted.rowcount != 1:
        raise NotFound("There is no such message.")


# A column of the statement that loads a turn's context: the last messages before the turn's own, oldest first.
HISTORY = f"""
    (select coalesce(jsonb_agg(to_jsonb(h) order by h.position), '[]')
     from (select m.role, m.text, m.created_at, m.position from messages m
           where m.user_id = :user_id and m.conversation_id = :conversation_id and m.superseded_at is null
             and m.text <> '' and m.position < (
                 select position from messages where id = :user_message_id and user_id = :user_id)
           order by m.position desc limit {2 * MAX_HISTORY_TURNS}) h)
"""


def to_messages(rows: Sequence[dict[str, Any]], timezone: str) -> tuple[Message, ...]:
    """The history as a model gets it: text only, each message with its day in the site's zone, roles alternating, starting with the
    customer. What was said in a row by one side (an answer that failed leaves a gap) is joined."""
    joined: list[Message] = []
    for row in rows:
        text = f"[{_day(row['created_at'], timezone)}] {row['text']}"
        if joined and joined[-1].role == row["role"]:
            joined[-1] = Message(row["role"], f"{joined[-1].text}\n\n{text}")
        elif joined or row["role"] == "user":
            joined.append(Message(row["role"], text))
    return tuple(joined)


@functools.lru_cache(10_000)
def _day(moment: str, timezone: str) -> str:
    """A message's day in `timezone`: each is asked for at every turn of its conversation."""
    return str(datetime.fromisoformat(moment).astimezone(ZoneInfo(timezone)).date())
