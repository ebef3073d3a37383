"""The context builder: the only way from memory and knowledge into a prompt, and only for the Advisor.

Sections come in a fixed order, the stable ones first, so that a provider's cache can serve them. Each has a budget; whole items are
dropped when it is over, and what was dropped is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from common import db, log
from common.advisor import prompts
from common.config import Settings
from common.conversations import HISTORY, BegunTurn, to_messages
from common.errors import Unavailable
from common.knowledge.citations import number_sources
from common.knowledge.embeddings import embedder
from common.knowledge.search import Beside, Candidate, TurnSearch, search_for_turn
from common.llm.types import Message, Section
from common.memory import short_term
from common.memory.snapshot_summary import Snapshot, recall_block
from common.memory.snapshots import RECALL, hidden_tools, read_recall
from common.text import count_tokens, fenced

# Tokens a section may take, by the careful count.
BUDGETS = {
    "soul": 600,
    "bible": 1200,
    "heartbeat": 500,
    "wrap_ups": 2000,
    "previously_fetched": 300,
    "memory": 600,
    "knowledge": 2500,
    "history": 6000,
}
WRAP_UPS = 3
# What a turn's first call can cost at most is reserved before its context is read.
MAX_PROMPT_TOKENS = sum(BUDGETS.values()) + 6000


@dataclass
class RequestContext:
    """What the Advisor gets to know, and the record of how it was made."""

    query: str
    sections: tuple[Section, ...]
    messages: tuple[Message, ...]
    snapshots: list[Snapshot]
    recalled: dict[str, list[str]]
    sources: list[Candidate]
    candidates: list[Candidate]
    trace: list[dict[str, Any]] = field(default_factory=list)

    def tokens(self, name: str) -> int:
        """How many tokens a section took."""
        return sum(part["tokens"] for part in self.trace if part["section"] == name)


@dataclass(frozen=True)
class Loaded:
    """What the database holds for a turn: JSON rows of history, documents and wrap-ups, and what was found."""

    history: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    wrap_ups: list[dict[str, Any]]
    snapshots: list[Snapshot]
    found: TurnSearch


# Columns (name, SQL) of the statement that searches: the turn waits for it in any case, and one round trip serves both. Of the history,
# only where this process has not kept it: each column costs time.
_HISTORY = ("history", HISTORY)
_LOADED = (
    ("recall", RECALL),
    (
        "documents",
        """(select coalesce(jsonb_agg(to_jsonb(d)), '[]') from (
            select kind, content, updated_at from brain_documents
            where user_id = :user_id and (site_id is null or site_id = cast(:site_id as uuid))) d)""",
    ),
    (
        "wrap_ups",
        f"""(select coalesce(jsonb_agg(to_jsonb(w) order by w.created_at), '[]') from (
            select l.id, l.summary, l.decisions, l.open_items, l.new_context, l.next_session_note, l.created_at
            from session_logs l
            where l.user_id = :user_id and l.session_id <> :session_id
            order by l.created_at desc limit {WRAP_UPS}) w)""",
    ),
)


def load_context(begun: BegunTurn, config: Settings, now: datetime) -> Loaded:
    """Everything that the Advisor may see for this turn, in one round trip. The query is embedded before the transaction opens; without
    an embedding, since its provider is away, words alone find. The history is not read where this process still has it."""
    history = short_term.recent_messages(begun, now)
    model = embedder(config)
    try:
        vector = model.embed([begun.message], kind="query")[0]
    except Unavailable as exc:
        log.write_exception("query not embedded", exc)
        vector = None
    user_id = begun.account.user_id
    beside = Beside(
        _LOADED if history is not None else (_HISTORY, *_LOADED),
        {
            "conversation_id": begun.conversation_id,
            "session_id": begun.session_id,
            "user_message_id": begun.user_message_id,
            "site_id": begun.site.id if begun.site else None,
            "hidden_tools": db.array(hidden_tools()),
        },
    )

    def read(connection: Connection) -> TurnSearch:
        db.commit_with_next(connection)
        return search_for_turn(
            connection,
            user_id=user_id,
            query=begun.message,
            query_embedding=vector,
            model=model.name,
            beside=beside,
        )

    found = db.in_user_transaction(user_id, read, local=db.ONE_PLAN)
    return Loaded(
        found.beside["history"] if history is None else history,
        found.beside["documents"],
        found.beside["wrap_ups"],
        read_recall(found.beside["recall"]),
        found,
    )


def build_context(begun: BegunTurn, loaded: Loaded, now: datetime) -> RequestContext:
    """The prompt's sections and messages from what was loaded. Pure, but that the rows of the history keep their counts."""
    builder = _Builder(begun.timezone)
    builder.add("base", prompts.BASE, stable=True)
    documents = {d["kind"]: d for d in loaded.documents}
    for kind in ("soul", "bible", "heartbeat"):
        if kind in documents:
            builder.add_document(kind, documents[kind])
    # What a conversation that is not to be remembered may know of others is the same; only its own traces stay out.
    wrap_ups = [_wrap_up(w, builder.zone) for w in loaded.wrap_ups]
    kept = builder.add_fenced("wrap_ups", wrap_ups, stable=True, drop_first=True)
    builder.add("today", prompts.today(now.astimezone(builder.zone).date(), begun.timezone))
    block, lines = recall_block(loaded.snapshots, begun.timezone)
    builder.add_fenced("previously_fetched", [block] if block else [])
    builder.add_fenced("memory", [_memory(m, builder.zone) for m in loaded.found.memory.top])
    sources = loaded.found.knowledge.top
    shown = builder.add_fenced("knowledge", number_sources(sources))
    history = builder.fit("history", loaded.history, _row_tokens, drop_first=True)
    return RequestContext(
        query=begun.message,
        sections=tuple(builder.sections),
        messages=with_query(to_messages(history, begun.timezone), begun.message),
        snapshots=loaded.snapshots[: len(lines)],
        recalled={"snapshots": lines, "wrap_ups": [w["id"] for w in loaded.wrap_ups[len(wrap_ups) - kept :]]},
        sources=sources[:shown],
        candidates=[
            c._replace(surfaced=False) if c.surfaced and c.rank > shown else c
            for c in loaded.found.knowledge.trace
        ],
        trace=builder.trace,
    )


