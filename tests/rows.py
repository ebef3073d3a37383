"""Rows that several tests arrange: conversations with answers, what a search returned for them, and feedback."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.conftest import Database, Person


@dataclass(frozen=True)
class Candidate:
    """A candidate as the log has it."""

    entry_id: uuid.UUID
    surfaced: bool = True
    cited: bool = False


def add_session(database: Database, person: Person, at: datetime) -> tuple[uuid.UUID, uuid.UUID]:
    """A conversation and its ended session."""
    conversation, session = uuid.uuid4(), uuid.uuid4()
    database.run(
        "insert into conversations (id, user_id, site_id, title, created_at, last_turn_at) values (:id, :user, :site, 'x', :at, :at)",
        id=conversation,
        user=person.user_id,
        site=person.site_id,
        at=at,
    )
    database.run(
        "insert into sessions (id, user_id, conversation_id, started_at, last_activity_at, ended_at)"
        " values (:id, :user, :c, :at, :at, :at)",
        id=session,
        user=person.user_id,
        c=conversation,
        at=at,
    )
    return conversation, session


def add_turn(
    database: Database, person: Person, session: tuple[uuid.UUID, uuid.UUID], at: datetime
) -> uuid.UUID:
    """A finished turn."""
    turn = uuid.uuid4()
    database.run(
        "insert into turns (id, user_id, conversation_id, session_id, client_turn_id, body_hash, status, lease, lease_until, started_at)"
        " values (:id, :user, :c, :s, :client, '', 'complete', :id, :at, :at)",
        id=turn,
        user=person.user_id,
        c=session[0],
        s=session[1],
        client=str(turn),
        at=at,
    )
    return turn


def add_answer(
    database: Database,
    person: Person,
    session: tuple[uuid.UUID, uuid.UUID],
    at: datetime,
    candidates: Sequence[Candidate] = (),
    *,
    turn: uuid.UUID | None = None,
    text: str = "answer",
) -> uuid.UUID:
    """An assistant message and its candidates in the log, in order of rank."""
    message = uuid.uuid4()
    database.run(
        "insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)"
        " values (:id, :user, :c, :s, :turn, 'assistant', :text, 'complete',"
        " (select count(*) from messages where conversation_id = :c), :at)",
        id=message,
        user=person.user_id,
        c=session[0],
        s=session[1],
        turn=turn,
        text=text,
        at=at,
    )
    for rank, one in enumerate(candidates, start=1):
        database.run(
            "insert into retrieval_events values (:m, :user, :entry, :rank, 0.5, :surfaced, :cited, :at)",
            m=message,
            user=person.user_id,
            entry=one.entry_id,
            rank=rank,
            surfaced=one.surfaced,
            cited=one.cited,
            at=at.astimezone(UTC).replace(tzinfo=None),
        )
    return message


def give_feedback(
    database: Database, person: Person, message: uuid.UUID, at: datetime, *, helpful: bool
) -> None:
    """A thumb, which replaces the one before."""
    database.run(
        "insert into message_feedback (message_id, user_id, helpful, created_at, updated_at) values (:m, :user, :helpful, :at, :at)"
        " on conflict (message_id) do update set helpful = :helpful, updated_at = :at",
        m=message,
        user=person.user_id,
        helpful=helpful,
        at=at,
    )


def add_snapshot(
    database: Database,
    person: Person,
    session: tuple[uuid.UUID, uuid.UUID],
    message: uuid.UUID,
    at: datetime,
    text: str = "x",
) -> uuid.UUID:
    """A stored tool result."""
    snapshot = uuid.uuid4()
    database.run(
        "insert into message_tool_results (id, user_id, message_id, conversation_id, site_id, tool_use_id, tool_name, tool_input,"
        " tool_output, signals, arguments_hash, position, created_at) values (:id, :user, :m, :c, :site, :use, 'query_kpi_trend',"
        " jsonb_build_object('text', cast(:text as text)), jsonb_build_object('text', cast(:text as text)), '{}', '', 0, :at)",
        id=snapshot,
        user=person.user_id,
        m=message,
        c=session[0],
        site=person.site_id,
        use=str(snapshot),
        text=text,
        at=at,
    )
    return snapshot


def add_wrap_up(
    database: Database, person: Person, session: tuple[uuid.UUID, uuid.UUID], at: datetime, text: str = "x"
) -> uuid.UUID:
    """A session's wrap-up."""
    wrap_up = uuid.uuid4()
    database.run(
        "insert into session_logs (id, tenant_id, user_id, session_id, summary, decisions, open_items, new_context, next_session_note,"
        " trigger, model, input_tokens, output_tokens, created_at) values (:id, :tenant, :user, :s, :text,"
        " jsonb_build_array(cast(:text as text)), '[]', '[]', :text, 'end', 'm', 10, 5, :at)",
        id=wrap_up,
        tenant=person.tenant_id,
        user=person.user_id,
        s=session[1],
        text=text,
        at=at,
    )
    return wrap_up


def add_charge(
    database: Database,
    person: Person,
    at: datetime,
    *,
    kind: str = "chat",
    state: str = "settled",
    cost: str | None = "0.01",
    expires_at: datetime | None = None,
) -> uuid.UUID:
    """A charge of one model call."""
    charge = uuid.uuid4()
    database.run(
        "insert into usage_charges (id, user_id, tenant_id, kind, provider, model, state, reserved_usd, cost_usd, created_at, expires_at)"
        " values (:id, :user, :tenant, :kind, 'offline', 'm', :state, 0.05, cast(:cost as numeric), :at, :expires)",
        id=charge,
        user=person.user_id,
        tenant=person.tenant_id,
        kind=kind,
        state=state,
        cost=cost,
        at=at,
        expires=expires_at or at,
    )
    return charge
