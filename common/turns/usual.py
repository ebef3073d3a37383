"""How a turn begins usually: by one round trip, for the account that its customer was last time, in the conversation of their last turn.

What this process takes for granted is never more than a guess. The server goes on only where all of it is so, and where nothing stands
against the turn; else nothing of it has happened, and the turn begins as any other does (`common.turns.begin`).
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from sqlalchemy.exc import DBAPIError

from common import accounts, db, entitlements
from common.accounts import Account
from common.auth import Identity
from common.config import Settings
from common.conversations import BegunTurn, TurnRequest
from common.db import statement
from common.entitlements import Charge
from common.errors import Unavailable
from common.turns.begin import Begun, Tries
from common.turns.finding import FOUND, OWN, WAYS, asked, finding, is_named, new_ids, new_turn
from common.turns.writing import writing, written

# A turn that was sent before, another one that runs, a session that has ended, a site that is not the customer's, a limit that is reached:
# all of them are for `begin`, which says which it is.
_FIND_AND_BEGIN = {
    named: statement(
        f"{FOUND} begun",
        f"""
    with found as materialized ({finding(way, OWN)}),
    beginning as materialized (
        select conversation_id, session_id from found
        where session_id is not null and running_id is null and repeat_id is null
          and (cast(:site_id as uuid) is null or site_id is not null)),
    {writing()}
    select found.*, case when (select count(*) from counted) = cardinality(cast(:counters as text[]))
                         then true else not_as_expected() end as begun
    from found
""",
    )
    for named, way in WAYS.items()
}

# The conversation of each customer's last turn in this process, by our id and by the client's.
_latest: dict[uuid.UUID, tuple[uuid.UUID, str | None]] = {}
_MOST = 10_000

# Something is not as expected, the user was erased, another turn was faster, or stood in the way: nothing of this one has happened.
_REFUSALS = (db.NOT_AS_EXPECTED, db.FOREIGN_KEY, db.DUPLICATE, *db.IN_EACH_OTHERS_WAY)


def keep_latest(begun: BegunTurn, request: TurnRequest) -> None:
    """Remember that `begun`, the turn of `request`, is its customer's last."""
    if len(_latest) >= _MOST:
        _latest.clear()
    _latest[begun.account.user_id] = begun.conversation_id, request.client_id


def expected(identity: Identity, request: TurnRequest) -> Account | None:
    """The account for which the turn of `request` is to be begun as usual; None where it is no usual one."""
    account = accounts.last_met(identity)
    if account is None or request.replaces is not None:
        return None
    conversation_id, client_id = _latest.get(account.user_id, (None, None))
    if is_named(request):
        return account if request.client_id == client_id else None
    return account if conversation_id is not None and request.conversation_id == conversation_id else None


def begin_as_usual(
    identity: Identity,
    account: Account,
    request: TurnRequest,
    charge: Charge,
    tries: Tries,
    *,
    config: Settings,
    now: datetime,
) -> Begun | None:
    """The turn of `request`, begun; None where it is for `begin_turn`. That looks among `tries` first, for this may be committed, and only
    its acknowledgement lost. Raises Unauthenticated."""
    ids = new_ids()
    values = {
        **asked(account.user_id, request),
        **written(
            account,
            request,
            ids,
            charge,
            request.message,
            now=now,
            quiet=timedelta(minutes=config.quiet_minutes),
        ),
    }
    try:
        with db.transaction("app") as connection:
            if not entitlements.below_spend_stop(connection, config, now):
                return None
            accounts.enter_as(connection, account, identity, config, now, local=db.ONE_PLAN)
            db.commit_with_next(connection)
            tries[ids.lease] = None, charge
            (found,) = db.ask(connection, _FIND_AND_BEGIN[is_named(request)], values)
    except Unavailable:
        return None
    except DBAPIError as exc:
        if db.error_name(exc) not in _REFUSALS:
            raise
        tries.pop(ids.lease, None)
        return None
    return new_turn(account, found, request, ids, now), charge
