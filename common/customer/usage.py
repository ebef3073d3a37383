"""What a customer's tenant has used, against what its tier allows, and when that starts anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from pydantic import Field
from sqlalchemy import Connection

from common.accounts import Account
from common.entitlements import LIMITS, day_of, month_of
from common.shapes import Shape


class Meter(Shape):
    """One limit. `starts_anew_at` is null where only deleting makes room."""

    used: float
    limit: float
    starts_anew_at: datetime | None


class Usage(Shape):
    """The limits of the tier: turns, cost and wrap-ups are the tenant's, memories the user's own."""

    tier: str
    turns_today: Meter
    cost_usd_this_month: Meter = Field(description="Includes what answers still running have reserved")
    wrap_ups_this_month: Meter
    memories: Meter


_USED = sa.text("""
    select (select used from usage_counters where tenant_id = :tenant_id and counter = 'turns' and period = :day) as turns,
           (select used from usage_counters where tenant_id = :tenant_id and counter = 'cost_usd' and period = :month) as cost,
           (select used from usage_counters where tenant_id = :tenant_id and counter = 'wrap_ups' and period = :month) as wrap_ups,
           (select count(*) from brain_entries where user_id = :user_id and collection = 'memory') as memories
""")


def read_usage(connection: Connection, account: Account, *, now: datetime) -> Usage:
    """The account's usage of today and this month (UTC)."""
    day, month = day_of(now), month_of(now)
    used = connection.execute(
        _USED, {"tenant_id": account.tenant_id, "user_id": account.user_id, "day": day, "month": month}
    ).one()
    tomorrow = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
    next_month = datetime.combine((month + timedelta(days=32)).replace(day=1), datetime.min.time(), UTC)
    limits = LIMITS[account.tier]

    def meter(amount: object, limit: object, anew: datetime | None) -> Meter:
        return Meter(used=float(str(amount or 0)), limit=float(str(limit)), starts_anew_at=anew)

    return Usage(
        tier=account.tier,
        turns_today=meter(used.turns, limits.turns, tomorrow),
        cost_usd_this_month=meter(used.cost, limits.cost_usd, next_month),
        wrap_ups_this_month=meter(used.wrap_ups, limits.wrap_ups, next_month),
        memories=meter(used.memories, limits.memories, None),
    )
