"""How far a site's data reaches, told to the model: every result about a site carries it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

STALE_AFTER = timedelta(days=1)
NO_SITE = "There is no site in this conversation, so there are no numbers. Tell the user to choose or create a site."
NO_IMPORT = (
    "Nothing has been imported for this site yet, so there are no numbers. "
    "Tell the user that the site's data has to be imported first."
)


def freshness(as_of: datetime, now: datetime, timezone: str) -> dict[str, Any]:
    """`as_of` in the site's zone (ISO 8601) and, where the data is over a day old, `stale` and a sentence that says how old."""
    local = as_of.astimezone(ZoneInfo(timezone))
    fields: dict[str, Any] = {"as_of": local.isoformat(timespec="seconds"), "timezone": timezone}
    age = now - as_of
    if age > STALE_AFTER:
        days = "1 day" if age.days == 1 else f"{age.days} days"
        fields["stale"] = True
        fields["note"] = (
            f"This data is {days} old: it reaches to {local:%Y-%m-%d %H:%M}. Say so, and do not call it today's state."
        )
    return fields
