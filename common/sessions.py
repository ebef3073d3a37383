"""The end of a session: asked for by the client, found by its consumer once it was quiet long enough, or swept up by the backfill.

A session ends once. Its end is told by the event `session-ended:<session id>`, which each turn moves ahead of itself.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.db import set_user
from common.errors import NotFound
from common.events import Event, add_event, lock_event, not_now

LOOK_BACK = timedelta(days=14)
BACKFILL_LIMIT = 500


@dataclass(frozen=True)
class EndedSession:
    """A session that has ended, and what its end was due to: client, quiet or backfill."""

    id: uuid.UUID
    user_id: uuid.UUID
    trigger: str


def end_session(
    connection: Connection, *, user_id: uuid.UUID, conversation_id: uuid.UUID, now: datetime
) -> Event | None:
    """End the open session of a conversation on its owner's word. Returns the event to publish after the commit, None where no session
    is open: repeating it changes nothing. An answer still being written is waited for. Raises NotFound."""
    known = connection.scalar(
        sa.text(
            "select id from conversations where user_id = :user_id and id = :conversation_id for no key update"
        ),
        {"user_id": user_id, "conversation_id": conversation_id},
    )
    if known is None:
        raise NotFound("There is no such conversation.")
    session_id = connection.scalar(
        sa.text("""
            select id from sessions
            where user_id = :user_id and conversation_id = :conversation_id and ended_at is null
            for no key update
        """),
        {"user_id": user_id, "conversation_id": conversation_id},
    )
    if session_id is None:
        return None
    if _running_until(connection, user_id, session_id, now) is None:
        _write_end(connection, user_id, session_id, "client", now)
    return add_event(
        connection,
        user_id=user_id,
        conversation_id=conversation_id,
        type="session-ended",
        payload={"session_id": str(session_id), "trigger": "client"},
        dedupe_key=f"session-ended:{session_id}",
        now=now,
    )


def end_if_over(connection: Connection, event: Event, *, now: datetime) -> EndedSession | str:
    """The session that `event` tells of, its end written if it was not, and the transaction scoped to its user. Or why not: "gone",
    "early" or "dead" (see `events.consume`), or "running": an answer is being written, and the event comes again."""
    told = connection.execute(
        sa.text("select user_id, payload from outbox_events where id = :id and type = 'session-ended'"),
        {"id": event.id},
    ).first()
    if told is None:
        return "gone"
    set_user(connection, told.user_id)
    session_id = uuid.UUID(told.payload["session_id"])
    # The session before its event: turns lock them in this order.
    session = connection.execute(
        sa.text("select ended_at from sessions where id = :id and user_id = :user_id for no key update"),
        {"id": session_id, "user_id": told.user_id},
    ).first()
    row = lock_event(connection, event)
    if session is None or row is None or (reason := not_now(row, now)):
        return "gone" if session is None or row is None else reason
    if session.ended_at is None:
        if running_until := _running_until(connection, told.user_id, session_id, now):
            _arm_again(connection, event, running_until)
            return "running"
        _write_end(connection, told.user_id, session_id, row.trigger, now)
    return EndedSession(session_id, told.user_id, row.trigger)


def _running_until(
    connection: Connection, user_id: uuid.UUID, session_id: uuid.UUID, now: datetime
) -> datetime | None:
    """Until when the session's running turn holds its lease; None when nothing runs."""
    until: datetime | None = connection.scalar(
        sa.text("""
            select max(lease_until) from turns
            where user_id = :user_id and session_id = :session_id and status = 'running' and lease_until > :now
        """),
        {"user_id": user_id, "session_id": session_id, "now": now},
    )
    return until


def _arm_again(connection: Connection, event: Event, due: datetime) -> None:
    connection.execute(
        sa.text("update outbox_events set deliver_after = :due, published_at = null where id = :id"),
        {"due": due, "id": event.id},
    )


def _write_end(
    connection: Connection, user_id: uuid.UUID, session_id: uuid.UUID, reason: str, now: datetime
) -> None:
    """Write the end. A turn whose lease ran out is failed and loses its lease, so that no late answer comes into an ended session. Whoever
    waited for a turn's lock has an older clock than the turn: a session ends no earlier than its last message."""
    connection.execute(
        sa.text("""
            with crashed as (
                update turns set status = 'failed', error = 'crashed', finished_at = :now, lease = gen_random_uuid()
                where user_id = :user_id and session_id = :session_id and status = 'running')
            update sessions set ended_at = greatest(cast(:now as timestamptz), last_activity_at), end_reason = :reason
            where id = :session_id and user_id = :user_id
        """),
        {"user_id": user_id, "session_id": session_id, "reason": reason, "now": now},
    )


@dataclass(frozen=True)
class Backfilled:
    """The events written for sessions that had been forgotten, and how many such sessions are left for the next run."""

    events: list[Event]
    left: int


def backfill_sessions(connection: Connection, *, now: datetime, quiet: timedelta) -> Backfilled:
    """Write a `session-ended` event for each session of the last 14 days, ended or quiet, that has neither a wrap-up, nor a reason for
    having none, nor a waiting event; the oldest first, at most 500. Two runs at once write each event once."""
    rows: list[Any] = list(
        connection.execute(
            sa.text("""
                with forgotten as (
                    select s.id, s.user_id, s.conversation_id, count(*) over () as total
                    from sessions s
                    where s.wrap_up in ('waiting', 'running') and coalesce(s.wrap_up_lease_until, :now) <= :now
                      and s.last_activity_at >= :since
                      and (s.ended_at is not null or s.last_activity_at <= :quiet_since)
                      and not exists (
                          select from outbox_events e where e.dedupe_key = 'session-ended:' || cast(s.id as text))
                    order by s.last_activity_at, s.id
                    limit :most),
                written as (
                    insert into outbox_events
                        (user_id, conversation_id, type, payload, dedupe_key, deliver_after, published_at, created_at)
                    select user_id, conversation_id, 'session-ended',
                           jsonb_build_object('session_id', id, 'trigger', 'backfill'),
                           'session-ended:' || cast(id as text), :now, :now, :now
                    from forgotten
                    on conflict (dedupe_key) do nothing
                    returning id, cast(payload->>'session_id' as uuid) as session_id)
                select w.id, f.total from forgotten f left join written w on w.session_id = f.id
            """),
            {
                "now": now,
                "since": now - LOOK_BACK,
                "quiet_since": now - quiet,
                "most": BACKFILL_LIMIT,
            },
        )
    )
    left = rows[0].total - len(rows) if rows else 0
    return Backfilled([Event(row.id, "session-ended") for row in rows if row.id], left)
