"""Conversations as their owner sees them: listed, read with messages, sources and routes, ended and deleted."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy import Connection

from common.customer.pages import Page, PageQuery, older, read_page
from common.errors import NotFound
from common.events import Event
from common.sessions import end_session
from common.shapes import Shape


class Conversation(Shape):
    """A conversation. Without `remember` it leaves no wrap-up and no memory, and is recalled nowhere else."""

    id: uuid.UUID
    title: str
    site_id: uuid.UUID | None
    client_id: str | None
    remember: bool
    messages_count: int
    created_at: datetime
    last_turn_at: datetime


class Route(Shape):
    """Who answered, how sure the router was, and why."""

    name: str = "advisor"
    confidence: str = "low"
    reasons: list[str] = Field(default_factory=list)


class Source(Shape):
    """An entry of the knowledge base that the answer cites as `[n]`."""

    n: int
    entry_id: str
    title: str
    url: str | None = None


class Recalled(Shape):
    """What was put before the model from memory: snapshot lines, and the ids of wrap-ups."""

    snapshots: list[str] = Field(default_factory=list)
    wrap_ups: list[str] = Field(default_factory=list)


class ToolCall(Shape):
    """A call that the answer rests on; its whole result is the snapshot. That is null for the moment until it is stored."""

    snapshot_id: uuid.UUID | None
    tool_name: str
    tool_input: dict[str, Any]
    is_error: bool


class Message(Shape):
    """What one side said. The fields from `route` on are an answer's."""

    id: uuid.UUID
    turn_id: uuid.UUID | None = Field(description="Null once the turn's record, kept for 30 days, is gone")
    session_id: uuid.UUID
    role: str
    text: str
    status: str
    position: int
    superseded: bool = Field(description="Another answer to the same message has replaced this one")
    created_at: datetime
    route: Route | None = None
    sources: list[Source] = Field(default_factory=list)
    recalled: Recalled | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    model: str | None = None
    provider: str | None = None
    usage: dict[str, int] | None = None
    helpful: bool | None = None


class SessionState(Shape):
    """A session of the conversation and where its wrap-up stands."""

    id: uuid.UUID
    started_at: datetime
    last_activity_at: datetime
    ended_at: datetime | None
    wrap_up: str
    wrap_up_reason: str | None
    session_log_id: uuid.UUID | None


class ConversationDetail(Conversation):
    """A conversation with its sessions and a page of its messages, oldest first."""

    sessions: list[SessionState]
    messages: list[Message]
    earlier: int | None = Field(
        description="Give this as `before` to read the messages before these; null at the start"
    )


class MessagesQuery(Shape):
    """Which messages of a conversation: the newest, or those before a position."""

    before: int | None = Field(None, ge=0, le=2**62, description="`earlier` of what was read before")
    limit: int = Field(100, ge=1, le=200, description="Most messages to return")


_CONVERSATION = """
    select c.id, c.title, c.site_id, c.client_id, c.remember, c.created_at, c.last_turn_at,
           (select count(*) from messages m
            where m.user_id = :user_id and m.conversation_id = c.id and m.superseded_at is null) as messages_count
    from conversations c
    where c.user_id = :user_id
"""


def list_conversations(connection: Connection, query: PageQuery, *, user_id: uuid.UUID) -> Page[Conversation]:
    """A page of the user's conversations, the latest begun first."""
    return read_page(connection, f"{_CONVERSATION} and {older('c')}", query, Conversation, user_id=user_id)


_SESSIONS = sa.text("""
    select s.id, s.started_at, s.last_activity_at, s.ended_at, s.wrap_up, s.wrap_up_reason, l.id as session_log_id
    from sessions s
    left join session_logs l on l.session_id = s.id and l.user_id = :user_id
    where s.user_id = :user_id and s.conversation_id = :id
    order by s.started_at, s.id
""")

# A turn's tool results wait in the outbox for a moment before they are snapshots.
_MESSAGES = sa.text("""
    select m.id, m.turn_id, m.session_id, m.role, m.text, m.status, m.position, m.superseded_at is not null as superseded,
           m.created_at, m.details, f.helpful,
           (select coalesce(jsonb_agg(jsonb_build_object('snapshot_id', s.id, 'tool_name', s.tool_name,
                'tool_input', s.tool_input, 'is_error', s.is_error) order by s.position), '[]')
            from message_tool_results s where s.user_id = :user_id and s.message_id = m.id) as stored_calls,
           (select coalesce(jsonb_agg(jsonb_build_object('snapshot_id', null, 'tool_name', r->>'tool_name',
                'tool_input', r->'tool_input', 'is_error', r->'is_error')), '[]')
            from outbox_events e cross join lateral jsonb_array_elements(e.payload->'results') r
            where e.user_id = :user_id and e.conversation_id = :id and e.type = 'tool-results'
              and e.payload->>'message_id' = cast(m.id as text)) as waiting_calls
    from messages m
    left join message_feedback f on f.message_id = m.id and f.user_id = :user_id
    where m.user_id = :user_id and m.conversation_id = :id
      and (cast(:before as bigint) is null or m.position < :before)
    order by m.position desc
    limit :rows
""")


