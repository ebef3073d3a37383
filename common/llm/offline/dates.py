"""Days and periods as people write them: "last 6 months", "since March", "between 2026-04-01 and May 3", "yesterday"."""

from __future__ import annotations

import re
from datetime import date, timedelta

from common.llm.offline import cues

_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "ten": 10, "twelve": 12}
# The beginnings of a unit's names -> its days.
_UNIT_DAYS = (
    (("day", "tag", "día", "jour"), 1),
    (("week", "woche", "semana", "semaine"), 7),
    (("month", "monat", "mes", "mois"), 30),
    (("quarter", "quartal"), 91),
    (("year", "jahr", "año", "ans"), 365),
)
_UNITS = "|".join(rf"{name}\w*" for names, _ in _UNIT_DAYS for name in names)
LAST_N = re.compile(
    rf"\b(?:last|past|previous|letzten|últim[oa]s|derni(?:er|ère)e?s)\s+(\d+|{'|'.join(_COUNTS)})\s+({_UNITS})\b",
    re.IGNORECASE,
)
_MONTH = "|".join(f"{m}|{m[:3]}" for m in cues.MONTHS)
_FROM_MONTH = re.compile(
    rf"\b(?:since|after|from|in|between|for)\s+(?:(?:{_MONTH})\b|\d{{4}}\b)", re.IGNORECASE
)
DAY = re.compile(
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)|(?P<only_year>20\d\d)\b"
    rf"|(?P<month>{_MONTH})\b\.?(?:\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b)?(?:,?\s+(?P<year>\d{{4}}))?"
    rf"|(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month2>{_MONTH})\b(?:\s+(?P<year2>\d{{4}}))?",
    re.IGNORECASE,
)

_ONLY_YEAR = re.compile(r"20\d\d\b(?!-)")
_SEVERAL = re.compile(
    r"\b(?:compar\w*|versus|vs|than|between|since|until|trends?|over time|grow\w*|chang\w*|(?<!^)and"
    r"|by|per|each|every|daily|weekly|monthly)\b"
)


_IN_ENGLISH = tuple(
    (re.compile(rf"\b(?:{foreign})\b"), english)
    for foreign, english in (
        (
            r"(?:im )?(?:letzte[nrs]?|vorige[nrs]?) monat|(?:el )?mes pasado|(?:le )?mois dernier",
            "last month",
        ),
        (r"(?:letzte|vorige)[nr]? woche|(?:la )?semana pasada|(?:la )?semaine dernière", "last week"),
        (r"(?:im )?letzte[nrs]? jahr|(?:el )?año pasado|l'année dernière", "last year"),
        (r"diese[nrsm] monat|este mes|ce mois(?:-ci)?", "this month"),
        (r"diese[r]? woche|esta semana|cette semaine", "this week"),
        (r"gestern|ayer", "yesterday"),
        (r"heute|hoy|aujourd'hui", "today"),
    )
)


def _english(text: str) -> str:
    """The text in lower case, with the commonest periods of other languages in English."""
    text = text.lower()
    for foreign, english in _IN_ENGLISH:
        text = foreign.sub(english, text)
    return text


def granularity(text: str, default: str) -> str:
    """day, week or month, as the text says; a named month asks for months."""
    said = next((name for name, pattern in cues.GRANULARITIES if pattern.search(text)), "")
    return said or ("month" if _FROM_MONTH.search(text) else default)


