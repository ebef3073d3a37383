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
from common.conversations import TITLE_CHARACTERS, BegunTurn, Replay, TurnRequest
from common.db import ask, commit_with_next, statement
from common.entitlements import Charge
from common.errors import Conflict, InvalidFields, NotFound
from common.text import one_line
from common.turns.finding import Ids, is_fresh, new_ids, new_turn
from common.turns.writing import counts_of, writing, written

Begun = tuple[BegunTurn, Charge]
"""A turn that has begun, and what was reserved for it."""
Tries = dict[uuid.UUID, tuple[BegunTurn | None, Charge]]
"""By their leases, the beginnings of a request that may be committed though nobody heard of it; None for a turn that is known once it is
found."""


@functools.cache
def _beginning(
    new_conversation: bool, new_session: bool, again: bool, new_message: bool, edited: bool
) -> sa.TextualSelect:
    parts = writing(
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
    """Write the customer's message, the running turn with its lease, the reservation `charge`, and the session's end for the case that
    nothing more comes; and commit it, after what was read as `found`. It is among `tries` before, for the acknowledgement may be lost.

    Raises NotFound for a conversation or site that is not the user's, Conflict while another turn of the conversation runs,
    InvalidFields for a turn id that was used with another body, and LimitReached.
    """
    ids = new_ids(found.repeat_id)
    if is_fresh(request) and found.message_id is not None:
        ids = new_ids()
        request = replace(request, turn_id=f"{request.replaces}~{ids.turn}")
    elif found.repeat_id is not None and (again := _repeat(found, request, now)):
        return again
    if request.conversation_id and found.conversation_id is None:
        raise NotFound("There is no such conversation.")
    if request.site_id and found.site_id is None:
        raise NotFound("There is no such site.")
    unknown = request.replaces is not None and found.message_id is None
    if unknown and (request.regenerate or not is_fresh(request)):
        raise NotFound("There is no message to answer again.")
    if found.running_id is not None:
        if found.running_until > now:
            raise Conflict("An answer in this conversation is still being written.")
        _close_crashed(connection, account.user_id, found.running_id, now)
    begun = new_turn(account, found, request, ids, now)
    tries[begun.lease] = begun, charge
    which = _beginning(
        new_conversation=found.conversation_id is None,
        new_session=found.session_id is None,
        again=begun.turn_id == found.repeat_id,
        new_message=begun.new_message,
        edited=begun.edited_from is not None,
    )
    values = {
        "conversation_id": begun.conversation_id,
        "session_id": begun.session_id,
        "site_id": begun.site.id if begun.site else None,
        "client_id": request.client_id,
        "title": one_line(begun.message, TITLE_CHARACTERS),
        "remember": begun.remember,
        "edited_from": begun.edited_from,
        "elsewhere_until": now + quiet_elsewhere,
        **written(account, request, ids, charge, begun.message, now=now, quiet=quiet),
    }
    commit_with_next(connection)
    with entitlements.within_limits(counts_of(account, charge, now), now):
        ask(connection, which, values)
    return begun, charge


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


def begun_unheard(
    account: Account, request: TurnRequest, found: Any, tries: Tries, now: datetime
) -> Begun | None:
    """The one of `tries`, those of this very request, that was committed, and is the turn: only the acknowledgement was lost."""
    if found.running_lease not in tries:
        return None
    begun, charge = tries[found.running_lease]
    if begun is not None:
        return begun, charge
    if found.message_id is None:
        return None  # deleted meanwhile
    ids = Ids(found.running_id, found.running_lease, found.message_id)
    # What it found is lost with the acknowledgement. Since then its session may have ended, and the conversation has its message.
    begun = replace(
        new_turn(account, found, request, ids, now),
        session_id=found.running_session,
        version=found.message_position - 1,
        new_message=True,
    )
    return begun, charge