def read_conversation(
    connection: Connection, conversation_id: uuid.UUID, query: MessagesQuery, *, user_id: uuid.UUID
) -> ConversationDetail:
    """One conversation whole, or its newest messages and where to read on. Raises NotFound."""
    keys = {"user_id": user_id, "id": conversation_id}
    found = connection.execute(sa.text(f"{_CONVERSATION} and c.id = :id"), keys).mappings().first()
    if found is None:
        raise NotFound("There is no such conversation.")
    sessions = connection.execute(_SESSIONS, keys).mappings().all()
    page = {"before": query.before, "rows": query.limit + 1}
    rows = connection.execute(_MESSAGES, {**keys, **page}).mappings().all()
    shown = [_message(dict(row)) for row in reversed(rows[: query.limit])]
    return ConversationDetail(
        **found,
        sessions=[SessionState.model_validate(dict(row)) for row in sessions],
        messages=shown,
        earlier=shown[0].position if len(rows) > query.limit else None,
    )


def _message(row: dict[str, Any]) -> Message:
    details = row.pop("details") or {}
    shown = {name: details.get(name) for name in ("route", "recalled", "model", "provider", "usage")}
    calls = [*row.pop("stored_calls"), *row.pop("waiting_calls")]
    return Message.model_validate(
        {**row, **shown, "sources": details.get("sources") or [], "tool_calls": calls}
    )


class EndedConversation(Shape):
    """The conversation's last session, which has ended or ends with the answer still being written; `ending` while its wrap-up is on
    its way."""

    conversation_id: uuid.UUID
    session_id: uuid.UUID | None
    ending: bool


_LAST_SESSION = sa.text("""
    select s.id, exists (select 1 from outbox_events e
                         where e.user_id = :user_id and e.dedupe_key = 'session-ended:' || s.id) as ending
    from sessions s
    where s.user_id = :user_id and s.conversation_id = :id
    order by s.started_at desc, s.id
    limit 1
""")


def end_conversation(
    connection: Connection, conversation_id: uuid.UUID, *, user_id: uuid.UUID, now: datetime
) -> tuple[EndedConversation, tuple[Event, ...]]:
    """End the conversation's open session; the events are to be published after the commit. Repeating it changes nothing, and says the
    same until the wrap-up is made. Raises NotFound."""
    event = end_session(connection, user_id=user_id, conversation_id=conversation_id, now=now)
    last = connection.execute(_LAST_SESSION, {"user_id": user_id, "id": conversation_id}).first()
    ended = EndedConversation(
        conversation_id=conversation_id,
        session_id=last.id if last else None,
        ending=bool(last and last.ending),
    )
    return ended, (event,) if event else ()


class Gone(Shape):
    """How many of each went with the conversation."""

    messages: int
    sessions: int
    snapshots: int
    wrap_ups: int
    pending_events: int


class Kept(Shape):
    """What stays: memories that were learned here are entries of their own, to be deleted one by one."""

    memories: int


class DeletedConversation(Shape):
    """What deleting a conversation took along, and what it left."""

    conversation_id: uuid.UUID
    deleted: Gone
    kept: Kept


_WHAT_GOES = sa.text("""
    select (select count(*) from messages where user_id = :user_id and conversation_id = :id) as messages,
           (select count(*) from sessions where user_id = :user_id and conversation_id = :id) as sessions,
           (select count(*) from message_tool_results where user_id = :user_id and conversation_id = :id) as snapshots,
           (select count(*) from session_logs l join sessions s on s.id = l.session_id and s.user_id = :user_id
            where l.user_id = :user_id and s.conversation_id = :id) as wrap_ups,
           (select count(*) from outbox_events where user_id = :user_id and conversation_id = :id) as pending_events,
           (select count(*) from brain_entries e join messages m on m.id = e.source_message_id and m.user_id = :user_id
            where e.user_id = :user_id and m.conversation_id = :id) as memories
""")


def delete_conversation(
    connection: Connection, conversation_id: uuid.UUID, *, user_id: uuid.UUID
) -> DeletedConversation:
    """Delete the conversation and all that hangs on it, and say what that was. A turn still running in it loses its lease and stores
    nothing. Raises NotFound."""
    keys = {"user_id": user_id, "id": conversation_id}
    locked = connection.execute(
        sa.text("select id from conversations where user_id = :user_id and id = :id for update"), keys
    ).first()
    if locked is None:
        raise NotFound("There is no such conversation.")
    goes = dict(connection.execute(_WHAT_GOES, keys).mappings().one())
    kept = Kept(memories=goes.pop("memories"))
    connection.execute(sa.text("delete from conversations where user_id = :user_id and id = :id"), keys)
    return DeletedConversation(conversation_id=conversation_id, deleted=Gone(**goes), kept=kept)


class Feedback(Shape):
    """What the customer thinks of an answer; null when they have taken it back."""

    message_id: uuid.UUID
    helpful: bool | None


def set_feedback(
    connection: Connection, message_id: uuid.UUID, helpful: bool | None, *, user_id: uuid.UUID, now: datetime
) -> Feedback:
    """Store, change or, with None, take back the thumb for an answer. Raises NotFound for anything but an answer of the user's."""
    keys = {"user_id": user_id, "id": message_id}
    answer = connection.execute(
        sa.text("select id from messages where user_id = :user_id and id = :id and role = 'assistant'"), keys
    ).first()
    if answer is None:
        raise NotFound("There is no such answer.")
    if helpful is None:
        connection.execute(
            sa.text("delete from message_feedback where user_id = :user_id and message_id = :id"), keys
        )
    else:
        connection.execute(
            sa.text("""
                insert into message_feedback (message_id, user_id, helpful, created_at, updated_at)
                values (:id, :user_id, :helpful, :now, :now)
                on conflict (message_id) do update set helpful = :helpful, updated_at = :now
            """),
            {**keys, "helpful": helpful, "now": now},
        )
    return Feedback(message_id=message_id, helpful=helpful)
