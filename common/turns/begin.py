"""How a turn begins: the customer's message is committed, with a lease on the turn, before any model is called."""

from __future__ import annotations

import functools
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common import entitlements
from common.accounts import Account
from common.conversations import LEASE, TITLE_CHARACTERS, BegunTurn, Replay, TurnRequest, session_end
from common.db import ask, commit_with_next, statement
from common.entitlements import Charge
from common.errors import Conflict, InvalidFields, NotFound
from common.text import one_line
from common.tools.types import Site

# The conversation: by our id, that of the request or of an earlier try of the turn, or by the client's own. No coalesce: a policy lets no
# index be asked for what comes of one.
_BY_ID = "id = case when cast(:conversation_id as uuid) is null then p.conversation_id else cast(:conversation_id as uuid) end"
_BY_CLIENTS_ID = "client_id = :client_id"

# The message that the turn id has, and for a request that replaces one, which of the conversation it is.
_OWN = """
        select id, text, position from messages
        where user_id = :user_id and role = 'user' and conversation_id = c.id and turn_id = p.id
        order by position desc limit 1"""
_OWN_OR_REPLACED = """
        select id, text, position from (
            select id, text, position, superseded_at, turn_id = p.id and not :fresh as own,
                   cast(id as text) = :replaces or exists (
                       select 1 from turns t where t.user_id = :user_id and t.id = messages.turn_id
                         and (t.client_turn_id = :replaces or starts_with(t.client_turn_id, :replaces || '~'))) as replaced
            from messages
            where user_id = :user_id and role = 'user' and conversation_id = c.id) x
        where own or (superseded_at is null and (replaced or :regenerate))
        order by own desc nulls last, replaced desc nulls last, position desc limit 1"""


def _standing(conversation: str, message: str) -> sa.TextualSelect:
    """What a turn finds, by one statement for each way to name its conversation and its message. One for all would be planned anew at each
    turn, for 0.6 ms: a plan that serves any reads all conversations of the user and the whole of this one.

    The session is locked with its conversation, so that it cannot end between here and the turn's first write. Whoever locks several
    rows takes them in this order, or two transactions could wait for each other: conversation, session, turn, counters, event. "No key",
    so that a row which refers to one of them can be written meanwhile.
    """
    return statement(
        "conversation_id version remember session_id running_id running_until running_lease repeat_id repeat_status repeat_hash"
        " repeat_until site_id site_name currency timezone data_as_of message_id message_text message_position plans",
        f"""
    select c.id as conversation_id, c.version, c.remember, s.id as session_id,
           r.id as running_id, r.lease_until as running_until, r.lease as running_lease,
           p.id as repeat_id, p.status as repeat_status, p.body_hash as repeat_hash, p.lease_until as repeat_until,
           w.id as site_id, w.name as site_name, w.currency, w.timezone, w.data_as_of,
           m.id as message_id, m.text as message_text, m.position as message_position,
           array(select name from memberships where user_id = :user_id and site_id = w.id order by name limit 50) as plans
    from (select 1) as one
    left join turns p on p.user_id = :user_id and p.client_turn_id = :client_turn_id
    left join lateral (
        select * from conversations
        where user_id = :user_id and {conversation}
        for update) c on true
    left join lateral (
        select id from sessions
        where user_id = :user_id and conversation_id = c.id and ended_at is null
        for no key update) s on true
    left join lateral (
        select id, lease, lease_until from turns
        where user_id = :user_id and conversation_id = c.id and status = 'running'
        limit 1) r on true
    left join lateral (
        select * from sites
        where user_id = :user_id and id = coalesce(cast(:site_id as uuid), c.site_id, id)
        order by created_at, id limit 1) w on true
    left join lateral ({message}) m on true
    """,
    )


_STANDING = {
    (named, replaces): _standing(conversation, message)
    for named, conversation in ((False, _BY_ID), (True, _BY_CLIENTS_ID))
    for replaces, message in ((False, _OWN), (True, _OWN_OR_REPLACED))
}


