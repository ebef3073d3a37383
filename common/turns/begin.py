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
from common.conversations import LEASE, TITLE_CHARACTERS, BegunTurn, Replay, TurnRequest
from common.db import ask, commit_with_next, statement
from common.entitlements import Charge, Count
from common.errors import Conflict, InvalidFields, NotFound
from common.text import one_line
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


def standing(conversation: str, message: str) -> str:
    """What a turn finds, by one statement for each way to name its conversation and its message. One for all would be planned anew at each
    turn, for 0.6 ms: a plan that serves any reads all conversations of the user and the whole of this one.

    The session is locked with its conversation, so that it cannot end between here and the turn's first write. Whoever locks several
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
"""To find the conversation: whether it is by the client's own id."""

_STANDING = {
    (named, replaces): statement(FOUND, standing(conversation, message))
    for named, conversation in WAYS.items()
    for replaces, message in ((False, OWN), (True, _OWN_OR_REPLACED))
}

Begun = tuple[BegunTurn, Charge]
Tries = dict[uuid.UUID, tuple[BegunTurn | None, Charge]]
"""By their leases, the beginnings of a request that may be committed though nobody heard of it; None for a turn that is known once it is
found."""


def asked_of(user_id: uuid.UUID, request: TurnRequest) -> dict[str, Any]:
    """The parameters of `standing`."""
    return {
        "user_id": user_id,
        "conversation_id": request.conversation_id,
        "client_id": request.client_id,
        "client_turn_id": request.turn_id,
        "site_id": request.site_id,
        "regenerate": request.regenerate,
        "replaces": request.replaces,
        "fresh": _is_fresh(request),
    }


def is_named(request: TurnRequest) -> bool:
    """Whether the conversation is named by the client's own id."""
    return request.conversation_id is None and request.client_id is not None


def read_standing(connection: Connection, user_id: uuid.UUID, request: TurnRequest) -> Any:
    """What the turn of `request` finds, its conversation and session locked."""
    which = _STANDING[is_named(request), request.replaces is not None]
    (found,) = ask(connection, which, asked_of(user_id, request))
    return found


def begun_unheard(
    account: Account, request: TurnRequest, found: Any, tries: Tries, now: datetime
) -> Begun | None:
    """The one of `tries`, those of this very request, that was committed, and is the turn: only the acknowledgement was lost."""
    if found.running_lease not in tries:
        return None
    begun, charge = tries[found.running_lease]
    if begun is None and found.message_id is None:
        return None  # deleted meanwhile
    if begun is None:
        begun = replace(
            new_turn(
                account, found, request, found.running_id, found.running_lease, found.message_id, now=now
            ),
            session_id=found.running_session,
            version=found.message_position - 1,
            new_message=True,
        )
    return begun, charge


def begin_turn(
    connection: Connection,
    account: Account,
    request: TurnRequest,
    found: Any,
    charge: Charge,
    tries: Tries,
    *,
    now: datetime,
    quiet: timedelta,
    quiet_elsewhere: timedelta,
) -> Begun | Replay:
    """Write the customer's message, the running turn with its lease, the reservation of the first model call, and the session's end
    for the case that nothing more comes; and commit it, after what was read as `found`. It is among `tries` before.

    Raises NotFound for a conversation or site that is not the user's, Conflict while another turn of the conversation runs,
    InvalidFields for a turn id that was used with another body, and LimitReached.
    """
    turn_id = found.repeat_id or uuid.uuid4()
    if _is_fresh(request) and found.message_id is not None:
        turn_id = uuid.uuid4()
        request = replace(request, turn_id=f"{request.replaces}~{turn_id}")
    elif found.repeat_id is not None and (again := _repeat(found, request, now)):
        return again
    if request.conversation_id and found.conversation_id is None:
        raise NotFound("There is no such conversation.")
    if request.site_id and found.site_id is None:
        raise NotFound("There is no such site.")
    unknown = request.replaces is not None and found.message_id is None
    if unknown and (request.regenerate or not _is_fresh(request)):
        raise NotFound("There is no message to answer again.")
    if found.running_id is not None:
        if found.running_until > now:
            raise Conflict("An answer in this conversation is still being written.")
        _close_crashed(connection, account.user_id, found.running_id, now)
    begun = new_turn(account, found, request, turn_id, uuid.uuid4(), uuid.uuid4(), now=now)
    tries[begun.lease] = begun, charge
    which = _begin(
        new_conversation=found.conversation_id is None,
        new_session=found.session_id is None,
        again=begun.turn_id == found.repeat_id,
        new_message=begun.new_message,
        edited=begun.edited_from is not None,
    )
    _write_begun(connection, which, begun, request, charge, quiet, quiet_elsewhere)
    return begun, charge


