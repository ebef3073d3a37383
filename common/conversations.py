"""Conversations, sessions, turns and messages: how a turn begins and ends in the database, and the history a model gets.

A turn is three short transactions: `begin_turn` commits the customer's message and a lease before the model is called, the context is
read, and `finish_turn` commits all that the turn made, provided the lease is still held.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from common import entitlements
from common.accounts import Account
from common.entitlements import Charge
from common.errors import Conflict, InvalidFields, NotFound
from common.events import Event
from common.llm.types import Message, Stop
from common.text import canonical_hash, one_line, to_json
from common.tools.types import Site

MAX_HISTORY_TURNS = 10
LEASE = timedelta(seconds=60)
TITLE_CHARACTERS = 80

TurnStatus = Literal["complete", "interrupted", "failed"]


class LeaseLost(Conflict):
    """This turn was given up meanwhile: its conversation was deleted, or another turn took over."""

    type = "lease-lost"


@dataclass(frozen=True)
class TurnRequest:
    """What a client asks for, checked. `conversation_id` is ours, `client_id` the client's own name for a conversation; with neither
    a new one begins. `regenerate` asks for another answer to the last message, which supersedes the one there is."""

    message: str
    turn_id: str
    conversation_id: uuid.UUID | None = None
    client_id: str | None = None
    site_id: uuid.UUID | None = None
    remember: bool | None = None
    end_session: bool = False
    regenerate: bool = False

    def body_hash(self) -> str:
        """Equal for a repeat of the same request; another body under the same turn id is refused."""
        ids = [str(self.conversation_id or ""), self.client_id, str(self.site_id or "")]
        return canonical_hash([self.message, *ids, self.regenerate])


@dataclass(frozen=True)
class BegunTurn:
    """A turn whose message and lease are committed. `version` is the conversation's before it: what caches are keyed by."""

    account: Account
    turn_id: uuid.UUID
    lease: uuid.UUID
    conversation_id: uuid.UUID
    session_id: uuid.UUID
    user_message_id: uuid.UUID
    assistant_message_id: uuid.UUID
    message: str
    site: Site | None
    plans: tuple[str, ...]
    remember: bool
    version: int
    started_at: datetime
    regenerate: bool = False
    end_session: bool = False
    new_message: bool = True

    @property
    def timezone(self) -> str:
        """The site's zone; UTC without a site."""
        return self.site.timezone if self.site else "UTC"

    @property
    def zone(self) -> ZoneInfo:
        """The same, to reckon with."""
        return ZoneInfo(self.timezone)


@dataclass(frozen=True)
class Replay:
    """A turn that was finished before: its stored answer is given again."""

    turn_id: uuid.UUID


@dataclass
class FinishedTurn:
    """What a turn made, ready to be written. `tool_results` are the rows that become snapshots."""

    status: TurnStatus
    text: str
    details: dict[str, Any]
    trace: dict[str, Any]
    tool_results: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None


# The session is locked with its conversation, so that it cannot end between here and the turn's first write. Whoever locks several rows
# takes them in this order, or two transactions could wait for each other: conversation, session, turn, counters, event. "No key", so that
# a row which refers to one of them can be written meanwhile.
_STANDING = sa.text("""
    select c.id as conversation_id, c.version, c.remember, s.id as session_id,
           r.id as running_id, r.lease_until as running_until,
           p.id as repeat_id, p.status as repeat_status, p.body_hash as repeat_hash, p.lease_until as repeat_until,
           w.id as site_id, w.name as site_name, w.currency, w.timezone, w.data_as_of,
           m.id as message_id, m.text as message_text,
           array(select name from memberships where user_id = :user_id and site_id = w.id order by name limit 50) as plans
    from (select 1) as one
    left join turns p on p.user_id = :user_id and p.client_turn_id = :client_turn_id
    left join lateral (
        select * from conversations
        where user_id = :user_id
          and (id = coalesce(cast(:conversation_id as uuid), case when cast(:client_id as text) is null then p.conversation_id end)
               or (cast(:conversation_id as uuid) is null and client_id = cast(:client_id as text)))
        for update) c on true
    left join lateral (
        select id from sessions
        where user_id = :user_id and conversation_id = c.id and ended_at is null
        for no key update) s on true
    left join turns r on r.user_id = :user_id and r.conversation_id = c.id and r.status = 'running'
    left join lateral (
        select * from sites
        where user_id = :user_id and id = coalesce(cast(:site_id as uuid), c.site_id, id)
        order by created_at, id limit 1) w on true
    left join lateral (
        select id, text from messages
        where user_id = :user_id and role = 'user' and conversation_id = c.id
          and (turn_id = p.id or (p.id is null and :regenerate))
        order by position desc limit 1) m on true
""")


