"""Snapshots: every tool result as a row, written from the outbox, found again by conversation or by tool."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import events, log
from common.db import array, ask, statement
from common.memory.snapshot_summary import K, Snapshot
from common.tools.registry import tools

MAX_PER_CONVERSATION = 200
RETENTION_DAYS = 180

# Those of the last turn are in the outbox until their event is consumed; recall sees both, once.
PENDING = """
    select r.tool_use_id, r.tool_name, r.tool_input, r.signals, r.arguments_hash, r.is_error, r.position, r.created_at,
           r.observed_at, cast(e.payload->>'site_id' as uuid) as site_id
    from outbox_events e
    cross join lateral jsonb_to_recordset(e.payload->'results') as r (
        tool_use_id text, tool_name text, tool_input jsonb, signals jsonb, arguments_hash text, is_error boolean,
        position integer, created_at timestamptz, observed_at timestamptz)
    where e.user_id = :user_id and e.conversation_id = :conversation_id and e.type = 'tool-results'
"""

# `recall` is one column of the statement that loads a turn's context: an array of the newest of each call (site, tool, arguments), each
# with the signals of the last earlier call of the same kind that said something else.
RECALL = f"""
    (with calls as (
        select s.tool_use_id, s.tool_name, s.tool_input, s.signals, s.arguments_hash, s.is_error, s.position,
               s.created_at, s.observed_at, s.site_id
        from message_tool_results s
        where s.user_id = :user_id and s.conversation_id = :conversation_id
        union all
        {PENDING}),
    shown as (
        select * from calls where not is_error and not (tool_name = any(cast(:hidden_tools as text[])))),
    newest as (
        select site_id, tool_name, arguments_hash, max(row(created_at, position)) as at from shown
        group by site_id, tool_name, arguments_hash order by at desc limit {K}),
    recalled as (
        select s.* from newest n join shown s
            on s.tool_name = n.tool_name and s.arguments_hash = n.arguments_hash and s.site_id is not distinct from n.site_id
            and row(s.created_at, s.position) = n.at)
    select coalesce(jsonb_agg(to_jsonb(t) order by t.created_at desc, t.position desc), '[]')
    from (
        select n.tool_name, n.tool_input, n.signals, n.created_at, n.observed_at, n.position,
               e.signals as earlier_signals, e.created_at as earlier_at
        from recalled n
        left join lateral (
            select c.signals, c.created_at from shown c
            where c.site_id is not distinct from n.site_id and c.tool_name = n.tool_name
              and c.arguments_hash = n.arguments_hash and c.created_at < n.created_at and c.signals <> n.signals
            order by c.created_at desc, c.position desc limit 1) e on true) t)
"""


def hidden_tools() -> list[str]:
    """The tools whose results are stored and never shown in the recall block."""
    return [tool.name for tool in tools().values() if not tool.recallable]


def recall_snapshots(
    connection: Connection, *, user_id: uuid.UUID, conversation_id: uuid.UUID
) -> list[Snapshot]:
    """The newest K calls of the conversation, newest first, superseded ones folded into their successor."""
    rows = connection.scalar(
        sa.text(f"select {RECALL}"),
        {"user_id": user_id, "conversation_id": conversation_id, "hidden_tools": array(hidden_tools())},
    )
    return read_recall(rows)


def read_recall(rows: list[dict[str, Any]]) -> list[Snapshot]:
    """The snapshots in the JSON that `RECALL` returns."""
    return [
        Snapshot(
            tool_name=row["tool_name"],
            tool_input=row["tool_input"],
            signals=row["signals"],
            created_at=datetime.fromisoformat(row["created_at"]),
            observed_at=datetime.fromisoformat(row["observed_at"]) if row["observed_at"] else None,
            earlier_signals=row["earlier_signals"],
            earlier_at=datetime.fromisoformat(row["earlier_at"]) if row["earlier_at"] else None,
        )
        for row in rows
    ]


# A statement does not see what it writes: of those that were there before, as many stay as the new ones leave room for. The ids are read
# off the payload first: reading JSON is not leakproof, and no index is asked for the result of what is not before the policy has spoken.
_PERSIST = statement(
    "tool_name",
    f"""
    with event as materialized (
        select id, user_id, conversation_id, payload->'results' as results,
               cast(payload->>'message_id' as uuid) as message_id, cast(payload->>'site_id' as uuid) as site_id
        from outbox_events e where e.type = 'tool-results' and {events.DUE}),
    stored as (
        insert into message_tool_results
            (user_id, message_id, conversation_id, site_id, tool_use_id, tool_name, tool_input, tool_output, signals,
             arguments_hash, is_error, position, observed_at, created_at)
        select e.user_id, m.id, m.conversation_id, s.id, r.tool_use_id, r.tool_name, r.tool_input, r.tool_output,
               r.signals, r.arguments_hash, r.is_error, r.position, r.observed_at, r.created_at
        from event e
        join messages m on m.id = e.message_id and m.user_id = e.user_id
        left join sites s on s.id = e.site_id and s.user_id = e.user_id
        cross join lateral jsonb_to_recordset(e.results) as r (
            tool_use_id text, tool_name text, tool_input jsonb, tool_output jsonb, signals jsonb, arguments_hash text,
            is_error boolean, position integer, observed_at timestamptz, created_at timestamptz)
        on conflict (message_id, tool_use_id) do nothing
        returning tool_name),
    dropped as (
        delete from message_tool_results r using event e, lateral (
            select id from message_tool_results
            where user_id = e.user_id and conversation_id = e.conversation_id
            order by created_at desc, position desc
            offset greatest({MAX_PER_CONVERSATION} - (select count(*) from stored), 0)) as old
        where r.id = old.id and r.user_id = e.user_id),
    done as (delete from outbox_events o using event e where o.id = e.id and o.user_id = e.user_id)
    select tool_name from stored
""",
)


def persist_snapshots(connection: Connection, event_id: uuid.UUID, now: datetime) -> None:
    """The effect of a `tool-results` event: a row for each result whose message still exists, room made for them within the conversation's
    limit by the oldest of those that were there, and the event deleted. Repeating it changes nothing."""
    for stored in ask(connection, _PERSIST, {"event_id": event_id, "now": now}):
        log.emit("tool_results_persisted_total", tool_name=stored.tool_name, row_count=1)
