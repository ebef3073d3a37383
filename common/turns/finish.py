"""How a turn ends: all that it made is committed in one statement, provided it still holds its lease."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import entitlements
from common.conversations import LEASE, BegunTurn, FinishedTurn, LeaseLost
from common.db import ask, set_user, statement
from common.entitlements import Ended
from common.events import Event
from common.text import to_json


def renew_lease(connection: Connection, begun: BegunTurn, *, now: datetime) -> bool:
    """Extend the lease of a running turn; returns whether it was still held."""
    renewed = connection.execute(
        sa.text("""
            update turns set lease_until = :until
            where id = :turn_id and user_id = :user_id and lease = :lease and status = 'running'
        """),
        {
            "until": now + LEASE,
            "turn_id": begun.turn_id,
            "user_id": begun.account.user_id,
            "lease": begun.lease,
        },
    )
    return renewed.rowcount == 1


_SUPERSEDE = """
    superseded as (
        update messages m set superseded_at = :now from held
        where m.conversation_id = held.conversation_id and m.user_id = :user_id and m.superseded_at is null
          and m.position > (select position from messages where id = :user_message_id and user_id = :user_id)),"""


# Every part hangs on `held`: a turn that lost its lease, or whose conversation was deleted, changes nothing. `standing` and the order of
# the last select keep the order in which rows are locked. Who asked for the session's end while this turn ran still gets it.
def _finish(also: str = "") -> sa.TextualSelect:
    return statement(
        "held counted session_event",
        f"""
    with standing as materialized (
        select c.id from conversations c join sessions s on s.conversation_id = c.id
        where c.id = :conversation_id and c.user_id = :user_id and s.id = :session_id and s.user_id = :user_id
        for no key update of c, s),
    held as (
        update turns set status = :status, error = :error, trace = cast(:trace as json), finished_at = :now
        from standing
        where turns.id = :turn_id and turns.user_id = :user_id and lease = :lease and status = 'running'
        returning conversation_id, session_id),
    settled as ({entitlements.SETTLE_IF_HELD}),
    covered as ({entitlements.COVERED}),
    counted as ({entitlements.COUNT_IF_SETTLED}),
    session as (
        update sessions s set last_activity_at = :now,
            ended_at = case when :ends then cast(:now as timestamptz) end,
            end_reason = case when :ends then 'client' end
        from held where s.id = held.session_id and s.user_id = :user_id
        returning s.id, s.conversation_id),
    {also}
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, details,
                              created_at)
        select :message_id, :user_id, held.conversation_id, held.session_id, :turn_id, 'assistant', :text, :status,
               cast(:position as bigint), cast(:details as jsonb), :now
        from held where :answered),
    results as (
        insert into outbox_events (id, user_id, conversation_id, type, payload, deliver_after, created_at)
        select :event_id, :user_id, held.conversation_id, 'tool-results', cast(:results as jsonb), :now, :now
        from held where :has_results),
    quiet as (
        insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
        select :user_id, session.conversation_id, 'session-ended',
               jsonb_build_object('session_id', session.id, 'trigger', cast(:trigger as text)), 'session-ended:' || session.id, :due, :now
        from session
        on conflict (dedupe_key) do update set
            payload = case when outbox_events.payload->>'trigger' = 'client' then outbox_events.payload else excluded.payload end,
            deliver_after = case when outbox_events.payload->>'trigger' = 'client' then :now else excluded.deliver_after end,
            published_at = null, attempts = 0, postponements = 0, dead_at = null
        returning id)
    select (select count(*) from held) as held, (select count(*) from counted) as counted, (select id from quiet) as session_event
""",
    )


# Apart, for each part costs time, used or not.
_FINISH, _FINISH_AGAIN = _finish(), _finish(_SUPERSEDE)


def finish_turn(
    connection: Connection,
    begun: BegunTurn,
    finished: FinishedTurn,
    *,
    settled: Sequence[Ended],
    now: datetime,
    quiet: timedelta,
) -> list[Event] | None:
    """Write all that a turn made, and settle the calls of its open reservation. Returns the events to publish after the commit: its tool
    results, and the session's end if the client asked for it. None where an earlier try was committed, with what it wrote beside: only
    the acknowledgement was lost, and the relay publishes.

    Raises LeaseLost; nothing was written then.
    """
    event_id = uuid.uuid4() if finished.tool_results else None
    # A turn that failed will be sent again, and then ends the session.
    ends = begun.end_session and finished.status != "failed"
    due, trigger = (now, "client") if ends else (now + quiet, "quiet")
    (row,) = ask(
        connection,
        _FINISH_AGAIN if begun.again else _FINISH,
        {
            "status": finished.status,
            "error": finished.error,
            "trace": to_json(finished.trace),
            "turn_id": begun.turn_id,
            "user_id": begun.account.user_id,
            "conversation_id": begun.conversation_id,
            "session_id": begun.session_id,
            "ends": ends,
            "lease": begun.lease,
            "user_message_id": begun.user_message_id,
            "message_id": begun.assistant_message_id,
            "position": begun.version + 2,
            "text": finished.text,
            "details": to_json(finished.details),
            # A turn that failed before it said or fetched anything leaves no empty answer behind.
            "answered": bool(finished.text or finished.tool_results or finished.status != "failed"),
            "event_id": event_id,
            "results": to_json(_results_payload(begun, finished)),
            "has_results": event_id is not None,
            "trigger": trigger,
            "due": due,
            **entitlements.settling_all(settled, now),
            **entitlements.counting(begun.account, entitlements.given_back(settled)),
            "now": now,
        },
    )
    if row.held != 1:
        if _was_committed(connection, begun, now):
            return None
        raise LeaseLost()
    results = [Event(event_id, "tool-results")] if event_id else []
    return results + ([Event(row.session_event, "session-ended")] if ends else [])


def _was_committed(connection: Connection, begun: BegunTurn, now: datetime) -> bool:
    """Whether this very attempt to finish took effect before: it alone wrote this lease with this moment."""
    set_user(connection, begun.account.user_id)  # the statement before may have ended its transaction
    found = connection.scalar(
        sa.text("""
            select 1 from turns
            where id = :turn_id and user_id = :user_id and lease = :lease and finished_at = :now and status <> 'running'
        """),
        {
            "turn_id": begun.turn_id,
            "user_id": begun.account.user_id,
            "lease": begun.lease,
            "now": now,
        },
    )
    return found is not None


def _results_payload(begun: BegunTurn, finished: FinishedTurn) -> dict[str, Any]:
    return {
        "message_id": str(begun.assistant_message_id),
        "conversation_id": str(begun.conversation_id),
        "site_id": str(begun.site.id) if begun.site else None,
        "results": finished.tool_results,
    }