def _is_fresh(request: TurnRequest) -> bool:
    """Whether the client names the message alone: each such request is a turn of its own, and where the message is not known yet, its
    first."""
    return request.turn_id == request.replaces


def _repeat(found: Any, request: TurnRequest, now: datetime) -> Replay | None:
    """What to do with a turn id that exists: replay what is finished, refuse what runs, and None to run again what failed."""
    if found.repeat_hash != request.body_hash():
        raise InvalidFields("This turn id was used with another message. Use a new id for a new message.")
    if found.repeat_status in ("complete", "interrupted"):
        return Replay(found.repeat_id)
    if found.repeat_status == "running" and found.repeat_until > now:
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


def new_turn(
    account: Account,
    found: Any,
    request: TurnRequest,
    turn_id: uuid.UUID,
    lease: uuid.UUID,
    message_id: uuid.UUID,
    *,
    now: datetime,
) -> BegunTurn:
    """The turn that begins, by what it found. `message_id` is the customer's message's, unless it is known already."""
    site = None
    if found.site_id is not None:
        zone = found.timezone
        site = Site(found.site_id, found.site_name, found.currency, zone, found.data_as_of)
    known = found.message_id is not None
    edited = known and not request.regenerate and found.message_text != request.message
    return BegunTurn(
        account=account,
        turn_id=turn_id,
        lease=lease,
        conversation_id=found.conversation_id or uuid.uuid4(),
        session_id=found.session_id or uuid.uuid4(),
        user_message_id=found.message_id if known and not edited else message_id,
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


_NEW_CONVERSATION = """
        insert into conversations (id, user_id, site_id, client_id, title, remember, version, created_at, last_turn_at)
        select conversation_id, :user_id, :site_id, :client_id, :title, :remember, 2, :now, :now from beginning
        returning version),
    elsewhere as (
        update outbox_events o set deliver_after = :elsewhere_until, published_at = null from beginning b
        where o.user_id = :user_id and o.type = 'session-ended' and o.dedupe_key <> 'session-ended:' || b.session_id
          and o.deliver_after > :elsewhere_until"""
_KNOWN_CONVERSATION = """
        update conversations c set version = c.version + 2, last_turn_at = :now from beginning b
        where c.id = b.conversation_id and c.user_id = :user_id
        returning c.version"""
_NEW_SESSION = """
    session as (
        insert into sessions (id, user_id, conversation_id, started_at, last_activity_at)
        select session_id, :user_id, conversation_id, :now, :now from beginning),"""
_AGAIN = """
        on conflict (id) do update set status = 'running', lease = :lease, lease_until = :lease_until, started_at = :now,
            session_id = excluded.session_id, error = null, finished_at = null"""
_SUPERSEDE = """
    superseded as (
        update messages set superseded_at = :now
        where user_id = :user_id and conversation_id = :conversation_id and superseded_at is null
          and position >= cast(:edited_from as bigint)),"""
_NEW_MESSAGE = """
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)
        select :user_message_id, :user_id, conversation_id, session_id, :turn_id, 'user', :message, 'complete', version - 1, :now
        from conversation, beginning),"""


def written(
    *,
    new_conversation: bool = False,
    new_session: bool = False,
    again: bool = False,
    new_message: bool = True,
    edited: bool = False,
) -> str:
    """What a turn writes where `beginning` has a row, its conversation and session: each part is a row or two, and a round trip costs more
    than any of them. Parts that only some turns need are left out of the others' statement, where each would cost time.

    The conversation's version is also the last position in it: a turn takes two at once, one for its answer.
    """
    return f"""
    counted as ({entitlements.COUNT_IF_BEGINNING}),
    charged as ({entitlements.RESERVE_IF_BEGINNING}),
    conversation as ({_NEW_CONVERSATION if new_conversation else _KNOWN_CONVERSATION}),
    {_NEW_SESSION if new_session else ""}
    turn as (
        insert into turns (id, user_id, conversation_id, session_id, client_turn_id, body_hash, status, lease, lease_until,
                           started_at)
        select :turn_id, :user_id, conversation_id, session_id, :client_turn_id, :body_hash, 'running', :lease, :lease_until, :now
        from beginning {_AGAIN if again else ""}),
    {_SUPERSEDE if edited else ""}
    {_NEW_MESSAGE if new_message else ""}
    quiet as (
        insert into outbox_events (user_id, conversation_id, type, payload, dedupe_key, deliver_after, created_at)
        select :user_id, conversation_id, 'session-ended', jsonb_build_object('session_id', session_id, 'trigger', 'quiet'),
               'session-ended:' || session_id, :quiet_until, :now
        from beginning
        on conflict (dedupe_key) do update set
            payload = excluded.payload, deliver_after = excluded.deliver_after, published_at = null, attempts = 0,
            postponements = 0, dead_at = null)
"""


@functools.cache
def _begin(
    new_conversation: bool, new_session: bool, again: bool, new_message: bool, edited: bool
) -> sa.TextualSelect:
    """What any other turn writes."""
    parts = written(
        new_conversation=new_conversation,
        new_session=new_session,
        again=again,
        new_message=new_message,
        edited=edited,
    )
    return statement(
        "refused",
        f"""
    with beginning as materialized (
        select cast(:conversation_id as uuid) as conversation_id, cast(:session_id as uuid) as session_id),
    {parts}
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
    counts = counted(account, charge, now)
    commit_with_next(connection)
    with entitlements.within_limits(counts, now):
        ask(
            connection,
            which,
            {
                "conversation_id": begun.conversation_id,
                "session_id": begun.session_id,
                "site_id": begun.site.id if begun.site else None,
                "client_id": request.client_id,
                "client_turn_id": request.turn_id,
                "title": one_line(begun.message, TITLE_CHARACTERS),
                "remember": begun.remember,
                "edited_from": begun.edited_from,
                "elsewhere_until": now + quiet_elsewhere,
                **writing(
                    account,
                    request,
                    charge,
                    counts,
                    begun.turn_id,
                    begun.lease,
                    begun.user_message_id,
                    begun.message,
                    now,
                    quiet,
                ),
            },
        )


def counted(account: Account, charge: Charge, now: datetime) -> list[Count]:
    """What a beginning counts: the turn, and what its first calls may cost."""
    return [entitlements.count_turn(account, now), charge.reserved(account)]


def writing(
    account: Account,
    request: TurnRequest,
    charge: Charge,
    counts: list[Count],
    turn_id: uuid.UUID,
    lease: uuid.UUID,
    message_id: uuid.UUID,
    message: str,
    now: datetime,
    quiet: timedelta,
) -> dict[str, Any]:
    """The parameters of `written` that each of its forms has, beside the names of the turn and its conversation."""
    return {
        "user_id": account.user_id,
        "turn_id": turn_id,
        "body_hash": request.body_hash(),
        "lease": lease,
        "lease_until": now + LEASE,
        "user_message_id": message_id,
        "message": message,
        "quiet_until": now + quiet,
        "now": now,
        **entitlements.counting(account, counts),
        **entitlements.reserving(charge),
    }
