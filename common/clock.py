"""What time it is: the one place that asks, so that a test can set the time of the edges."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)