def read_standing(connection: Connection, user_id: uuid.UUID, request: TurnRequest) -> Any:
    """What the turn of `request` finds, its conversation and session locked."""
    found = {
        "user_id": user_id,
        "conversation_id": request.conversation_id,
        "client_id": request.client_id,
        "client_turn_id": request.turn_id,
        "site_id": request.site_id,
        "regenerate": request.regenerate,
        "replaces": request.replaces,
        "fresh": _is_fresh(request),
    }
    named = request.conversation_id is None and request.client_id is not None
    which = _STANDING[named, request.replaces is not None]
    (standing,) = ask(connection, which, found)
    return standing


def begun_unheard(standing: Any, tries: list[tuple[BegunTurn, Charge]]) -> tuple[BegunTurn, Charge] | None:
    """The one of `tries`, those of this very request, that was committed, and is the turn: only the acknowledgement was lost."""
    return next((one for one in tries if one[0].lease == standing.running_lease), None)


def begin_turn(
    connection: Connection,
    account: Account,
    request: TurnRequest,
    standing: Any,
    charge: Charge,
    tries: list[tuple[BegunTurn, Charge]],
    *,
    now: datetime,
    quiet: timedelta,
    quiet_elsewhere: timedelta,
) -> tuple[BegunTurn, Charge] | Replay:
    """Write the customer's message, the running turn with its lease, the reservation of the first model call, and the session's end
    for the case that nothing more comes; and commit it, after what was read as `standing`. It is added to `tries` before.

    Raises NotFound for a conversation or site that is not the user's, Conflict while another turn of the conversation runs,
    InvalidFields for a turn id that was used with another body, and LimitReached.
    """
    turn_id = standing.repeat_id or uuid.uuid4()
    if _is_fresh(request) and standing.message_id is not None:
        turn_id = uuid.uuid4()
        request = replace(request, turn_id=f"{request.replaces}~{turn_id}")
    elif standing.repeat_id is not None and (again := _repeat(standing, request, now)):
        return again
    if request.conversation_id and standing.conversation_id is None:
        raise NotFound("There is no such conversation.")
    if request.site_id and standing.site_id is None:
        raise NotFound("There is no such site.")
    unknown = request.replaces is not None and standing.message_id is None
    if unknown and (request.regenerate or not _is_fresh(request)):
        raise NotFound("There is no message to answer again.")
    if standing.running_id is not None:
        if standing.running_until > now:
            raise Conflict("An answer in this conversation is still being written.")
        _close_crashed(connection, account.user_id, standing.running_id, now)
    begun = _new_turn(account, standing, request, turn_id, now)
    tries.append((begun, charge))
    which = _begin(
        new_conversation=standing.conversation_id is None,
        new_session=standing.session_id is None,
        again=begun.turn_id == standing.repeat_id,
        new_message=begun.new_message,
        edited=begun.edited_from is not None,
    )
    _write_begun(connection, which, begun, request, charge, quiet, quiet_elsewhere)
    return begun, charge


def _is_fresh(request: TurnRequest) -> bool:
    """Whether the client names the message alone: each such request is a turn of its own, and where the message is not known yet, its
    first."""
    return request.turn_id == request.replaces


def _repeat(standing: Any, request: TurnRequest, now: datetime) -> Replay | None:
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


def _new_turn(
    account: Account, standing: Any, request: TurnRequest, turn_id: uuid.UUID, now: datetime
) -> BegunTurn:
    site = None
    if standing.site_id is not None:
        zone = standing.timezone
        site = Site(standing.site_id, standing.site_name, standing.currency, zone, standing.data_as_of)
    known = standing.message_id is not None
    edited = known and not request.regenerate and standing.message_text != request.message
    return BegunTurn(
        account=account,
        turn_id=turn_id,
        lease=uuid.uuid4(),
        conversation_id=standing.conversation_id or uuid.uuid4(),
        session_id=standing.session_id or uuid.uuid4(),
        user_message_id=standing.message_id if known and not edited else uuid.uuid4(),
        assistant_message_id=uuid.uuid4(),
        message=standing.message_text if known and not edited else request.message,
        site=site,
        plans=tuple(standing.plans),
        remember=standing.remember if standing.conversation_id else request.remember is not False,
        version=standing.version or 0,
        started_at=now,
        again=known and not edited and request.replaces is not None,
        edited_from=standing.message_position if edited else None,
        end_session=request.end_session,
        new_message=not known or edited,
    )