def begin_turn(
    connection: Connection,
    account: Account,
    request: TurnRequest,
    charge: Charge,
    *,
    now: datetime,
    quiet: timedelta,
    quiet_elsewhere: timedelta,
) -> BegunTurn | Replay:
    """Write the customer's message, the running turn with its lease, the reservation of the first model call, and the session's end
    for the case that nothing more comes.

    Raises NotFound for a conversation or site that is not the user's, Conflict while another turn of the conversation runs,
    InvalidFields for a turn id that was used with another body, and LimitReached.
    """
    standing = _read_standing(connection, account, request)
    if standing.repeat_id is not None and (again := _repeat(standing, request, now)):
        return again
    if request.conversation_id and standing.conversation_id is None:
        raise NotFound("There is no such conversation.")
    if request.site_id and standing.site_id is None:
        raise NotFound("There is no such site.")
    if request.regenerate and standing.message_id is None:
        raise NotFound("There is no message to answer again.")
    if standing.running_id is not None:
        if standing.running_until > now:
            raise Conflict("An answer in this conversation is still being written.")
        _close_crashed(connection, account.user_id, standing.running_id, now)
    begun = _new_turn(account, standing, request, now)
    _write_begun(connection, begun, request, charge, quiet, quiet_elsewhere)
    return begun


def _read_standing(connection: Connection, account: Account, request: TurnRequest) -> Row[Any]:
    return connection.execute(
        _STANDING,
        {
            "user_id": account.user_id,
            "conversation_id": request.conversation_id,
            "client_id": request.client_id,
            "client_turn_id": request.turn_id,
            "site_id": request.site_id,
            "regenerate": request.regenerate,
        },
    ).one()


def _repeat(standing: Row[Any], request: TurnRequest, now: datetime) -> Replay | None:
    """What to do with a turn id that exists: replay what is finished, refuse what runs, and None to run again what failed."""
    if standing.repeat_hash != request.body_hash():
        raise InvalidFields("This turn id was used with another message. Use a new id for a new message.")
    if standing.repeat_status in ("complete", "interrupted"):
        return Replay(standing.repeat_id)
    if standing.repeat_status == "running" and standing.repeat_until > now:
        raise Conflict("The answer to this message is still being written.")
    return None


def _close_crashed(connection: Connection, user_id: uuid.UUID, turn_id: uuid.UUID, now: datetime) -> None:
    """A turn whose lease is over crashed: it counts as failed, and what it said is lost; the customer's message is not."""
    connection.execute(
        sa.text("""
            update turns set status = 'failed', error = 'crashed', finished_at = :now
            where id = :turn_id and user_id = :user_id and status = 'running'
        """),
        {"turn_id": turn_id, "user_id": user_id, "now": now},
    )


def _new_turn(account: Account, standing: Row[Any], request: TurnRequest, now: datetime) -> BegunTurn:
    site = None
    if standing.site_id is not None:
        zone = standing.timezone
        site = Site(standing.site_id, standing.site_name, standing.currency, zone, standing.data_as_of)
    return BegunTurn(
        account=account,
        turn_id=standing.repeat_id or uuid.uuid4(),
        lease=uuid.uuid4(),
        conversation_id=standing.conversation_id or uuid.uuid4(),
        session_id=standing.session_id or uuid.uuid4(),
        user_message_id=standing.message_id or uuid.uuid4(),
        assistant_message_id=uuid.uuid4(),
        message=standing.message_text or request.message,
        site=site,
        plans=tuple(standing.plans),
        remember=standing.remember if standing.conversation_id else request.remember is not False,
        version=standing.version or 0,
        started_at=now,
        regenerate=request.regenerate,
        end_session=request.end_session,
        new_message=standing.message_id is None,
    )


# One statement: each part is a row or two, and a round trip costs more than any of them.
_BEGIN = sa.text(f"""
    with counted as ({entitlements.COUNT}),
    charged as ({entitlements.RESERVE}),
    conversation as (
        insert into conversations (id, user_id, site_id, client_id, title, remember, version, created_at, last_turn_at)
        values (:conversation_id, :user_id, :site_id, :client_id, :title, :remember, 1, :now, :now)
        on conflict (id) do update set version = conversations.version + 1, last_turn_at = :now
        returning version),
    session as (
        insert into sessions (id, user_id, conversation_id, started_at, last_activity_at)
        values (:session_id, :user_id, :conversation_id, :now, :now)
        on conflict (id) do update set last_activity_at = :now),
    turn as (
        insert into turns (id, user_id, conversation_id, session_id, client_turn_id, body_hash, status, lease, lease_until,
                           started_at)
        values (:turn_id, :user_id, :conversation_id, :session_id, :client_turn_id, :body_hash, 'running', :lease,
                :lease_until, :now)
        on conflict (id) do update set status = 'running', lease = :lease, lease_until = :lease_until, started_at = :now,
            session_id = :session_id, error = null, finished_at = null),
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)
        select :user_message_id, :user_id, :conversation_id, :session_id, :turn_id, 'user', :message, 'complete', version, :now
        from conversation where :new_message),
    quiet as (
        insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
        values (:user_id, :conversation_id, 'session-ended', cast(:session_payload as jsonb), :session_key, :quiet_until, :now)
        on conflict (dedupe_key) do update set
            payload = excluded.payload, deliver_after = excluded.deliver_after, published_at = null, attempts = 0,
            postponements = 0, dead_at = null),
    elsewhere as (
        update outbox_events set deliver_after = :elsewhere_until, published_at = null
        where :new_conversation and user_id = :user_id and type = 'session-ended' and dedupe_key <> :session_key
          and deliver_after > :elsewhere_until)
    select counter from counted
""")


