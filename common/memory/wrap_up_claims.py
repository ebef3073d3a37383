"""Claiming a session for its wrap-up: whether it is to have one, the lease on it, and the reservation of the model's call."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy import Connection

from common import entitlements, events, log
from common.accounts import Account
from common.config import Settings
from common.entitlements import WRAP_UP_SHARE, Charge
from common.errors import LimitReached, Unavailable
from common.events import Event
from common.llm import call as llm
from common.llm.types import ModelRequest
from common.memory import wrap_up_prompts as prompts
from common.memory.transcripts import Transcript, is_substantive, load_said, write_transcript
from common.sessions import EndedSession

KIND = "wrap_up_generation"
# Longer than the function may run, so that a lease that is over belongs to a process that is gone.
LEASE = timedelta(minutes=15)


@dataclass(frozen=True)
class Job:
    """A claimed session: its lease, what was said in it, when last, and the reserved first call."""

    session: EndedSession
    account: Account
    lease: uuid.UUID
    transcript: Transcript
    last_activity_at: datetime
    charge: Charge


_STANDING = sa.text("""
    select s.conversation_id, s.last_activity_at, s.wrap_up, s.wrap_up_lease_until, c.remember,
           coalesce(w.timezone, 'UTC') as timezone, u.tenant_id, u.email, t.tier
    from sessions s
    join conversations c on c.id = s.conversation_id and c.user_id = :user_id
    join users u on u.id = :user_id
    join tenants t on t.id = u.tenant_id
    left join sites w on w.id = c.site_id and w.user_id = :user_id
    where s.id = :session_id and s.user_id = :user_id
    for no key update of s
""")


def claim(
    connection: Connection, event: Event, session: EndedSession, config: Settings, now: datetime
) -> Job | str:
    """The session as a job of ours, its first call reserved; or the outcome that it has without one."""
    standing = connection.execute(_STANDING, {"user_id": session.user_id, "session_id": session.id}).first()
    if standing is None:
        return "gone"
    if standing.wrap_up in ("made", "skipped", "deleted"):
        events.delete_event(connection, event, session.user_id)
        return "done"
    if standing.wrap_up == "running" and standing.wrap_up_lease_until > now:
        return "busy"
    said = load_said(
        connection,
        user_id=session.user_id,
        conversation_id=standing.conversation_id,
        session_id=session.id,
    )
    if not standing.remember or not is_substantive(said):
        reason = "too_short" if standing.remember else "not_remembered"
        return _skip(connection, event, session, reason)
    try:
        entitlements.check_spend_stop(connection, config, now)
    except Unavailable:
        return "postponed"
    transcript = write_transcript(said, standing.timezone)
    account = Account(session.user_id, standing.tenant_id, standing.email, standing.tier)
    charge = charge_for(prompts.request(transcript), account, config, now)
    try:
        with connection.begin_nested():
            reserve(connection, account, charge, session.id, now, first=True)
    except LimitReached as exc:
        return _skip(connection, event, session, f"limit_{exc.extra['limit']}")
    lease = uuid.uuid4()
    mark(connection, session, "running", lease=lease, until=now + LEASE)
    return Job(session, account, lease, transcript, standing.last_activity_at, charge)


def charge_for(request: ModelRequest, account: Account, config: Settings, now: datetime) -> Charge:
    """The charge of a call, at its worst case."""
    choice, fallback = llm.choose(config, "wrap_up", account.tier)
    return Charge(KIND, choice.provider, choice.model, llm.worst_case_usd(request, choice, fallback), now)


def reserve(
    connection: Connection,
    account: Account,
    charge: Charge,
    session_id: uuid.UUID,
    now: datetime,
    *,
    first: bool,
) -> None:
    """Reserve a call within what the tier leaves to wrap-ups; the first of a job counts the wrap-up too. Raises LimitReached."""
    counts = [charge.reserved(account, share=WRAP_UP_SHARE[account.tier])]
    if first:
        counts.append(entitlements.count_wrap_up(account, now))
    entitlements.reserve(connection, account, charge, session_id=session_id, counts=counts, now=now)


def _skip(connection: Connection, event: Event, session: EndedSession, reason: str) -> str:
    """Record that the session gets no wrap-up, and why."""
    mark(connection, session, "skipped", reason=reason)
    events.delete_event(connection, event, session.user_id)
    log.emit("wrap_ups_generated_total", trigger=session.trigger, outcome=reason)
    return reason


def mark(
    connection: Connection,
    session: EndedSession,
    state: str,
    *,
    reason: str | None = None,
    lease: uuid.UUID | None = None,
    until: datetime | None = None,
) -> None:
    """Write where the session's wrap-up stands. What its owner deleted stays deleted."""
    connection.execute(
        sa.text("""
            update sessions set wrap_up = :state, wrap_up_reason = :reason, wrap_up_lease = cast(:lease as uuid),
                                wrap_up_lease_until = cast(:until as timestamptz)
            where id = :session_id and user_id = :user_id and wrap_up <> 'deleted'
        """),
        {
            "state": state,
            "reason": reason,
            "lease": lease,
            "until": until,
            "session_id": session.id,
            "user_id": session.user_id,
        },
    )
