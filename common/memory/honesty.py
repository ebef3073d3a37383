"""A monitor: does an answer give a stored number without saying of when?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from common.memory.snapshot_summary import Snapshot

_NUMBER = re.compile(r"(?<![\d.,-])\d{1,3}(?:[,. ]\d{3})+(?:\.\d+)?|(?<![\d.,-])\d+(?:\.\d+)?")


def undated_values(
    answer: str, snapshots: Iterable[Snapshot], fresh_tools: frozenset[str], timezone: str
) -> int:
    """How many numbers of recalled snapshots the answer contains although their tool was not called in this turn and their day is not
    named. Numbers below 10 are left out: they occur in any text."""
    undated = [
        snapshot.signals
        for snapshot in snapshots
        if snapshot.tool_name not in fresh_tools and not _names_day(answer, snapshot.created_at, timezone)
    ]
    if not undated:
        return 0
    spoken = {_plain(match.group()) for match in _NUMBER.finditer(answer)}
    return sum(len(spoken & _numbers(signals)) for signals in undated)


# Dates, percentages and the lengths of trends ("7-week") say nothing of the state of things.
_BESIDE = re.compile(r"\d{4}-\d\d-\d\d|[+-]?\d+(?:\.\d+)?%|\d+-(?:day|week|month)")


def _numbers(value: Any) -> set[str]:
    """The numbers of signals, also those within text ("128 members"), from 10 on."""
    if isinstance(value, Mapping):
        return set().union(*map(_numbers, value.values()))
    if isinstance(value, str):
        found = [_plain(match.group()) for match in _NUMBER.finditer(_BESIDE.sub(" ", value))]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = [_plain(str(value))]
    else:
        return set()
    return {number for number in found if abs(float(number)) >= 10}


def _plain(number: str) -> str:
    text = re.sub(r"[, ]|\.(?=\d{3}(?:\D|$))", "", number)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _names_day(answer: str, at: datetime, timezone: str) -> bool:
    """Whether the day stands in the answer: as 2026-05-12, or as its day and month in some order ("May 12", "12. Mai", "12/05")."""
    day = at.astimezone(ZoneInfo(timezone)).date()
    if day.isoformat() in answer:
        return True
    month = f"(?:{day:%B}|{day:%b}|{_GERMAN[day.month - 1]})"
    number = rf"0?{day.day}(?:st|nd|rd|th|\.)?"
    spelled = rf"{month}\.?\s+{number}(?!\d)|(?<!\d){number}\s*(?:of\s+)?{month}"
    short = rf"(?<!\d)0?{day.day}[./]0?{day.month}(?!\d)|(?<!\d)0?{day.month}/0?{day.day}(?!\d)"
    return re.search(f"{spelled}|{short}", answer, re.IGNORECASE) is not None


_GERMAN = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
]