def _write_begun(
    connection: Connection,
    begun: BegunTurn,
    request: TurnRequest,
    charge: Charge,
    quiet: timedelta,
    quiet_elsewhere: timedelta,
) -> None:
    account, now = begun.account, begun.started_at
    counts = [entitlements.count_turn(account, now), charge.reserved(account)]
    counted = connection.execute(
        _BEGIN,
        {
            "user_id": account.user_id,
            "conversation_id": begun.conversation_id,
            "site_id": begun.site.id if begun.site else None,
            "client_id": request.client_id,
            "title": one_line(begun.message, TITLE_CHARACTERS),
            "remember": begun.remember,
            "session_id": begun.session_id,
            "turn_id": begun.turn_id,
            "client_turn_id": request.turn_id,
            "body_hash": request.body_hash(),
            "lease": begun.lease,
            "lease_until": now + LEASE,
            "user_message_id": begun.user_message_id,
            "message": begun.message,
            "new_message": begun.new_message,
            "new_conversation": begun.version == 0,
            "elsewhere_until": now + quiet_elsewhere,
            **_session_end(begun, now + quiet, "quiet"),
            **entitlements.counting(account, counts),
            **entitlements.reserving(charge),
            "now": now,
        },
    ).scalars()
    entitlements.check_counted(set(counted), counts, now)


def _session_end(begun: BegunTurn, due: datetime, trigger: str) -> dict[str, Any]:
    return {
        "session_payload": to_json({"session_id": str(begun.session_id), "trigger": trigger}),
        "session_key": f"session-ended:{begun.session_id}",
        "quiet_until": due,
    }


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


# Every part hangs on `held`: a turn that lost its lease, or whose conversation was deleted, changes nothing. `standing` and the order of
# the last select keep the order in which rows are locked. Who asked for the session's end while this turn ran still gets it.
_FINISH = sa.text(f"""
    with standing as materialized (
        select c.id from conversations c join sessions s on s.conversation_id = c.id
        where c.id = :conversation_id and c.user_id = :user_id and s.id = :session_id and s.user_id = :user_id
        for no key update of c, s),
    held as (
        update turns set status = :status, error = :error, route = cast(:route as jsonb), trace = cast(:trace as jsonb),
                         finished_at = :now
        from standing
        where turns.id = :turn_id and turns.user_id = :user_id and lease = :lease and status = 'running'
        returning conversation_id, session_id),
    settled as ({entitlements.SETTLE}),
    counted as ({entitlements.COUNT}),
    conversation as (
        update conversations c set version = c.version + 1, last_turn_at = :now from held
        where c.id = held.conversation_id and c.user_id = :user_id
        returning c.version),
    session as (
        update sessions s set last_activity_at = :now,
            ended_at = case when :ends then cast(:now as timestamptz) end,
            end_reason = case when :ends then 'client' end
        from held where s.id = held.session_id and s.user_id = :user_id
        returning s.conversation_id),
    superseded as (
        update messages m set superseded_at = :now from held
        where :regenerate and m.conversation_id = held.conversation_id and m.user_id = :user_id and m.role = 'assistant'
          and m.superseded_at is null
          and m.position > (select position from messages where id = :user_message_id and user_id = :user_id)),
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, details,
                              created_at)
        select :message_id, :user_id, held.conversation_id, held.session_id, :turn_id, 'assistant', :text, :status,
               conversation.version, cast(:details as jsonb), :now
        from held, conversation where :answered),
    results as (
        insert into outbox_events (id, user_id, conversation_id, type, payload, deliver_after, created_at)
        select :event_id, :user_id, held.conversation_id, 'tool-results', cast(:results as jsonb), :now, :now
        from held where :has_results),
    quiet as (
        insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
        select :user_id, session.conversation_id, 'session-ended', cast(:session_payload as jsonb), :session_key, :quiet_until,
               :now
        from session
        on conflict (dedupe_key) do update set
            payload = case when outbox_events.payload->>'trigger' = 'client' then outbox_events.payload else excluded.payload end,
            deliver_after = case when outbox_events.payload->>'trigger' = 'client' then :now else excluded.deliver_after end,
            published_at = null, attempts = 0, postponements = 0, dead_at = null
        returning id)
    select (select count(*) from held) as held, (select count(*) from counted) as counted, (select id from quiet) as session_event
""")


