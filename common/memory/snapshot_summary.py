"""The block that recalls earlier tool results: at most K lines and a fixed number of tokens, dated, never presented as live.

Its wording is a contract that the evals assert. Everything here is a pure function of what recall read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from common.text import count_tokens, one_line, sanitise, to_json
from common.tools.registry import tools

K = 5
BUDGET_TOKENS = 300
MAX_ARGUMENTS = 90  # characters
MAX_SUMMARY = 160

HEADER = "Previously fetched (this conversation, snapshots — not live data):"
FOOTER = """
IMPORTANT: when referencing a row above, always prefix with "as of <date>".
If the user is asking about CURRENT state, call the tool fresh — do not
present these snapshots as live data."""


class Snapshot(NamedTuple):
    """What recall reads of a stored tool result, and of the last earlier one of the same call whose signals differed."""

    tool_name: str
    tool_input: Mapping[str, Any]
    signals: Mapping[str, Any]
    created_at: datetime
    observed_at: datetime | None = None
    earlier_signals: Mapping[str, Any] | None = None
    earlier_at: datetime | None = None


def recall_block(snapshots: Sequence[Snapshot], timezone: str) -> tuple[str, list[str]]:
    """The block and its lines, newest first; ("", []) when there is nothing to recall.

    `snapshots` come newest first. Days are those of the site's zone. Lines that do not fit the budget go whole, oldest first.
    """
    lines = [snapshot_line(snapshot, timezone) for snapshot in snapshots[:K]]
    while lines:
        block = "\n".join([HEADER, *lines, FOOTER])
        if count_tokens(block) <= BUDGET_TOKENS:
            return block, lines
        lines.pop()
    return "", []


def snapshot_line(snapshot: Snapshot, timezone: str) -> str:
    """One line: the day of the call, the call, its summary, and how far the data reaches where that is an earlier day."""
    zone = ZoneInfo(timezone)
    day = snapshot.created_at.astimezone(zone).date()
    line = f"- {day} {snapshot.tool_name}({_arguments(snapshot.tool_input)}): {_summary(snapshot, zone)}"
    if snapshot.observed_at is not None:
        through = snapshot.observed_at.astimezone(zone).date()
        if through < day:
            line += f" (data through {through})"
    return line


def _arguments(tool_input: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name}={to_json(value)}" for name, value in tool_input.items() if value is not None)
    return one_line(sanitise(shown), MAX_ARGUMENTS)


def _summary(snapshot: Snapshot, zone: ZoneInfo) -> str:
    tool = tools().get(snapshot.tool_name)
    earlier_day = snapshot.earlier_at.astimezone(zone).date() if snapshot.earlier_at else None
    earlier = dict(snapshot.earlier_signals) if snapshot.earlier_signals is not None else None
    try:
        # The tool may be gone from this release, or have changed what its signals are.
        summary = tool.summarise(dict(snapshot.signals), earlier, earlier_day) if tool else None
    except (LookupError, StopIteration, TypeError, ValueError):
        summary = None
    told = summary or generic_summary(dict(snapshot.signals), earlier, earlier_day)
    return one_line(sanitise(told), MAX_SUMMARY)  # before the cut: half a key is not known for one


def generic_summary(signals: dict[str, Any], earlier: dict[str, Any] | None, day: date | None) -> str:
    """A summary for tools without their own: up to two signals by name, each with its change."""
    parts = []
    for name, value in list(signals.items())[:2]:
        part = f"{one_line(str(name), 30)} {one_line(str(value), 40)}"
        if earlier is not None and name in earlier and earlier[name] != value:
            part += f" (was {one_line(str(earlier[name]), 40)} on {day})"
        parts.append(part)
    return ", ".join(parts) or "result stored"
