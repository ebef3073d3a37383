"""What a tier may use: reserved at its worst case before a model is called, settled with what it really used after.

The SQL here are parts of statements, so that a turn pays no extra round trip for its accounting: `common.turns` and the wrap-ups put
them into theirs.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from common.accounts import Account, Tier
from common.config import Settings
from common.db import array, error_detail, error_name
from common.errors import LimitReached, Unavailable
from common.llm.types import Stop
from common.text import to_json

RESERVATION_LASTS = timedelta(minutes=10)
NO_LIMIT = Decimal(10**9)
# What of a tenant's money wrap-ups may use up to: a Free tenant's last tenth is for turns, so that wrap-ups are the first thing dropped.
WRAP_UP_SHARE: dict[Tier, Decimal] = {"free": Decimal("0.9"), "pro": Decimal(1)}


@dataclass(frozen=True)
class Limits:
    """What a tenant may use: turns in a day, dollars of model cost and wrap-ups in a month; and MEMORY entries a user."""

    turns: Decimal
    cost_usd: Decimal
    wrap_ups: Decimal
    memories: int


LIMITS: dict[Tier, Limits] = {
    "free": Limits(turns=Decimal(40), cost_usd=Decimal("1.10"), wrap_ups=Decimal(10), memories=5),
    "pro": Limits(turns=Decimal(400), cost_usd=Decimal(12), wrap_ups=Decimal(120), memories=15),
}


class Count(NamedTuple):
    """An amount to add to a tenant's counter of a period, within a limit."""

    counter: str
    period: date
    amount: Decimal
    limit: Decimal


def day_of(now: datetime) -> date:
    """The UTC day that the daily limits count by."""
    return now.astimezone(UTC).date()


def month_of(now: datetime) -> date:
    """The first day of the UTC month that the monthly limits count by."""
    return day_of(now).replace(day=1)


def count_turn(account: Account, now: datetime) -> Count:
    """One more turn today."""
    return Count("turns", day_of(now), Decimal(1), LIMITS[account.tier].turns)


def count_wrap_up(account: Account, now: datetime) -> Count:
    """One more wrap-up this month."""
    return Count("wrap_ups", month_of(now), Decimal(1), LIMITS[account.tier].wrap_ups)


def uncount_wrap_up(now: datetime) -> Count:
    """The wrap-up counted at `now` was not made."""
    return Count("wrap_ups", month_of(now), Decimal(-1), NO_LIMIT)


@dataclass(frozen=True)
class Charge:
    """A model call about to be made, with its reservation. Where the process dies, the reservation expires as *estimated*.

    A reservation may cover several `calls`. The first has its row from the start, the others, which reserve nothing themselves, get
    theirs when all are settled together.
    """

    kind: str
    provider: str
    model: str
    reserved_usd: Decimal
    reserved_at: datetime
    calls: int = 1
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    def covering(self, calls: int) -> Charge:
        """The same with room for `calls` calls; with 0, covered by an earlier reservation."""
        return replace(self, reserved_usd=calls * self.reserved_usd, calls=calls)

    def reserved(self, account: Account, *, share: Decimal = Decimal(1)) -> Count:
        """The worst case of the call, within `share` of the tenant's money."""
        limit = LIMITS[account.tier].cost_usd * share
        return Count("cost_usd", month_of(self.reserved_at), self.reserved_usd, limit)

    def given_back(self, stop: Stop) -> Count:
        """The difference between the worst case and what was used, in the month in which it was reserved."""
        return Count("cost_usd", month_of(self.reserved_at), stop.cost_usd - self.reserved_usd, NO_LIMIT)


Ended = tuple[Charge, Stop]
"""A call that was made, and what the provider reported."""