def with_query(history: Sequence[Message], query: str) -> tuple[Message, ...]:
    """The history and the customer's message; joined to a message of theirs that was never answered."""
    if history and history[-1].role == "user":
        return (*history[:-1], Message("user", f"{history[-1].text}\n\n{query}"))
    return (*history, Message("user", query))


class _Builder:
    def __init__(self, timezone: str) -> None:
        self.zone = ZoneInfo(timezone)
        self.sections: list[Section] = []
        self.trace: list[dict[str, Any]] = []

    def add(self, name: str, text: str, *, stable: bool = False) -> None:
        """Add a section of our own words."""
        self.sections.append(Section(name, text, stable))
        self._record(name, count_tokens(text), 1, 0)

    def add_fenced(
        self, name: str, items: list[str], *, stable: bool = False, drop_first: bool = False
    ) -> int:
        """Add the items that fit between a pair of fences; returns how many did."""
        kept = self.fit(name, items, count_tokens, drop_first=drop_first)
        if kept:
            self.sections.append(Section(name, fenced(name, "\n\n".join(kept)), stable))
        return len(kept)

    def add_document(self, kind: str, document: dict[str, Any]) -> None:
        day = datetime.fromisoformat(document["updated_at"]).astimezone(self.zone).date()
        paragraphs = document["content"].split("\n\n")
        self.add_fenced(kind, [f"{kind.upper()}, as of {day}:", *paragraphs], stable=True)

    def fit(
        self, name: str, items: list[Any], tokens_of: Callable[[Any], int], *, drop_first: bool = False
    ) -> list[Any]:
        """The items that fit the section's budget, in order; whole ones go, from the front or from the back."""
        used = 0
        kept: list[Any] = []
        for item in reversed(items) if drop_first else items:
            tokens = tokens_of(item)
            if used + tokens > BUDGETS[name]:
                break
            used += tokens
            kept.append(item)
        if items:
            self._record(name, used, len(kept), len(items) - len(kept))
        return kept[::-1] if drop_first else kept

    def _record(self, name: str, tokens: int, items: int, dropped: int) -> None:
        self.trace.append({"section": name, "tokens": tokens, "items": items, "dropped": dropped})


def _wrap_up(row: dict[str, Any], zone: ZoneInfo) -> str:
    """A wrap-up as the model reads it, under its date."""
    day = datetime.fromisoformat(row["created_at"]).astimezone(zone).date()
    parts = [f"Session of {day}:", row["summary"]]
    for title, key in (("Decisions", "decisions"), ("Open items", "open_items"), ("Learned", "new_context")):
        if row[key]:
            parts.append(f"{title}:\n" + "\n".join(f"- {item['text']}" for item in row[key]))
    if row["next_session_note"]:
        parts.append(f"Note for the next session: {row['next_session_note']}")
    return "\n".join(parts)


def _row_tokens(row: dict[str, Any]) -> int:
    """A message's tokens, counted once for as long as this process keeps its row."""
    if "tokens" not in row:
        row["tokens"] = count_tokens(row["text"])
    return int(row["tokens"])


def _memory(entry: Candidate, zone: ZoneInfo) -> str:
    return f"- {entry.updated_at.astimezone(zone).date()}: {entry.content}"
