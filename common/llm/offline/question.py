"""What the last user message asks for: its clauses, each as one or more `Part`s with the arguments of the tool that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Literal

from common.llm.offline import cues

Kind = Literal["kpi", "list", "recall", "continuity", "remember", "advice", "greeting", "unknown"]

_FENCED = re.compile(r"```.*?(?:```|$)|<(\w+)[^>]*>.*?</\1>", re.DOTALL)
_DATE_PREFIX = re.compile(r"^\s*[\[(]?\d{4}-\d\d-\d\d[\])]?:?\s*")
_ASKS = (
    r"what|how|who|which|when|where|why|show|list|tell|give|find|is|are|do|does|did|can|could|should|have|compare|"
    r"remember|note|please|wie|was|welche|zeig|qué|cuánt\w+|cuál\w*|combien|quel\w*|montre"
)
_BREAK = re.compile(
    rf"(?<=[.!?;])\s+|\n+|,?\s+(?:and|und|y|et|but|then|also|plus)\s+(?:also\s+)?(?=(?:{_ASKS})\b)",
    re.IGNORECASE,
)
_QUESTION = re.compile(rf"^(?:(?:and|but|so|also|ok|then|¿)[, ]*)*(?:{_ASKS})\b|\?\s*$", re.IGNORECASE)
_NUMBER = r"(?<![\w.])[$€£]?(\d[\d.,]*\d|\d)(?:\s*(?:%|percent))?"
_PREMISE = re.compile(
    r"\b(?:since|because|as|given|now that|you (?:said|told)|i have|we have|i've|we've|with|my|our|habe|tengo)\b",
    re.IGNORECASE,
)
_COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "ten": 10, "twelve": 12}
_LAST_N = re.compile(
    r"\b(?:last|past|previous|letzten|últim[oa]s|derni(?:er|ère)e?s)\s+(\d+|"
    + "|".join(_COUNTS)
    + r")\s+(days?|weeks?|months?|quarters?|years?|tagen?|wochen|monaten?|jahren?|días|semanas|meses|años|jours|semaines|mois|ans)\b",
    re.IGNORECASE,
)
_MONTH = "|".join(f"{m}|{m[:3]}" for m in cues.MONTHS)
_DAY = re.compile(
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)|(?P<month>{_MONTH})\b\.?(?:\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b)?(?:,?\s+(?P<year>\d{{4}}))?"
    rf"|(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month2>{_MONTH})\b(?:\s+(?P<year2>\d{{4}}))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Part:
    """One thing that is asked. `name` is a metric or a target; `premise` is the number that the question takes for granted."""

    kind: Kind
    clause: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    premise: str = ""


def read_question(text: str, earlier: tuple[str, ...], today: date | None) -> tuple[Part, ...]:
    """The parts of a message, in order. `earlier` are the user's former messages, newest last: "and last month?" borrows the
    metric of the last one that had any. Fenced or tagged text in the message is data and is not read."""
    plain = _DATE_PREFIX.sub("", _FENCED.sub(" ", text)).strip()
    if remember := cues.REMEMBER.match(plain):
        return (Part("remember", plain, arguments={"content": remember["content"].strip().rstrip(".")}),)
    clauses = [c.strip() for c in _BREAK.split(plain) if c and c.strip()]
    parts = [
        part
        for at, clause in enumerate(clauses)
        for part in _read_clause(clause, (*earlier, *clauses[:at]), today)
    ]
    asked = [p for p in parts if p.kind != "unknown" or _QUESTION.search(p.clause)]
    substance = [p for p in asked if p.kind != "greeting"]
    return tuple(_once(substance or asked or parts)) or (Part("unknown", plain),)


def _read_clause(clause: str, earlier: tuple[str, ...], today: date | None) -> list[Part]:
    if remember := cues.REMEMBER.match(clause):
        return [Part("remember", clause, arguments={"content": remember["content"].strip().rstrip(".")})]
    if cues.GREETING.match(clause):
        return [Part("greeting", clause)]
    data = _data_parts(clause, today)
    recalls = bool(cues.RECALL.search(clause))
    advises = bool(cues.ADVICE.search(clause))
    if recalls and not advises:
        fresh = [p for p in data if p.kind == "kpi"] if cues.NOW.search(clause) else []
        return [Part("recall", clause, name=data[0].name if data else ""), *fresh]
    if cues.CONTINUITY.search(clause) and not data:
        return [Part("continuity", clause)]
    if advises:
        return [*(p for p in data if p.premise), Part("advice", clause)]
    if data:
        return data
    return _borrowed(clause, earlier) or [Part("unknown", clause)]


def _borrowed(clause: str, earlier: tuple[str, ...]) -> list[Part]:
    """The metrics of what was asked before, for a short clause that only names a time: "and last month?", "how many now?"."""
    timed = cues.NOW.search(clause) or any(pattern.search(clause) for _, pattern in cues.GRANULARITIES)
    if not timed or len(clause.split()) > 8:
        return []
    former, metrics = next(((e, found) for e in reversed(earlier) if (found := _metrics(e))), ("", []))
    return [Part("kpi", clause, m, _kpi_arguments(clause, m), _premise(former)) for m in metrics]


def _data_parts(clause: str, today: date | None) -> list[Part]:
    """The metrics and the lists that a clause names."""
    target = next((name for name, pattern in cues.TARGETS.items() if pattern.search(clause)), "")
    superseded = cues.LISTS_INSTEAD_OF.get(target, ())
    metrics = [m for m in _metrics(clause) if m not in superseded]
    premise = _premise(clause)
    if not metrics and not target and premise and re.search(r"\bmembers?\b", clause, re.IGNORECASE):
        metrics = ["active_members"]
    parts = [Part("kpi", clause, m, _kpi_arguments(clause, m), premise) for m in metrics]
    if target:
        parts.append(Part("list", clause, target, _list_arguments(clause, target, today)))
    return parts


def _metrics(clause: str) -> list[str]:
    found = [m for m, pattern in cues.METRICS.items() if pattern.search(clause)]
    return [m for m in found if not any(other in found for other in cues.IMPLIED_BY.get(m, ()))]


def _premise(clause: str) -> str:
    """The number that the clause states as a fact of the business, as it was written; periods and dates are none."""
    if not _PREMISE.search(clause):
        return ""
    bare = _DAY.sub(" ", _LAST_N.sub(" ", clause))
    numbers = re.findall(rf"{_NUMBER}(?!\s*(?:days?|weeks?|months?|years?|times?|st|nd|rd|th)\b)", bare)
    return numbers[0] if numbers else ""


def _kpi_arguments(clause: str, metric: str) -> dict[str, Any]:
    """Granularity as the words say, else weeks for counts and months for money; periods only where the words say so."""
    default = "month" if metric in (*cues.MONEY, "churn_rate") else "week"
    unit = next((name for name, pattern in cues.GRANULARITIES if pattern.search(clause)), default)
    arguments: dict[str, Any] = {"metric": metric, "granularity": unit}
    lowered = clause.lower()
    if last := _LAST_N.search(lowered):
        count = int(last[1]) if last[1].isdigit() else _COUNTS[last[1]]
        per = 3 if "quarter" in last[2] else 12 if "year" in last[2] else 1
        arguments["periods"] = min(count * per, 52)
    elif re.search(r"\b(?:this|last|past) year\b", lowered):
        arguments["periods"] = 12
    elif re.search(r"\b(?:this|last|past) quarter\b", lowered):
        arguments["periods"] = 3
    elif re.search(r"\b(?:last|previous|past) (?:day|week|month)\b|\byesterday\b", lowered):
        arguments["periods"] = 2
    elif re.search(r"\bthis (?:day|week|month)\b", lowered) and not cues.TREND.search(lowered):
        arguments["periods"] = 2 if re.search(r"\b(?:last|compar)", lowered) else 1
    return arguments


def _list_arguments(clause: str, target: str, today: date | None) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    lowered = clause.lower()
    status = next((s for s in cues.STATUSES if re.search(rf"\b{s}\b", lowered)), "")
    if target == "transactions" and re.search(r"\brefund", lowered):
        status = "refunded"
    if status and target in ("members", "transactions"):
        filters["status"] = status
    if plan := _plan(clause):
        filters["plan"] = plan
    if target != "memberships":
        filters.update(_since_until(lowered, today))
    if amount := re.search(
        rf"\b(?:over|above|more than|at least|greater than|min(?:imum)?)\s+{_NUMBER}", lowered
    ):
        filters["min_amount"] = float(amount[1].replace(",", ""))
    if search := re.search(
        r"\b(?:named|called)\s+[\"“']?([^\"”'?]+?)[\"”'?]*\s*$|(\S+@\S+\.\w+)", clause, re.IGNORECASE
    ):
        filters["search"] = (search[1] or search[2]).strip()
    arguments: dict[str, Any] = {"target": target}
    if filters:
        arguments["filters"] = filters
    if limit := re.search(
        r"\b(?:last|latest|top|first|newest|recent)\s+(\d{1,3})\b(?!\s+(?:day|week|month|year))", lowered
    ):
        arguments["limit"] = int(limit[1])
    return arguments


def _plan(clause: str) -> str:
    named = re.search(
        r"[\"“]([^\"”]+)[\"”](?:\s+(?:plan|membership|tier))?"
        r"|\b(?:on|in|of|to|for|with)\s+(?:the |my |our )?([A-Z][\w&+-]*(?:\s[A-Z][\w&+-]*)*)(?:\s+(?:plan|membership|tier)\b|\s*[?.!]?$)",
        clause,
    )
    name = (named[1] or named[2]) if named else ""
    return "" if name.lower() in cues.MONTHS else name


def _since_until(text: str, today: date | None) -> dict[str, str]:
    """The days between which a list is asked for, both included, as ISO dates."""
    if between := re.search(r"\bbetween (.+?) and (.+)", text):
        first, last = _day(between[1], today), _day(between[2], today)
        return {"since": first, "until": last} if first and last else {}
    if today and (last_n := _LAST_N.search(text)):
        count = int(last_n[1]) if last_n[1].isdigit() else _COUNTS[last_n[1]]
        days = {"d": 1, "t": 1, "w": 7, "s": 7, "m": 30, "q": 91}.get(last_n[2][0], 365) * count
        return {"since": (today - timedelta(days=days)).isoformat()}
    if today and (this := re.search(r"\b(this|last) (week|month|year)\b", text)):
        return _calendar(this[1], this[2], today)
    found = {}
    if since := re.search(r"\b(?:since|after|from|starting|in)\s+(.+)", text):
        found["since"] = _day(since[1], today)
    if until := re.search(r"\b(?:until|till|before|up to)\s+(.+)", text):
        found["until"] = _day(until[1], today)
    return {key: day for key, day in found.items() if day}


def _calendar(which: str, unit: str, today: date) -> dict[str, str]:
    starts = {
        "week": today - timedelta(days=today.weekday()),
        "month": today.replace(day=1),
        "year": today.replace(month=1, day=1),
    }
    start = starts[unit]
    if which == "this":
        return {"since": start.isoformat()}
    end = start - timedelta(days=1)
    begin = {
        "week": start - timedelta(days=7),
        "month": end.replace(day=1),
        "year": end.replace(month=1, day=1),
    }[unit]
    return {"since": begin.isoformat(), "until": end.isoformat()}


def _day(text: str, today: date | None) -> str:
    """The day that `text` begins with, as an ISO date; a month without a day is its first; a date without a year is the last such."""
    found = _DAY.match(text.strip())
    if not found:
        return ""
    if found["iso"]:
        return found["iso"]
    month_name = (found["month"] or found["month2"]).lower()[:3]
    month = next(i for i, name in enumerate(cues.MONTHS, start=1) if name.startswith(month_name))
    day, year = int(found["day"] or found["day2"] or 1), found["year"] or found["year2"]
    try:
        if year or today is None:
            return date(int(year), month, day).isoformat() if year else ""
        this_year = date(today.year, month, day)
        return (this_year if this_year <= today else date(today.year - 1, month, day)).isoformat()
    except ValueError:
        return ""


def _once(parts: list[Part]) -> list[Part]:
    """The parts without repeats of the same call."""
    seen: set[str] = set()
    kept = []
    for part in parts:
        key = f"{part.kind} {part.name} {part.arguments or part.clause}"
        if key not in seen:
            seen.add(key)
            kept.append(part)
    return kept
