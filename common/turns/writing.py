"""What a turn writes as it begins."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from common import entitlements
from common.accounts import Account
from common.conversations import LEASE, TurnRequest
from common.entitlements import Charge, Count
from common.turns.finding import Ids

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
        update messages m set superseded_at = :now from beginning b
        where m.user_id = :user_id and m.conversation_id = b.conversation_id and m.superseded_at is null
          and m.position >= cast(:edited_from as bigint)),"""
_NEW_MESSAGE = """
    message as (
        insert into messages (id, user_id, conversation_id, session_id, turn_id, role, text, status, position, created_at)
        select :user_message_id, :user_id, conversation_id, session_id, :turn_id, 'user', :message, 'complete', version - 1, :now
        from conversation, beginning),"""


def writing(
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


def counts_of(account: Account, charge: Charge, now: datetime) -> list[Count]:
    """What a beginning counts: the turn, and what its first calls may cost."""
    return [entitlements.count_turn(account, now), charge.reserved(account)]


def written(
    account: Account,
    request: TurnRequest,
    ids: Ids,
    charge: Charge,
    message: str,
    *,
    now: datetime,
    quiet: timedelta,
) -> dict[str, Any]:
    """The parameters that `writing` has in each of its forms."""
    return {
        "user_id": account.user_id,
        "client_turn_id": request.turn_id,
        "turn_id": ids.turn,
        "body_hash": request.body_hash(),
        "lease": ids.lease,
        "lease_until": now + LEASE,
        "user_message_id": ids.message,
        "message": message,
        "quiet_until": now + quiet,
        "now": now,
        **entitlements.counting(account, counts_of(account, charge, now)),
        **entitlements.reserving(charge),
    }
