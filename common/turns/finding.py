"""What a turn finds before it begins, and what it is by that."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from common.accounts import Account
from common.conversations import BegunTurn, TurnRequest
from common.db import ask, statement
from common.tools.types import Site

# The conversation: by our id, that of the request or of an earlier try of the turn, or by the client's own. No coalesce: a policy lets no
# index be asked for what comes of one.
_BY_ID = "id = case when cast(:conversation_id as uuid) is null then p.conversation_id else cast(:conversation_id as uuid) end"
_BY_CLIENTS_ID = "client_id = :client_id"

# The message that the turn id has, and for a request that replaces one, which of the conversation it is.
OWN = """
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


FOUND = (
    "conversation_id version remember session_id running_id running_until running_lease running_session repeat_id repeat_status"
    " repeat_hash repeat_until site_id site_name currency timezone data_as_of message_id message_text message_position plans"
)


def finding(conversation: str, message: str) -> str:
    """SQL for what a turn finds, by one statement for each way to name its conversation and its message. One for all would be planned anew
    at each turn, for 0.6 ms: a plan that serves any reads all conversations of the user and the whole of this one.

    The session is locked with its conversation, so that it cannot end between here and the turn's commit. Whoever locks several
    rows takes them in this order, or two transactions could wait for each other: conversation, session, turn, counters, event. "No key",
    so that a row which refers to one of them can be written meanwhile.
    """
    return f"""
    select c.id as conversation_id, c.version, c.remember, s.id as session_id,
           r.id as running_id, r.lease_until as running_until, r.lease as running_lease, r.session_id as running_session,
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
        select id, lease, lease_until, session_id from turns
        where user_id = :user_id and conversation_id = c.id and status = 'running'
        limit 1) r on true
    left join lateral (
        select * from sites
        where user_id = :user_id and id = coalesce(cast(:site_id as uuid), c.site_id, id)
        order by created_at, id limit 1) w on true
    left join lateral ({message}) m on true
    """


WAYS = {False: _BY_ID, True: _BY_CLIENTS_ID}
"""By whether the client names the conversation itself (`is_named`): how it is found."""

_FIND = {
    (named, replaces): statement(FOUND, finding(way, message))
    for named, way in WAYS.items()
    for replaces, message in ((False, OWN), (True, _OWN_OR_REPLACED))
}


def find(connection: Connection, user_id: uuid.UUID, request: TurnRequest) -> Any:
    """What the turn of `request` finds, its conversation and session locked."""
    which = _FIND[is_named(request), request.replaces is not None]
    (found,) = ask(connection, which, asked(user_id, request))
    return found


def asked(user_id: uuid.UUID, request: TurnRequest) -> dict[str, Any]:
    """The parameters of `finding`."""
    return {
        "user_id": user_id,
        "conversation_id": request.conversation_id,
        "client_id": request.client_id,
        "client_turn_id": request.turn_id,
        "site_id": request.site_id,
        "regenerate": request.regenerate,
        "replaces": request.replaces,
        "fresh": is_fresh(request),
    }


def is_named(request: TurnRequest) -> bool:
    """Whether the conversation is named by the client's own id."""
    return request.conversation_id is None and request.client_id is not None


def is_fresh(request: TurnRequest) -> bool:
    """Whether the client names the message alone: each such request is a turn of its own, and where the message is not known yet, its
    first."""
    return request.turn_id == request.replaces


class Ids(NamedTuple):
    """By what a turn that begins is known from its first statement on."""

    turn: uuid.UUID
    lease: uuid.UUID
    message: uuid.UUID


def new_ids(turn_id: uuid.UUID | None = None) -> Ids:
    """Fresh ones, but for a turn that was there."""
    return Ids(turn_id or uuid.uuid4(), uuid.uuid4(), uuid.uuid4())


def new_turn(account: Account, found: Any, request: TurnRequest, ids: Ids, now: datetime) -> BegunTurn:
    """The turn that begins, by what it found. A message that was there keeps its id."""
    site = None
    if found.site_id is not None:
        zone = found.timezone
        site = Site(found.site_id, found.site_name, found.currency, zone, found.data_as_of)
    known = found.message_id is not None
    edited = known and not request.regenerate and found.message_text != request.message
    return BegunTurn(
        account=account,
        turn_id=ids.turn,
        lease=ids.lease,
        conversation_id=found.conversation_id or uuid.uuid4(),
        session_id=found.session_id or uuid.uuid4(),
        user_message_id=found.message_id if known and not edited else ids.message,
        assistant_message_id=uuid.uuid4(),
        message=found.message_text if known and not edited else request.message,
        site=site,
        plans=tuple(found.plans),
        remember=found.remember if found.conversation_id else request.remember is not False,
        version=found.version or 0,
        started_at=now,
        again=known and not edited and request.replaces is not None,
        edited_from=found.message_position if edited else None,
        end_session=request.end_session,
        new_message=not known or edited,
    )