def periods(text: str, unit: str, today: date | None) -> int:
    """How many periods of `unit` back the text reaches; 0 where it does not say. "Last month" takes two: the running one ends them."""
    text = _english(text)
    unit_days = {"day": 1, "week": 7, "month": 30}[unit]
    if found := LAST_N.search(text):
        return max(1, _count(found[1]) * _days(found[2]) // unit_days)
    for pattern, days in ((r"\b(?:this|last|past) year\b", 365), (r"\b(?:this|last|past) quarter\b", 91)):
        if re.search(pattern, text):
            return days // unit_days
    if re.search(r"\b(?:last|previous|past) (?:day|week|month)\b|\byesterday\b", text):
        return 2
    if re.search(r"\bthis (?:day|week|month)\b", text):
        return 2 if "compar" in text else 1
    since = since_until(text, today).get("since") if _FROM_MONTH.search(text) else None
    if not since or not today:
        return 0
    first = date.fromisoformat(since)
    if unit == "month":
        return (today.year - first.year) * 12 + today.month - first.month + 1
    return (today - first).days // unit_days + 1


def asked_day(text: str, today: date | None) -> date | None:
    """A day of the one period that is asked for: "on May 5", "in March", "last week", "yesterday"; None where the running period or
    several are meant."""
    text = _english(text)
    if today is None or _SEVERAL.search(text):
        return None
    if named := re.search(r"\b(?:on|at|for|in|during)\s+(?:the\s+)?(.+)", text):
        return (
            date.fromisoformat(day)
            if (day := _day(named[1], today)) and not _ONLY_YEAR.match(named[1])
            else None
        )
    if before := re.search(r"\b(?:(yesterday)|(?:last|previous) (week|month))\b", text):
        if before[2] == "month":
            return today.replace(day=1) - timedelta(days=1)
        return today - timedelta(days=7 if before[2] else 1)
    return None


def asked_unit(text: str, default: str) -> str:
    """The period's length for a question about one day or month; a full date asks for the day."""
    named = re.search(rf"\b(?:on|at|for)\s+(?:the\s+)?(?:{DAY.pattern})", text, re.IGNORECASE)
    return "day" if named and (named["iso"] or named["day"] or named["day2"]) else default


def since_until(text: str, today: date | None) -> dict[str, str]:
    """The days between which a list is asked for, both included, as ISO dates; empty where the text does not say."""
    text = _english(text)
    if between := re.search(r"\bbetween (.+?) and (.+)", text):
        return _known(since=_day(between[1], today), until=_day(between[2], today))
    if today and (found := LAST_N.search(text)):
        return {"since": (today - timedelta(days=_count(found[1]) * _days(found[2]))).isoformat()}
    if today and (near := re.search(r"\b(today|yesterday)\b", text)):
        return {"since": (today - timedelta(days=near[1] == "yesterday")).isoformat()}
    if today and (this := re.search(r"\b(this|last) (week|month|year)\b", text)):
        return _calendar(this[1], this[2], today)
    if inside := re.search(rf"\b(?:in|from|during)\s+((?:{_MONTH})\b\.?(?:\s+\d{{4}})?)(?!\s*\d)", text):
        first = _day(inside[1], today)
        return _known(since=first, until=_month_end(first) if first else "")
    since = re.search(r"\b(?:since|after|from|starting|in)\s+(.+)", text)
    until = re.search(r"\b(?:until|till|before|up to)\s+(.+)", text)
    return _known(since=_day(since[1], today) if since else "", until=_day(until[1], today) if until else "")


def _known(since: str, until: str) -> dict[str, str]:
    return {name: day for name, day in (("since", since), ("until", until)) if day}


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS[word.lower()]


def _days(unit: str) -> int:
    return next(days for names, days in _UNIT_DAYS if unit.lower().startswith(names))


def _month_end(first: str) -> str:
    next_month = (date.fromisoformat(first).replace(day=28) + timedelta(days=4)).replace(day=1)
    return (next_month - timedelta(days=1)).isoformat()


def _calendar(which: str, unit: str, today: date) -> dict[str, str]:
    """This week, month or year until now, or the whole one before."""
    starts = {
        "week": today - timedelta(days=today.weekday()),
        "month": today.replace(day=1),
        "year": today.replace(month=1, day=1),
    }
    start = starts[unit]
    if which == "this":
        return {"since": start.isoformat()}
    end = start - timedelta(days=1)
    before = {
        "week": start - timedelta(days=7),
        "month": end.replace(day=1),
        "year": end.replace(month=1, day=1),
    }
    return {"since": before[unit].isoformat(), "until": end.isoformat()}


def _day(text: str, today: date | None) -> str:
    """The day that `text` begins with, as an ISO date; a month without a day is its first; a date without a year is the last such.
    Empty for no date, or one that no calendar has."""
    found = DAY.match(text.strip())
    if not found:
        return ""
    try:
        if found["iso"]:
            return date.fromisoformat(found["iso"]).isoformat()
        if found["only_year"]:
            return date(int(found["only_year"]), 1, 1).isoformat()
        name = (found["month"] or found["month2"]).lower()[:3]
        month = next(i for i, known in enumerate(cues.MONTHS, start=1) if known.startswith(name))
        day, year = int(found["day"] or found["day2"] or 1), found["year"] or found["year2"]
        if year:
            return date(int(year), month, day).isoformat()
        if today is None:
            return ""
        this_year = date(today.year, month, day)
        return (this_year if this_year <= today else date(today.year - 1, month, day)).isoformat()
    except ValueError:
        return ""
