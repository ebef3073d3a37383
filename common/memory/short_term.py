"""The short-term memory of this process: the recent messages of conversations, as the prompt gets them, and nothing else.

It is a cache. An entry is good for one version of its conversation, which every turn and every deletion raises in the database: what
another process did is never missed. It is bounded by entries, bytes and age.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from common.conversations import MAX_HISTORY_TURNS, BegunTurn

Row = dict[str, Any]

MAX_ENTRIES = 1_000
MAX_BYTES = 32 * 1024 * 1024
LASTS = timedelta(minutes=15)
ROW_BYTES = 600  # a row without its text: the dictionary, its keys' values and their place


class _Kept(NamedTuple):
    version: int
    rows: tuple[Row, ...]
    size: int
    at: datetime


class ShortTerm:
    """Recent messages by conversation. The entries kept longest ago go first: each turn keeps its conversation anew, so that these are
    the least recently used, and the oldest."""

    def __init__(
        self, *, entries: int = MAX_ENTRIES, size: int = MAX_BYTES, lasts: timedelta = LASTS
    ) -> None:
        self._limits = (entries, size, lasts)
        self._kept: OrderedDict[uuid.UUID, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, conversation_id: uuid.UUID, version: int, now: datetime) -> tuple[Row, ...] | None:
        """The conversation's rows as of exactly `version`; None if they are not here, of another version, or too old."""
        with self._lock:
            self._expire(now)
            kept = self._kept.get(conversation_id)
            return kept.rows if kept is not None and kept.version == version else None

    def put(self, conversation_id: uuid.UUID, version: int, rows: Sequence[Row], now: datetime) -> None:
        """Keep `rows`; an entry of a later version stays."""
        kept = _Kept(version, tuple(rows), sum(ROW_BYTES + sys.getsizeof(row["text"]) for row in rows), now)
        with self._lock:
            self._expire(now)
            before = self._kept.get(conversation_id)
            if before is not None and before.version > version:
                return
            self._drop(conversation_id)
            self._kept[conversation_id] = kept
            self.size += kept.size
            while len(self._kept) > self._limits[0] or self.size > self._limits[1]:
                self._drop(next(iter(self._kept)))

    def drop(self, conversation_id: uuid.UUID) -> None:
        """Forget the conversation."""
        with self._lock:
            self._drop(conversation_id)

    def _drop(self, conversation_id: uuid.UUID) -> None:
        gone = self._kept.pop(conversation_id, None)
        self.size -= gone.size if gone else 0

    def _expire(self, now: datetime) -> None:
        # An entry far in the future comes of a clock that was set back, and would not grow old.
        for conversation_id, kept in list(self._kept.items()):
            if abs(now - kept.at) < self._limits[2]:
                break
            self._drop(conversation_id)


_messages = ShortTerm()


def recent_messages(begun: BegunTurn, now: datetime) -> list[Row] | None:
    """The messages before the turn's own, oldest first, as the database would give them; None when they must be read there: this process
    does not have them as of the turn's version, or the turn answers an earlier message again."""
    if not begun.continues:
        return None
    rows = _messages.get(begun.conversation_id, begun.version, now)
    return None if rows is None else list(rows)


def keep_turn(begun: BegunTurn, history: list[Row] | None, answer: str, now: datetime) -> None:
    """Keep the conversation as it is after this turn, which has been committed. `history` is what was before it; None if the turn did not
    need to know, and then only what was kept before is carried on.

    A turn raises the version by two as it begins, one for each message. Where anything else raised it meanwhile, what is kept here is of
    a version that no turn will ask for.
    """
    known = history if history is not None else _messages.get(begun.conversation_id, begun.version, now)
    if not begun.continues or (known is None and begun.version > 0):
        _messages.drop(begun.conversation_id)
        return
    own = {"role": "user", "text": begun.message, "created_at": begun.started_at.isoformat()}
    reply = {"role": "assistant", "text": answer, "created_at": now.isoformat()}
    rows = [
        *(known or []),
        own | {"position": begun.version + 1},
        *([reply | {"position": begun.version + 2}] if answer else []),
    ]
    _messages.put(begun.conversation_id, begun.version + 2, rows[-2 * MAX_HISTORY_TURNS :], now)