def finish_turn(
    connection: Connection,
    begun: BegunTurn,
    finished: FinishedTurn,
    *,
    settled: tuple[Charge, Stop],
    now: datetime,
    quiet: timedelta,
) -> list[Event]:
    """Write all that a turn made. Returns the events to publish after the commit: its tool results, and the session's end if the
    client asked for it.

    Raises LeaseLost, and then the caller's transaction must roll back.
    """
    charge, stop = settled
    event_id = uuid.uuid4() if finished.tool_results else None
    # A turn that failed will be sent again, and then ends the session.
    ends = begun.end_session and finished.status != "failed"
    due, trigger = (now, "client") if ends else (now + quiet, "quiet")
    row = connection.execute(
        _FINISH,
        {
            "status": finished.status,
            "error": finished.error,
            "route": to_json(finished.trace.get("route")),
            "trace": to_json(finished.trace),
            "turn_id": begun.turn_id,
            "user_id": begun.account.user_id,
            "conversation_id": begun.conversation_id,
            "session_id": begun.session_id,
            "ends": ends,
            "lease": begun.lease,
            "regenerate": begun.regenerate,
            "user_message_id": begun.user_message_id,
            "message_id": begun.assistant_message_id,
            "text": finished.text,
            "details": to_json(finished.details),
            # A turn that failed before it said or fetched anything leaves no empty answer behind.
            "answered": bool(finished.text or finished.tool_results or finished.status != "failed"),
            "event_id": event_id,
            "results": to_json(_results_payload(begun, finished)),
            "has_results": event_id is not None,
            **_session_end(begun, due, trigger),
            **entitlements.settling(charge, stop, now),
            **entitlements.counting(begun.account, [charge.given_back(stop)]),
            "now": now,
        },
    ).one()
    if row.held != 1:
        if _was_committed(connection, begun, now):
            return []  # only the commit's acknowledgement was lost; the relay publishes
        raise LeaseLost()
    results = [Event(event_id, "tool-results")] if event_id else []
    return results + ([Event(row.session_event, "session-ended")] if ends else [])


def _was_committed(connection: Connection, begun: BegunTurn, now: datetime) -> bool:
    """Whether this very attempt to finish took effect before: it alone wrote this lease with this moment."""
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


def delete_message(connection: Connection, user_id: uuid.UUID, message_id: uuid.UUID) -> None:
    """Delete a message with its snapshots, those not yet written included, and raise the conversation's version, so that no process
    goes on with the message in its memory. Raises NotFound when it is not there or not theirs."""
    deleted = connection.execute(
        sa.text("""
            with gone as (
                delete from messages where id = :message_id and user_id = :user_id returning id, conversation_id),
            waiting as (
                delete from outbox_events e using gone
                where e.user_id = :user_id and e.type = 'tool-results' and e.conversation_id = gone.conversation_id
                  and e.payload->>'message_id' = cast(gone.id as text))
            update conversations c set version = c.version + 1 from gone
            where c.id = gone.conversation_id and c.user_id = :user_id
        """),
        {"message_id": message_id, "user_id": user_id},
    )
    if deleted.rowcount != 1:
        raise NotFound("There is no such message.")


# A column of the statement that loads a turn's context: the last messages before the turn's own, oldest first.
HISTORY = f"""
    (select coalesce(jsonb_agg(to_jsonb(h) order by h.position), '[]')
     from (select m.role, m.text, m.created_at, m.position from messages m
           where m.user_id = :user_id and m.conversation_id = :conversation_id and m.superseded_at is null
             and m.text <> '' and m.position < (
                 select position from messages where id = :user_message_id and user_id = :user_id)
           order by m.position desc limit {2 * MAX_HISTORY_TURNS}) h)
"""


def to_messages(rows: Sequence[dict[str, Any]], timezone: str) -> tuple[Message, ...]:
    """The history as a model gets it: text only, each message with its day in the site's zone, roles alternating, starting with the
    customer. What was said in a row by one side (an answer that failed leaves a gap) is joined."""
    zone = ZoneInfo(timezone)
    joined: list[Message] = []
    for row in rows:
        day = datetime.fromisoformat(row["created_at"]).astimezone(zone).date()
        text = f"[{day}] {row['text']}"
        if joined and joined[-1].role == row["role"]:
            joined[-1] = Message(row["role"], f"{joined[-1].text}\n\n{text}")
        elif joined or row["role"] == "user":
            joined.append(Message(row["role"], text))
    return tuple(joined)
