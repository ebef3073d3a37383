"""The tables. Alembic's migrations make them; at run time the code speaks SQL and does not import this module.

Every per-user table carries `user_id` with a cascade to `users`, so that deleting a user's row deletes all that is theirs.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from pgvector.sqlalchemy import Vector
from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSON, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

UTC = sa.DateTime(timezone=True)
NEW_ID = text("gen_random_uuid()")
NOW = text("now()")
LEXEMES = (
    "(setweight(to_tsvector('english'::regconfig, title), 'A'::\"char\")"
    " || setweight(to_tsvector('english'::regconfig, content), 'B'::\"char\"))"
    " || setweight(to_tsvector('english'::regconfig, context), 'D'::\"char\")"
)


class Base(DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's way to say it
        datetime: UTC,
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        Decimal: sa.Numeric(14, 6),
        str: sa.Text,
        int: sa.BigInteger,
    }


def primary_key() -> Mapped[UUID]:
    return mapped_column(primary_key=True, server_default=NEW_ID)


def owner() -> Mapped[UUID]:
    return mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)


def cascade(target: str, *, index: bool = True) -> Any:
    return mapped_column(ForeignKey(target, ondelete="CASCADE"), index=index)


class Tenant(Base):
    __tablename__ = "tenants"
    __table_args__ = (CheckConstraint("tier in ('free', 'pro')", name="tier"),)
    id: Mapped[UUID] = primary_key()
    name: Mapped[str]
    tier: Mapped[str] = mapped_column(server_default="free")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class User(Base):
    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("issuer", "subject"), UniqueConstraint("id", "tenant_id"))
    id: Mapped[UUID] = primary_key()
    tenant_id: Mapped[UUID] = cascade("tenants.id")
    email: Mapped[str]
    issuer: Mapped[str]
    subject: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Site(Base):
    __tablename__ = "sites"
    __table_args__ = (UniqueConstraint("user_id", "name"),)
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    name: Mapped[str]
    currency: Mapped[str]
    timezone: Mapped[str]
    data_as_of: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class SiteImport(Base):
    """One run of `import-site` over one file."""

    __tablename__ = "site_imports"
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    site_id: Mapped[UUID] = cascade("sites.id")
    source: Mapped[str]
    file_name: Mapped[str]
    file_hash: Mapped[str]
    rows_read: Mapped[int]
    rows_added: Mapped[int]
    rows_updated: Mapped[int]
    rows_unchanged: Mapped[int]
    rows_rejected: Mapped[int]
    data_through: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Membership(Base):
    """A plan that a site sells. `price_minor` is in minor units of `currency`; `period` says how often it is paid."""

    __tablename__ = "memberships"
    __table_args__ = (
        UniqueConstraint("site_id", "external_id"),
        CheckConstraint(
            "period in ('month', 'year', 'week', 'quarter', 'half_year', 'once', 'unknown')", name="period"
        ),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    site_id: Mapped[UUID] = cascade("sites.id", index=False)
    external_id: Mapped[str]
    name: Mapped[str]
    price_minor: Mapped[int | None]
    currency: Mapped[str]
    period: Mapped[str] = mapped_column(server_default="unknown")
    status: Mapped[str] = mapped_column(server_default="active")
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Member(Base):
    """A person on a site. `aliases` are the ids that other systems' files gave the same person."""

    __tablename__ = "members"
    __table_args__ = (
        UniqueConstraint("site_id", "external_id"),
        Index(None, "site_id", "registered_at"),
        Index(None, "site_id", "email"),
        Index("ix_members_aliases", "site_id", postgresql_where=text("aliases is not null")),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    site_id: Mapped[UUID] = cascade("sites.id", index=False)
    external_id: Mapped[str]
    aliases: Mapped[list[str] | None] = mapped_column(sa.ARRAY(sa.Text))
    email: Mapped[str | None]
    name: Mapped[str | None]
    registered_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Subscription(Base):
    """A member's time on a plan: from `started_at` until before `ended_at` (open while null)."""

    __tablename__ = "subscriptions"
    __table_args__ = (
        UniqueConstraint("site_id", "external_id"),
        Index(None, "site_id", "started_at", "ended_at"),
        CheckConstraint("ended_at >= started_at", name="ended"),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    site_id: Mapped[UUID] = cascade("sites.id", index=False)
    member_id: Mapped[UUID] = cascade("members.id")
    membership_id: Mapped[UUID | None] = cascade("memberships.id")
    external_id: Mapped[str]
    status: Mapped[str]
    price_minor: Mapped[int | None]
    currency: Mapped[str]
    period: Mapped[str] = mapped_column(server_default="unknown")
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Transaction(Base):
    """Money that moved: a payment, or a refund on its own day. `amount_minor` is positive for both."""

    __tablename__ = "transactions"
    __table_args__ = (
        UniqueConstraint("site_id", "external_id"),
        Index(None, "site_id", "occurred_at"),
        CheckConstraint("kind in ('payment', 'refund')", name="kind"),
        CheckConstraint("amount_minor >= 0", name="amount"),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    site_id: Mapped[UUID] = cascade("sites.id", index=False)
    member_id: Mapped[UUID | None] = cascade("members.id")
    membership_id: Mapped[UUID | None] = cascade("memberships.id")
    external_id: Mapped[str]
    kind: Mapped[str]
    amount_minor: Mapped[int]
    currency: Mapped[str]
    status: Mapped[str]
    description: Mapped[str | None]
    occurred_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Conversation(Base):
    """`version` rises with each turn, by two, one for each message's position, and with each deletion; caches are keyed by it."""

    __tablename__ = "conversations"
    # Each turn moves `last_turn_at`, and would write all indexes anew for one on it.
    __table_args__ = (UniqueConstraint("user_id", "client_id"), Index(None, "user_id", "created_at"))
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    site_id: Mapped[UUID | None] = cascade("sites.id")
    client_id: Mapped[str | None]
    title: Mapped[str]
    remember: Mapped[bool] = mapped_column(server_default=sa.true())
    version: Mapped[int] = mapped_column(server_default="0")
    created_at: Mapped[datetime]
    last_turn_at: Mapped[datetime]


class Session(Base):
    """A conversation from its first turn until it ends. `wrap_up` says where its wrap-up stands."""

    __tablename__ = "sessions"
    __table_args__ = (
        UniqueConstraint("conversation_id", "id"),
        Index("uq_sessions_open", "conversation_id", unique=True, postgresql_where=text("ended_at is null")),
        # For the nightly backfill. Each turn moves `last_activity_at` twice, and an index on it as often.
        Index(
            "ix_sessions_unwrapped", "started_at", postgresql_where=text("wrap_up in ('waiting', 'running')")
        ),
        CheckConstraint("wrap_up in ('waiting', 'running', 'made', 'skipped', 'deleted')", name="wrap_up"),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    conversation_id: Mapped[UUID] = cascade("conversations.id", index=False)
    started_at: Mapped[datetime]
    last_activity_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    end_reason: Mapped[str | None]
    wrap_up: Mapped[str] = mapped_column(server_default="waiting")
    wrap_up_reason: Mapped[str | None]
    wrap_up_lease: Mapped[UUID | None]
    wrap_up_lease_until: Mapped[datetime | None]


class Turn(Base):
    """One user message and the answer to it. The lease tells a running turn from a crashed one. `trace` is what `explain` shows: written
    once and read whole, as text, which is a third shorter than its binary form."""

    __tablename__ = "turns"
    __table_args__ = (
        # One key for both: a turn is in its session's conversation, and goes with either. So is a message. Found by session, it needs no
        # index by conversation.
        ForeignKeyConstraint(
            ["conversation_id", "session_id"], ["sessions.conversation_id", "sessions.id"], ondelete="CASCADE"
        ),
        UniqueConstraint("user_id", "client_turn_id"),
        CheckConstraint("status in ('running', 'complete', 'interrupted', 'failed')", name="status"),
        # One turn at a time in a conversation. Requests of a user wait for each other, from their count on; this holds without that, too.
        Index(
            "uq_turns_running", "conversation_id", unique=True, postgresql_where=text("status = 'running'")
        ),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    conversation_id: Mapped[UUID]
    session_id: Mapped[UUID] = mapped_column(index=True)
    client_turn_id: Mapped[str]
    body_hash: Mapped[str]
    status: Mapped[str]
    lease: Mapped[UUID]
    lease_until: Mapped[datetime]
    error: Mapped[str | None]
    trace: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    started_at: Mapped[datetime] = mapped_column(index=True)
    finished_at: Mapped[datetime | None]


class Message(Base):
    """What one side said; it outlives its turn. `position` orders a conversation; `details` holds an answer's sources, recalled lines,
    usage and model."""

    __tablename__ = "messages"
    __table_args__ = (
        ForeignKeyConstraint(
            ["conversation_id", "session_id"], ["sessions.conversation_id", "sessions.id"], ondelete="CASCADE"
        ),
        CheckConstraint("role in ('user', 'assistant')", name="role"),
        UniqueConstraint("conversation_id", "position"),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    conversation_id: Mapped[UUID]
    session_id: Mapped[UUID] = mapped_column(index=True)
    turn_id: Mapped[UUID | None] = mapped_column(ForeignKey("turns.id", ondelete="SET NULL"), index=True)
    role: Mapped[str]
    text: Mapped[str]
    status: Mapped[str]
    position: Mapped[int]
    details: Mapped[dict[str, Any] | None]
    superseded_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class MessageToolResult(Base):
    """A snapshot: what one tool call returned, and when. `signals` is all that recall reads."""

    __tablename__ = "message_tool_results"
    __table_args__ = (
        UniqueConstraint("message_id", "tool_use_id"),
        Index(None, "conversation_id", "created_at"),
        Index(None, "created_at"),
        # By the user as well as all that recall asks for: by an index on the user alone, which a plan made while there is little may
        # choose, it would read the other conversations'.
        Index(None, "user_id", "conversation_id", "created_at"),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    message_id: Mapped[UUID] = cascade("messages.id", index=False)
    conversation_id: Mapped[UUID] = cascade("conversations.id", index=False)
    site_id: Mapped[UUID | None] = cascade("sites.id")
    tool_use_id: Mapped[str]
    tool_name: Mapped[str]
    tool_input: Mapped[dict[str, Any]]
    tool_output: Mapped[dict[str, Any]]
    signals: Mapped[dict[str, Any]]
    arguments_hash: Mapped[str]
    is_error: Mapped[bool] = mapped_column(server_default=sa.false())
    position: Mapped[int]
    observed_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class MessageFeedback(Base):
    __tablename__ = "message_feedback"
    message_id: Mapped[UUID] = mapped_column(ForeignKey("messages.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = owner()
    helpful: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW, index=True)


class SessionLog(Base):
    """A wrap-up. Written once by the system; changed and deleted by its user only."""

    __tablename__ = "session_logs"
    __table_args__ = (
        ForeignKeyConstraint(["user_id", "tenant_id"], ["users.id", "users.tenant_id"], ondelete="CASCADE"),
        UniqueConstraint("session_id"),
        Index(None, "user_id", "created_at"),
        Index(None, "created_at"),
    )
    id: Mapped[UUID] = primary_key()
    tenant_id: Mapped[UUID]
    user_id: Mapped[UUID]
    session_id: Mapped[UUID] = cascade("sessions.id", index=False)
    summary: Mapped[str]
    decisions: Mapped[list[Any]]
    open_items: Mapped[list[Any]]
    new_context: Mapped[list[Any]]
    next_session_note: Mapped[str]
    trigger: Mapped[str]
    model: Mapped[str]
    input_tokens: Mapped[int]
    output_tokens: Mapped[int]
    version: Mapped[int] = mapped_column(server_default="1")
    created_at: Mapped[datetime]
    edited_at: Mapped[datetime | None]


class BrainDocument(Base):
    """SOUL and BIBLE of a user, and a HEARTBEAT for each site."""

    __tablename__ = "brain_documents"
    __table_args__ = (
        CheckConstraint("kind in ('soul', 'bible', 'heartbeat')", name="kind"),
        CheckConstraint("(kind = 'heartbeat') = (site_id is not null)", name="site"),
        UniqueConstraint("user_id", "kind", "site_id", postgresql_nulls_not_distinct=True),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    site_id: Mapped[UUID | None] = cascade("sites.id")
    kind: Mapped[str]
    content: Mapped[str]
    version: Mapped[int] = mapped_column(server_default="1")
    author: Mapped[str]
    updated_at: Mapped[datetime]


class BrainDocumentRevision(Base):
    """What a document said before its present version."""

    __tablename__ = "brain_document_revisions"
    __table_args__ = (UniqueConstraint("document_id", "version"),)
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    document_id: Mapped[UUID] = cascade("brain_documents.id", index=False)
    version: Mapped[int]
    content: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class BrainEntry(Base):
    """An entry that search finds: of the knowledge base (`tenant_id = 'global'`, no user) or a user's MEMORY.

    `context` is text around the entry that helps to find it and is never shown. `lexemes` follows from the three texts, so that no writer
    can forget it. `embedding` has no fixed dimension; `reembed` makes the index on a cast of it, for the knowledge base alone.
    """

    __tablename__ = "brain_entries"
    __table_args__ = (
        CheckConstraint("(tenant_id = 'global') = (user_id is null)", name="owner"),
        CheckConstraint("(collection = 'memory') = (user_id is not null)", name="memory"),
        Index(
            "uq_brain_entries_document",
            "document",
            "content_hash",
            unique=True,
            postgresql_where=text("tenant_id = 'global'"),
        ),
        Index("ix_brain_entries_model", "embedding_model", postgresql_where=text("tenant_id = 'global'")),
        # Deleting a message looks for the entries that were learned from it.
        Index(
            "ix_brain_entries_source",
            "source_message_id",
            postgresql_where=text("source_message_id is not null"),
        ),
    )
    id: Mapped[UUID] = primary_key()
    tenant_id: Mapped[str]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    collection: Mapped[str]
    document: Mapped[str]
    title: Mapped[str]
    url: Mapped[str | None]
    content: Mapped[str]
    context: Mapped[str] = mapped_column(server_default="")
    content_hash: Mapped[str]
    attributes: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    lexemes: Mapped[Any] = mapped_column(
        sa.dialects.postgresql.TSVECTOR, sa.Computed(LEXEMES, persisted=True), nullable=True
    )
    embedding: Mapped[Any] = mapped_column(Vector(), nullable=True)
    embedding_model: Mapped[str | None]
    source_message_id: Mapped[UUID | None] = mapped_column(ForeignKey("messages.id", ondelete="SET NULL"))
    version: Mapped[int] = mapped_column(server_default="1")
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class BrainTerm(Base):
    """A lexeme of the knowledge base: how much it tells (`idf`), and the entries in which it weighs most, heaviest first, with what it adds
    to the rank of each by words. Made by `ingest` from the entries."""

    __tablename__ = "brain_terms"
    lexeme: Mapped[str] = mapped_column(primary_key=True)
    idf: Mapped[float]
    best: Mapped[list[UUID]] = mapped_column(sa.ARRAY(sa.Uuid))
    words: Mapped[list[float]] = mapped_column(sa.ARRAY(sa.REAL))


class RetrievalEvent(Base):
    """One candidate of one answer. `entry_id` refers to no row: ingesting again may replace an entry's id."""

    __tablename__ = "retrieval_events"
    __table_args__ = (
        sa.PrimaryKeyConstraint("message_id", "rank"),
        Index(None, "entry_id", "created_at"),
        Index(None, "created_at"),
    )
    message_id: Mapped[UUID] = cascade("messages.id", index=False)
    user_id: Mapped[UUID] = owner()
    entry_id: Mapped[UUID]
    rank: Mapped[int] = mapped_column(sa.SmallInteger)
    score: Mapped[float]
    surfaced: Mapped[bool]
    cited: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(sa.DateTime(timezone=False))


class EntryPerformance(Base):
    """How an entry fared on a day; `day = 'infinity'` is the entry's row for all days."""

    __tablename__ = "entry_performance"
    __table_args__ = (sa.PrimaryKeyConstraint("entry_id", "day"), Index(None, "day"))
    entry_id: Mapped[UUID]
    day: Mapped[date]
    retrieved: Mapped[int] = mapped_column(server_default="0")
    surfaced: Mapped[int] = mapped_column(server_default="0")
    cited: Mapped[int] = mapped_column(server_default="0")
    helpful: Mapped[int] = mapped_column(server_default="0")
    last_seen_at: Mapped[datetime | None] = mapped_column(sa.DateTime(timezone=False))
    final: Mapped[bool] = mapped_column(server_default=sa.false())


class UsageCharge(Base):
    """One model call: reserved at its worst case before it, settled with what the provider reported after it. It is a turn's, which
    tells the session, or a session's own: its wrap-up."""

    __tablename__ = "usage_charges"
    __table_args__ = (
        ForeignKeyConstraint(["user_id", "tenant_id"], ["users.id", "users.tenant_id"], ondelete="CASCADE"),
        CheckConstraint("state in ('reserved', 'settled', 'expired')", name="state"),
        # None of what is reserved: to settle a charge would write all of them anew.
        Index("ix_usage_charges_session", "session_id", postgresql_where=text("session_id is not null")),
    )
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = mapped_column(index=True)
    tenant_id: Mapped[UUID]
    turn_id: Mapped[UUID | None] = mapped_column(ForeignKey("turns.id", ondelete="SET NULL"), index=True)
    session_id: Mapped[UUID | None] = mapped_column(ForeignKey("sessions.id", ondelete="SET NULL"))
    kind: Mapped[str]
    provider: Mapped[str]
    model: Mapped[str]
    state: Mapped[str]
    reserved_usd: Mapped[Decimal]
    cost_usd: Mapped[Decimal | None]
    input_tokens: Mapped[int] = mapped_column(server_default="0")
    output_tokens: Mapped[int] = mapped_column(server_default="0")
    cache_read_tokens: Mapped[int] = mapped_column(server_default="0")
    cache_write_tokens: Mapped[int] = mapped_column(server_default="0")
    created_at: Mapped[datetime] = mapped_column(index=True)
    expires_at: Mapped[datetime]
    settled_at: Mapped[datetime | None]


class UsageCounter(Base):
    """What a tenant used of a limit in a period: turns of a day, dollars and wrap-ups of a month."""

    __tablename__ = "usage_counters"
    __table_args__ = (sa.PrimaryKeyConstraint("tenant_id", "counter", "period"),)
    tenant_id: Mapped[UUID] = cascade("tenants.id", index=False)
    counter: Mapped[str]
    period: Mapped[date]
    used: Mapped[Decimal] = mapped_column(server_default="0")


class RequestCount(Base):
    """How many requests a user made in the minute of the last one; the next minute's first overwrites it."""

    __tablename__ = "request_counts"
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    minute: Mapped[datetime]
    requests: Mapped[int]


class OutboxEvent(Base):
    """An event whose effect is not yet written. Only its consumer deletes it, with the effect.

    There is no index on when it is due, which each turn moves twice for its session's end, and all indexes with it. The relay reads what
    waits, which is what happened in the last half hour.
    """

    __tablename__ = "outbox_events"
    __table_args__ = (UniqueConstraint("dedupe_key"),)
    id: Mapped[UUID] = primary_key()
    user_id: Mapped[UUID] = owner()
    conversation_id: Mapped[UUID | None] = cascade("conversations.id")
    type: Mapped[str]
    version: Mapped[int] = mapped_column(server_default="1")
    payload: Mapped[dict[str, Any]]
    dedupe_key: Mapped[str | None]
    deliver_after: Mapped[datetime]
    published_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(server_default="0")
    postponements: Mapped[int] = mapped_column(server_default="0")
    last_error: Mapped[str | None]
    dead_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class JobRun(Base):
    """One step of one run of a scheduled job."""

    __tablename__ = "job_runs"
    __table_args__ = (Index(None, "job", "started_at"),)
    id: Mapped[UUID] = primary_key()
    job: Mapped[str]
    step: Mapped[str]
    outcome: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class ExportDay(Base):
    """A day of a table that is in BigQuery, and with how many rows."""

    __tablename__ = "export_days"
    __table_args__ = (sa.PrimaryKeyConstraint("table_name", "day"),)
    table_name: Mapped[str]
    day: Mapped[date]
    row_count: Mapped[int]
    job_id: Mapped[str]
    exported_at: Mapped[datetime]


class AccessLog(Base):
    """A look that an operator or admin took at what belongs to customers."""

    __tablename__ = "access_log"
    id: Mapped[UUID] = primary_key()
    actor: Mapped[str]
    action: Mapped[str]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    details: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = mapped_column(index=True)