_NEW_CONVERSATION = """
        insert into conversations (id, user_id, site_id, client_id, title, remember, version, created_at, last_turn_at)
        values (:conversation_id, :user_id, :site_id, :client_id, :title, :remember, 2, :now, :now)
        returning version),
    elsewhere as (
        update outbox_events set deliver_after = :elsewhere_until, published_at = null
        where user_id = :user_id and type = 'session-ended' and dedupe_key <> :session_key
          and deliver_after > :elsewhere_until"""
_KNOWN_CONVERSATION = """
        update conversations set version = version + 2, last_turn_at = :now
        where id = :conversation_id and user_id = :user_id
        returning version"""
_NEW_SESSION = """
    session as (
        insert into sessions (id, user_id, conversation_id, started_at, last_activity_at)
        values (:session_id, :user_id, :conversation_id, :now, :now)),"""
_AGAIN = """
        on conflict (id) do update set status = 'running', lease = :lease, lease_until = :lease_until, started_at = :now,
            session_id = :session_id, error = null, finished_at = null"""
_SUPERSEDE = """
    superseded as (
        update messages set superseded_at = :now
        where user_id = :user_id and conversation_id = :conversation_id and superseded_at is null
          and position >= cast(:edited_from as bigint)),"""
_NEW_MESSAGE = """
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)
        select :user_message_id, :user_id, :conversation_id, :session_id, :turn_id, 'user', :message, 'complete', version - 1,
               :now
        from conversation),"""


@functools.cache
def _begin(
    new_conversation: bool, new_session: bool, again: bool, new_message: bool, edited: bool
) -> sa.TextualSelect:
    """What a turn writes, by one statement: each part is a row or two, and a round trip costs more than any of them. Parts that only some
    turns need are left out of the others' statement, where each would cost time.

    The conversation's version is also the last position in it: a turn takes two at once, one for its answer.
    """
    return statement(
        "refused",
        f"""
    with counted as ({entitlements.COUNT}),
    charged as ({entitlements.RESERVE}),
    conversation as ({_NEW_CONVERSATION if new_conversation else _KNOWN_CONVERSATION}),
    {_NEW_SESSION if new_session else ""}
    turn as (
        insert into turns (id, user_id, conversation_id, session_id, client_turn_id, body_hash, status, lease, lease_until,
                           started_at)
        values (:turn_id, :user_id, :conversation_id, :session_id, :client_turn_id, :body_hash, 'running', :lease,
                :lease_until, :now) {_AGAIN if again else ""}),
    {_SUPERSEDE if edited else ""}
    {_NEW_MESSAGE if new_message else ""}
    quiet as (
        insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
        values (:user_id, :conversation_id, 'session-ended', cast(:session_payload as jsonb), :session_key, :quiet_until, :now)
        on conflict (dedupe_key) do update set
            payload = excluded.payload, deliver_after = excluded.deliver_after, published_at = null, attempts = 0,
            postponements = 0, dead_at = null)
    {entitlements.CHECK_COUNTED}
""",
    )


def _write_begun(
    connection: Connection,
    which: sa.TextualSelect,
    begun: BegunTurn,
    request: TurnRequest,
    charge: Charge,
    quiet: timedelta,
    quiet_elsewhere: timedelta,
) -> None:
    account, now = begun.account, begun.started_at
    counts = [entitlements.count_turn(account, now), charge.reserved(account)]
    commit_with_next(connection)
    with entitlements.within_limits(counts, now):
        ask(
            connection,
            which,
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
                "edited_from": begun.edited_from,
                "elsewhere_until": now + quiet_elsewhere,
                **session_end(begun, now + quiet, "quiet"),
                **entitlements.counting(account, counts),
                **entitlements.reserving(charge),
                "now": now,
            },
        )
