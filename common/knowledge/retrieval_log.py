"""The retrieval log: which entries of the knowledge base an answer's search returned, showed to the model, and were cited."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import log
from common.db import set_local
from common.knowledge.search import Candidate

LOCK_TIMEOUT_MS = 2000


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
    moment = created_at.astimezone(UTC).replace(tzinfo=None)
    try:
        with connection.begin_nested():
            set_local(connection, {"lock_timeout": str(LOCK_TIMEOUT_MS)})
            connection.execute(
                sa.text("""
                    insert into retrieval_events (message_id, user_id, entry_id, rank, score, surfaced, cited, created_at)
                    select :message_id, :user_id, e.entry_id, e.rank, e.score, e.surfaced, e.cited, :created_at
                    from unnest(cast(:entries as uuid[]), cast(:ranks as smallint[]), cast(:scores as float8[]),
                                cast(:surfaced as boolean[]), cast(:cited as boolean[]))
                        as e (entry_id, rank, score, surfaced, cited)
                """),
                {
                    "message_id": message_id,
                    "user_id": user_id,
                    "entries": [c.entry_id for c in trace],
                    "ranks": [c.rank for c in trace],
                    "scores": [c.score for c in trace],
                    "surfaced": [c.surfaced for c in trace],
                    "cited": [c.surfaced and c.entry_id in cited for c in trace],
                    "created_at": moment,
                },
            )
    except sa.exc.DBAPIError as exc:
        if exc.connection_invalidated:
            raise
        log.write_exception("retrieval log not written", exc)
        return []
    log.emit("retrieval_events_persisted_total", row_count=len(trace))
    return [
        {
            "message_id": str(message_id),
            "entry_id": str(c.entry_id),
            "rank": c.rank,
            "score": c.score,
            "surfaced": c.surfaced,
            "cited": c.surfaced and c.entry_id in cited,
            "created_at": moment.isoformat(),
        }
        for c in trace
    ]
