"""How many requests a user may make in a minute: counted in the database, so that it holds over all instances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from common.errors import LimitReached

# Part of the statement that finds the caller, so that counting costs no round trip. One row a user, overwritten minute by minute.
COUNT = """
    insert into request_counts (user_id, minute, requests)
    select id, :minute, cast(:more as bigint) from found
    on conflict (user_id) do update set minute = excluded.minute,
        requests = case when request_counts.minute = excluded.minute then request_counts.requests else 0 end + excluded.requests
    returning requests
"""


class TooManyRequests(LimitReached):
    """Too many requests in one minute. Wait a moment and go on."""

    type = "too-many-requests"


def minute_of(now: datetime) -> datetime:
    """The minute that a request at `now` counts in."""
    return now.astimezone(UTC).replace(second=0, microsecond=0)


def check(requests: int, most: int, now: datetime) -> None:
    """Raise TooManyRequests, which rolls the count back too, when this is one more than `most`."""
    if requests > most:
        wait = minute_of(now) + timedelta(minutes=1) - now
        raise TooManyRequests(
            f"You may make {most} requests a minute.", retry_after=max(1, -(-wait // timedelta(seconds=1)))
        )