# A counter rises only while it stays within its limit; the row's lock makes that hold for any number of writers at once.
_COUNT = """
    insert into usage_counters (tenant_id, counter, period, used)
    select :tenant_id, w.counter, w.period, w.amount
    from unnest(cast(:counters as text[]), cast(:periods as date[]), cast(:amounts as numeric[]),
                cast(:limits as numeric[])) as w (counter, period, amount, most)
    where w.amount <= w.most and {condition}
    order by w.counter, w.period
    on conflict (tenant_id, counter, period) do update set used = usage_counters.used + excluded.used
    where usage_counters.used + excluded.used <= (
        select m.most
        from unnest(cast(:counters as text[]), cast(:periods as date[]), cast(:limits as numeric[])) as m (counter, period, most)
        where m.counter = usage_counters.counter and m.period = usage_counters.period)
    returning counter, period
"""
COUNT = _COUNT.format(condition="true")

_RESERVE = """
    insert into usage_charges (id, user_id, tenant_id, turn_id, session_id, kind, provider, model, state, reserved_usd,
                               created_at, expires_at)
    select :charge_id, :user_id, :tenant_id, :turn_id, :charge_session, :charge_kind, :charge_provider, :charge_model,
           'reserved', :charge_reserved, :charge_at, :charge_expires
    where {condition}
    returning id
"""
RESERVE = _RESERVE.format(condition="true")

# The parts of a turn's first statement, which writes if `beginning` has a row.
COUNT_IF_BEGINNING = _COUNT.format(condition="exists (select from beginning)")
RESERVE_IF_BEGINNING = _RESERVE.format(condition="exists (select from beginning)")

_SETTLE = """
    update usage_charges
    set state = 'settled', kind = :settled_kind, provider = :stop_provider, model = :stop_model, cost_usd = :stop_cost,
        input_tokens = :stop_input, output_tokens = :stop_output, cache_read_tokens = :stop_cache_read,
        cache_write_tokens = :stop_cache_write, settled_at = :settled_at
    where id = :settled_id and user_id = :user_id and state <> 'settled' and {condition}
    returning id, user_id, tenant_id, turn_id, session_id, expires_at
"""
SETTLE = _SETTLE.format(condition="true")

# The parts of a turn's last statement, which settles if `held` has a row, and gives back with what it settled: a statement that is sent
# again because only its answer was lost gives nothing back a second time.
SETTLE_IF_HELD = _SETTLE.format(condition="exists (select from held)")
COUNT_IF_SETTLED = _COUNT.format(condition="exists (select from settled)")

# The calls that the reservation of `settled` covered beside the first.
COVERED = """
    insert into usage_charges (id, user_id, tenant_id, turn_id, session_id, kind, provider, model, state, reserved_usd, cost_usd,
                               input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, created_at, expires_at, settled_at)
    select c.id, s.user_id, s.tenant_id, s.turn_id, s.session_id, c.kind, c.provider, c.model, 'settled', 0, c.cost_usd,
           c.input, c.output, c.cache_read, c.cache_write, c.began_at, s.expires_at, :settled_at
    from settled s, jsonb_to_recordset(cast(:covered as jsonb)) as c(
        id uuid, kind text, provider text, model text, cost_usd numeric, input int, output int, cache_read int, cache_write int,
        began_at timestamptz)
"""

# The end of a statement that counts as `counted` and reserves as `charged`. It is refused by the server where a counter did not rise, so
# that nothing of it stays and a commit may go with it; `within_limits` tells which. The reservation comes first: one that is there
# already says that the statement was carried out before, and must not be refused for what it itself took.
CHECK_COUNTED = """
    select case when (select true from charged) and count(*) < cardinality(cast(:counters as text[]))
           then limit_reached(array_agg(counter || to_char(period, ' YYYY-MM-DD'))) end as refused
    from counted
"""
_LIMIT_REACHED = "MI001"  # the code that `limit_reached` raises, with the counters that rose

_COUNT_AND_RESERVE = sa.text(f"with counted as ({COUNT}), charged as ({RESERVE}) {CHECK_COUNTED}")
_SETTLE_AND_RESERVE = sa.text(
    f"""with settled as ({SETTLE}), covered as ({COVERED}), charged as ({RESERVE}), counted as ({COUNT}) {CHECK_COUNTED}"""
)


