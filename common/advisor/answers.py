"""The answer as clients get it: one document, built when a turn ends, or again from the database when a request is repeated."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.errors import NotFound


def answer_document(
    *,
    conversation_id: uuid.UUID,
    session_id: uuid.UUID,
    turn_id: uuid.UUID,
    message_id: uuid.UUID,
    status: str,
    text: str,
    details: dict[str, Any],
    tool_results: list[dict[str, Any]],
    error: str | None,
) -> dict[str, Any]:
    """The JSON form of an answer. `details` is what the message keeps: route, sources, recalled, usage, model, provider."""
    document = {
        "conversation_id": str(conversation_id),
        "session_id": str(session_id),
        "message_id": str(message_id),
        "turn_id": str(turn_id),
        "status": status,
        "text": text,
        "route": details.get("route"),
        "tool_calls": [
            {
                "tool_use_id": result["tool_use_id"],
                "tool_name": result["tool_name"],
                "input": result["tool_input"],
                "output": result["tool_output"],
                "is_error": result["is_error"],
            }
            for result in tool_results
        ],
        "sources": details.get("sources", []),
        "recalled": details.get("recalled", {"snapshots": [], "wrap_ups": []}),
        "usage": details.get("usage", {}),
        "model": details.get("model"),
        "provider": details.get("provider"),
    }
    not_saved = {"not_saved": details["not_saved"]} if details.get("not_saved") else {}
    return document | not_saved | ({"error": error} if error else {})


_STORED = sa.text("""
    select t.id as turn_id, t.conversation_id, t.session_id, t.status, t.error, m.id as message_id, m.text, m.details,
        (select coalesce(jsonb_agg(to_jsonb(r) order by r.position), '[]') from (
            select s.tool_use_id, s.tool_name, s.tool_input, s.tool_output, s.is_error, s.position
            from message_tool_results s where s.user_id = :user_id and s.message_id = m.id
            union all
            select r.tool_use_id, r.tool_name, r.tool_input, r.tool_output, r.is_error, r.position
            from outbox_events e
            cross join lateral jsonb_to_recordset(e.payload->'results') as r (
                tool_use_id text, tool_name text, tool_input jsonb, tool_output jsonb, is_error boolean, position integer)
            where e.user_id = :user_id and e.type = 'tool-results' and e.conversation_id = t.conversation_id
              and e.payload->>'message_id' = cast(m.id as text)) r) as tool_results
    from turns t
    join messages m on m.turn_id = t.id and m.user_id = :user_id and m.role = 'assistant'
    where t.user_id = :user_id and t.id = :turn_id
""")


def stored_answer(connection: Connection, *, user_id: uuid.UUID, turn_id: uuid.UUID) -> dict[str, Any]:
    """The document of a turn that was finished before. Raises NotFound."""
    row = connection.execute(_STORED, {"user_id": user_id, "turn_id": turn_id}).first()
    if row is None:
        raise NotFound("There is no such answer.")
    return answer_document(
        conversation_id=row.conversation_id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        message_id=row.message_id,
        status=row.status,
        text=row.text,
        details=row.details or {},
        tool_results=row.tool_results,
        error=row.error,
    )
