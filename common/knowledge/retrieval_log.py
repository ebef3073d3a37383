"""The retrieval log: which entries of the knowledge base an answer's search returned, showed to the model, and were cited."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import log
from common.db import set_local, went_away
from common.knowledge.search import Candidate
from common.text import to_json

LOCK_TIMEOUT_MS = 2000

_LOG = sa.text("""
    insert into retrieval_events (message_id, user_id, entry_id, rank, score, surfaced, cited, created_at)
    select e.message_id, :user_id, e.entry_id, e.rank, e.score, e.surfaced, e.cited, e.created_at
    from jsonb_to_recordset(cast(:rows as jsonb)) as e (
        message_id uuid, entry_id uuid, rank smallint, score float8, surfaced boolean, cited boolean, created_at timestamp)
""")


def log_retrieval(
    connection: Connection,
    *,
    user_id: uuid.UUID,
    message_id: uuid.UUID,
    trace: Sequence[Candidate],
    cited: frozenset[uuid.UUID],
    created_at: datetime,
) -> list[dict[str, Any]]:
    """Write one row for each candidate, in a SAVEPOINT: whatever goes wrong here costs the log, never the answer. Returns the rows that
    were written, as the sink `both` publishes them after the commit."""
    if not trace:
        return []
    moment = created_at.astimezone(UTC).replace(tzinfo=None).isoformat()
    rows = [
        {
            "message_id": str(message_id),
            "entry_id": str(c.entry_id),
            "rank": c.rank,
            "score": c.score,
            "surfaced": c.surfaced,
            "cited": c.surfaced and c.entry_id in cited,
            "created_at": moment,
        }
        for c in trace
    ]
    try:
        with connection.begin_nested():
            set_local(connection, {"lock_timeout": str(LOCK_TIMEOUT_MS)})
            connection.execute(_LOG, {"user_id": user_id, "rows": to_json(rows)})
    except (sa.exc.DBAPIError, ValueError) as exc:
        if went_away(exc):
            raise
        log.write_exception("retrieval log not written", exc)
        return []
    log.emit("retrieval_events_persisted_total", row_count=len(rows))
    return rows