def counting(account: Account, counts: Sequence[Count]) -> dict[str, Any]:
    """The parameters of `COUNT`. Amounts for the same counter and period are added up: a row can change once in a statement."""
    merged: dict[tuple[str, date], Count] = {}
    for one in counts:
        key = (one.counter, one.period)
        before = merged.get(key)
        total = one.amount + (before.amount if before else 0)
        limit = min(one.limit, before.limit) if before else one.limit
        merged[key] = Count(one.counter, one.period, total, limit)
    wanted = list(merged.values())
    return {
        "tenant_id": account.tenant_id,
        "counters": array(w.counter for w in wanted),
        "periods": array(w.period for w in wanted),
        "amounts": array(w.amount for w in wanted),
        "limits": array(w.limit for w in wanted),
    }


def reserving(charge: Charge, *, session_id: uuid.UUID | None = None) -> dict[str, Any]:
    """The parameters of `RESERVE` that are the charge's own; with a `session_id` where it belongs to no turn."""
    return {
        "charge_id": charge.id,
        "charge_session": session_id,
        "charge_kind": charge.kind,
        "charge_provider": charge.provider,
        "charge_model": charge.model,
        "charge_reserved": charge.reserved_usd,
        "charge_at": charge.reserved_at,
        "charge_expires": charge.reserved_at + RESERVATION_LASTS,
    }


def settling(charge: Charge, stop: Stop, now: datetime) -> dict[str, Any]:
    """The parameters of `SETTLE`: what the provider reported."""
    return {
        "settled_id": charge.id,
        "settled_kind": charge.kind,
        "stop_provider": stop.provider,
        "stop_model": stop.model,
        "stop_cost": stop.cost_usd,
        "stop_input": stop.usage.input_tokens,
        "stop_output": stop.usage.output_tokens,
        "stop_cache_read": stop.usage.cache_read_tokens,
        "stop_cache_write": stop.usage.cache_write_tokens,
        "settled_at": now,
    }


def settling_all(ended: Sequence[Ended], now: datetime) -> dict[str, Any]:
    """The parameters of `SETTLE` and `COVERED`: the calls of one reservation, in order."""
    (first, stop), *others = ended
    covered = [
        {
            "id": str(charge.id),
            "kind": charge.kind,
            "provider": stop.provider,
            "model": stop.model,
            "cost_usd": str(stop.cost_usd),
            "input": stop.usage.input_tokens,
            "output": stop.usage.output_tokens,
            "cache_read": stop.usage.cache_read_tokens,
            "cache_write": stop.usage.cache_write_tokens,
            "began_at": charge.reserved_at.isoformat(),
        }
        for charge, stop in others
    ]
    return {**settling(first, stop, now), "covered": to_json(covered)}


def given_back(ended: Sequence[Ended]) -> list[Count]:
    """What the calls of one reservation did not use of it."""
    return [charge.given_back(stop) for charge, stop in ended]


@contextlib.contextmanager
def within_limits(counts: Sequence[Count], now: datetime) -> Iterator[None]:
    """Raises LimitReached for the first of `counts` that the block's statement, by CHECK_COUNTED, could not raise. Its transaction has
    failed then."""
    try:
        yield
    except DBAPIError as exc:
        if error_name(exc) != _LIMIT_REACHED:
            raise
        counted = error_detail(exc).split(",")
        raise next(
            _limit_reached(one, now) for one in counts if f"{one.counter} {one.period}" not in counted
        ) from None


def _limit_reached(count: Count, now: datetime) -> LimitReached:
    if count.counter == "turns":
        until = datetime.combine(day_of(now) + timedelta(days=1), datetime.min.time(), UTC)
        what = f"{count.limit} turns a day"
    else:
        until = datetime.combine(
            (month_of(now) + timedelta(days=32)).replace(day=1), datetime.min.time(), UTC
        )
        what = (
            f"{count.limit} wrap-ups a month"
            if count.counter == "wrap_ups"
            else f"${count.limit} of model cost a month"
        )
    return LimitReached(
        f"Your plan's limit is reached: {what}. It starts anew at {until:%Y-%m-%d %H:%M} UTC.",
        retry_after=max(1, int((until - now).total_seconds())),
        limit=count.counter,
        until=until.isoformat(),
    )


