"""How a turn begins usually: by one round trip, for the account that its customer was last time, in the conversation of their last turn.

What this process takes for granted is never more than a guess. The server goes on only where all of it is so, and where nothing stands
against the turn; else nothing of it has happened, and the turn begins as any other does (`common.turns.begin`).
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.exc import DBAPIError

from common import accounts, db, entitlements
from common.accounts import Account
from common.auth import Identity
from common.config import Settings
from common.conversations import BegunTurn, TurnRequest
from common.db import statement
from common.entitlements import Charge
from common.errors import Unavailable
from common.turns import begin
from common.turns.begin import Begun, Tries

# The turn that was sent before, another one that runs, a session that has ended, a site that is not the customer's: all are for `begin`.
_FIND_AND_BEGIN = {
    named: statement(
        f"{begin.FOUND} begun",
        f"""
    with standing as materialized ({begin.standing(way, begin.OWN)}),
    beginning as materialized (
        select conversation_id, session_id from standing
        where session_id is not null and running_id is null and repeat_id is null
          and (cast(:site_id as uuid) is null or site_id is not null)),
    {begin.written()}
    select standing.*, case when (select count(*) from counted) = cardinality(cast(:counters as text[]))
                            then true else not_as_expected() end as begun
    from standing
""",
    )
    for named, way in begin.WAYS.items()
}

# The conversation of each customer's last turn in this process, by our id and by the client's.
_latest: OrderedDict[uuid.UUID, tuple[uuid.UUID, str | None]] = OrderedDict()
_lock = threading.Lock()
_MOST = 10_000

_REFUSALS = (accounts.NOT_AS_EXPECTED, accounts.FOREIGN_KEY, db.DUPLICATE, *db.IN_EACH_OTHERS_WAY)


def keep_latest(begun: BegunTurn, request: TurnRequest) -> None:
    """Remember that `begun` is its customer's last turn."""
    with _lock:
        _latest[begun.account.user_id] = begun.conversation_id, request.client_id
        _latest.move_to_end(begun.account.user_id)
        while len(_latest) > _MOST:
            _latest.popitem(last=False)


def begin_as_usual(
    identity: Identity,
    request: TurnRequest,
    charge_of: Callable[[Account], Charge],
    tries: Tries,
    *,
    config: Settings,
    now: datetime,
    quiet: timedelta,
) -> Begun | None:
    """The turn of `request`, begun; None where it is not a usual one, or its beginning was not heard to be committed: it is among `tries`
    then. Raises Unauthenticated."""
    account = accounts.met(identity)
    if account is None or request.replaces is not None or not _goes_on(account, request):
        return None
    charge = charge_of(account)
    turn_id, lease, message_id = (uuid.uuid4() for _ in range(3))
    counts = begin.counted(account, charge, now)
    values: dict[str, Any] = {
        **begin.asked_of(account.user_id, request),
        **begin.writing(
            account, request, charge, counts, turn_id, lease, message_id, request.message, now, quiet
        ),
    }
    try:
        with db.transaction("app") as connection:
            if not entitlements.below_spend_stop(connection, config, now):
                return None
            accounts.enter_as(connection, account, identity, config, now, local=db.ONE_PLAN)
            db.commit_with_next(connection)
            tries[lease] = None, charge
            (found,) = db.ask(connection, _FIND_AND_BEGIN[begin.is_named(request)], values)
    except Unavailable:
        return None
    except DBAPIError as exc:
        if db.error_name(exc) not in _REFUSALS:
            raise
        del tries[lease]
        return None
    return begin.new_turn(account, found, request, turn_id, lease, message_id, now=now), charge


def _goes_on(account: Account, request: TurnRequest) -> bool:
    """Whether the request is for the conversation of the customer's last turn."""
    conversation_id, client_id = _latest.get(account.user_id, (None, None))
    if request.conversation_id is not None:
        return request.conversation_id == conversation_id
    return request.client_id is not None and request.client_id == client_id