def reserve(
    connection: Connection,
    account: Account,
    charge: Charge,
    *,
    session_id: uuid.UUID,
    counts: Sequence[Count],
    now: datetime,
) -> None:
    """Reserve a call that belongs to no turn and count all of `counts`. Raises LimitReached, and then the caller rolls back to before."""
    asked = {
        "user_id": account.user_id,
        "turn_id": None,
        **reserving(charge, session_id=session_id),
        **counting(account, counts),
    }
    with within_limits(counts, now):
        connection.execute(_COUNT_AND_RESERVE, asked)


def settle(
    connection: Connection,
    account: Account,
    charge: Charge,
    stop: Stop,
    *,
    also: Sequence[Count] = (),
    now: datetime,
) -> None:
    """Settle a call that belongs to no turn, and give back what it did not use, with `also`. Nothing when the user is gone."""
    settled = connection.execute(
        sa.text(SETTLE), {"user_id": account.user_id, **settling(charge, stop, now)}
    ).first()
    if settled is not None:
        counts = [charge.given_back(stop), *also]
        connection.execute(sa.text(COUNT), counting(account, counts))


def expire_reservations(connection: Connection, now: datetime, since: datetime | None = None) -> int:
    """Close the reservations made after `since` whose process died, at their worst case: an estimate, which their counters hold already.
    Returns how many. A process that was only slow still settles its own."""
    expired = connection.execute(
        sa.text("""
            update usage_charges set state = 'expired', cost_usd = reserved_usd, settled_at = :now
            where state = 'reserved' and expires_at <= :now and created_at > :since and created_at <= :now
        """),
        {"now": now, "since": since or datetime.min.replace(tzinfo=UTC)},
    )
    return expired.rowcount


def settle_and_reserve(
    connection: Connection,
    *,
    account: Account,
    settled: Sequence[Ended],
    next_charge: Charge,
    turn_id: uuid.UUID,
    now: datetime,
) -> None:
    """Settle the calls of a turn's reservation and reserve the next in one statement. Raises LimitReached when the next is not covered;
    the caller then settles the others with the turn's end."""
    wanted = next_charge.reserved(account)
    asked = {
        "user_id": account.user_id,
        "turn_id": turn_id,
        **settling_all(settled, now),
        **reserving(next_charge),
        **counting(account, [*given_back(settled), wanted]),
    }
    with within_limits([wanted], now):
        connection.execute(_SETTLE_AND_RESERVE, asked)


# Per database: when the deployment's spend was last read, and how much it was. Read once a minute, so that a turn does not pay for it.
_spent: WeakKeyDictionary[Engine, tuple[datetime, Decimal]] = WeakKeyDictionary()
_SPENT_FOR = timedelta(minutes=1)


def check_spend_stop(connection: Connection, config: Settings, now: datetime) -> None:
    """Raise Unavailable when the whole deployment has spent its day's limit, as of at most a minute ago."""
    spent = _known_spent(connection, now)
    if spent is None:
        midnight = datetime.combine(day_of(now), datetime.min.time(), UTC)
        # A function of the owner's: no customer's role may read what others spent, only this one sum.
        spent = connection.scalar(
            sa.text("select spent_since(:midnight)"), {"midnight": midnight}
        ) or Decimal(0)
        _spent[connection.engine] = (now, spent)
    if spent >= _spend_stop(config):
        raise Unavailable("The advisor has reached its daily limit of model cost. It answers again tomorrow.")


def below_spend_stop(connection: Connection, config: Settings, now: datetime) -> bool:
    """Whether `check_spend_stop` would pass without asking."""
    spent = _known_spent(connection, now)
    return spent is not None and spent < _spend_stop(config)


def _known_spent(connection: Connection, now: datetime) -> Decimal | None:
    read_at, spent = _spent.get(connection.engine, (None, None))
    return spent if read_at is not None and timedelta(0) <= now - read_at < _SPENT_FOR else None


def _spend_stop(config: Settings) -> Decimal:
    return Decimal(str(config.daily_spend_stop_usd))
