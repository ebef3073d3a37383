"""What the last user message asks for: its clauses, each as one or more `Part`s with the arguments of the tool that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from common.llm.offline import cues, dates

Kind = Literal[
    "kpi",
    "list",
    "recall",
    "asked",
    "continuity",
    "remember",
    "forget",
    "advice",
    "greeting",
    "help",
    "statement",
    "unknown",
]

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
_THEN_ASKS = re.compile(
    r"(?:,|;|,?\s+(?:and|und|y|et|but|then|also))\s+"
    r"(?=(?:what|how|who|which|when|where|why|show|list|tell|is|are|do|does|did|wie|was|welche|qué|cuánt\w+|combien)\b)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<![:,])\n+")
_QUESTION = re.compile(rf"^(?:(?:and|but|so|also|ok|then|¿)[, ]*)*(?:{_ASKS})\b|\?\s*$", re.IGNORECASE)
_NUMBER = r"(?<![\w.])[$€£]?(\d[\d.,]*\d|\d)(?:\s*(?:%|percent))?"
_PREMISE = re.compile(
    r"\b(?:since|because|as|given|now that|still|you (?:said|told)|i have|we have|i've|we've|with|my|our"
    r"|haben?|tengo|tenemos|da|weil|gesagt|como|dijiste|avons|puisque)\b",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"^(?:(?:and|but|so|ok(?:ay)?|well)[, ]+)*(?:i|we|let'?s|i'm|we're|ich|wir)\b(?!.*\?)",
    re.IGNORECASE | re.DOTALL,
)
_POINTS_BACK = re.compile(r"\b(?:it|that|this|they|them)\b", re.IGNORECASE)
_PEOPLE_COUNTED = re.compile(rf"\d\s+(?:[^\W\d]+\s+)?{cues.PEOPLE.pattern}", re.IGNORECASE)
MAX_PERIODS = 60


@dataclass(frozen=True)
class Part:
    """One thing that is asked. `name` is a metric or a target; `premise` is the number that the question takes for granted,
    `beyond` what no tool can give for it, `day` a day of the one period it is about."""

    kind: Kind
    clause: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    premise: str = ""
    beyond: str = ""
    day: date | None = None


def read_question(text: str, earlier: tuple[str, ...], today: date | None) -> tuple[Part, ...]:
    """The parts of a message, in order. `earlier` are the user's former messages, newest last: "and last month?" borrows the
    metric of the last one that had any. Fenced or tagged text in the message is data and is not read."""
    plain = _DATE_PREFIX.sub("", _FENCED.sub(" ", text)).strip()
    clauses = [clause.strip() for clause in _clauses(plain) if clause and clause.strip()]
    parts = [
        part
        for at, clause in enumerate(clauses)
        for part in _read_clause(clause, (*earlier, *clauses[:at]), today)
    ]
    asked = [
        p for p in parts if p.kind != "statement" and (p.kind != "unknown" or _QUESTION.search(p.clause))
    ]
    substance = [p for p in asked if p.kind != "greeting"]
    return tuple(_once(substance or asked or parts)) or (Part("unknown", plain),)


def _clauses(text: str) -> list[str]:
    """What is asked, one by one. What shall be remembered is one sentence, with every "and" in it; what follows is not part of it."""
    found = []
    for sentence in _SENTENCE.split(text):
        if not cues.REMEMBER.match(sentence.strip()):
            found += _BREAK.split(sentence)
        elif sentence.rstrip().endswith("?"):  # "remember that we close in August, and what is our churn?"
            found += _THEN_ASKS.split(sentence, maxsplit=1)
        else:
            found.append(sentence)
    return found


def _read_clause(clause: str, earlier: tuple[str, ...], today: date | None) -> list[Part]:
    remember = cues.REMEMBER.match(clause)
    if remember and (not clause.endswith("?") or cues.REQUESTS.search(clause)):
        return [Part("remember", clause, arguments={"content": remember["content"].strip().rstrip(".?!")})]
    if cues.GREETING.match(clause):
        return [Part("greeting", clause)]
    if cues.HELP.match(clause):
        return [Part("help", clause)]
    if cues.FORGET.match(clause):
        return [Part("forget", clause)]
    data = _data_parts(clause, today)
    if cues.ASKED.search(clause):
        return [Part("asked", clause, name=data[0].name if data else "")]
    advises = bool(cues.ADVICE.search(clause))
    judged = bool(cues.JUDGES.search(clause))
    if cues.RECALL.search(clause) and not advises:
        return _recalled(clause, data, earlier, today)
    if cues.CONTINUITY.search(clause) and not data:
        return [Part("continuity", clause)]
    if advises or judged or cues.DEFINES.search(clause):
        return [*(p for p in data if p.premise or judged), Part("advice", clause)]
    if data:
        return data
    if _STATES.match(clause):
        return [Part("statement", clause)]
    return _borrowed(clause, earlier, today) or [Part("unknown", clause)]


def _recalled(clause: str, data: list[Part], earlier: tuple[str, ...], today: date | None) -> list[Part]:
    """What was, and where it is set against now also what is: "how does it compare to last time?" is about what was just asked."""
    compares = cues.COMPARES.search(clause)
    if not data and compares and earlier and _POINTS_BACK.search(clause):
        data = _data_parts(earlier[-1], today)
    now = compares or cues.NOW.search(clause) or any(p.premise for p in data)
    fresh = [replace(p, clause=clause, day=None) for p in data] if now else []
    names = dict.fromkeys(p.name for p in data) or [""]
    return [
        *(Part("recall", clause, name, {"plan": plan} if (plan := _plan(clause)) else {}) for name in names),
        *fresh,
    ]


def _borrowed(clause: str, earlier: tuple[str, ...], today: date | None) -> list[Part]:
    """What was asked before, for a short clause that only names a time: "and last month?", "how many now?"."""
    timed = cues.NOW.search(clause) or any(pattern.search(clause) for _, pattern in cues.GRANULARITIES)
    if not timed or len(clause.split()) > 8:
        return []
    for former in reversed(earlier):
        if metrics := _metrics(former):
            day = dates.asked_day(clause, today)
            return [
                Part("kpi", clause, m, _kpi_arguments(clause, m, today), _premise(former), day=day)
                for m in metrics
            ]
        if lists := _data_parts(former, None):
            return [replace(p, clause=clause, arguments=_at_time(p.arguments, clause, today)) for p in lists]
    return []


def _at_time(arguments: dict[str, Any], clause: str, today: date | None) -> dict[str, Any]:
    """The arguments of a list for the days that the clause names instead of its own."""
    filters = {k: v for k, v in arguments.get("filters", {}).items() if k not in ("since", "until")}
    filters |= dates.since_until(clause, today) if arguments["target"] != "memberships" else {}
    rest = {k: v for k, v in arguments.items() if k != "filters"}
    return {**rest, "filters": filters} if filters else rest


def _data_parts(clause: str, today: date | None) -> list[Part]:
    """The metrics and the lists that a clause names. Counting people of a plan or a status is a list with a filter."""
    target = next((name for name, pattern in cues.TARGETS.items() if pattern.search(clause)), "")
    if not target and cues.PERSON.search(clause):
        target = "members"
    metrics = _metrics(clause)
    premise = _premise(clause)
    counting = cues.COUNTING.search(clause)
    plan, people = _plan(clause), cues.PEOPLE.search(clause)
    status = _status(clause, "members")
    counts_status = counting and status and status not in cues.STATUSES_WITH_METRIC
    on_plan = plan and (people or re.search(rf"\bon (?:the |our |my )?{re.escape(plan)}", clause))
    if target in ("", "memberships") and (on_plan or (people and counts_status)):
        target, metrics = "members", [m for m in metrics if m in cues.MONEY]
    elif counting and target in cues.COUNT_OF and not plan:
        metrics, target = metrics or [cues.COUNT_OF[target]], ""
    elif not metrics and not target and premise and people:
        metrics = ["active_members"]
    beyond = "a forecast" if cues.FORECAST.search(clause) else f'it for "{plan}" alone' if plan else ""
    parts = [
        Part(
            "kpi",
            clause,
            metric,
            _kpi_arguments(clause, metric, today),
            premise,
            beyond,
            None if premise else dates.asked_day(clause, today),
        )
        for metric in metrics
        if metric not in cues.LISTS_INSTEAD_OF.get(target, ())
    ]
    if target:
        arguments = _list_arguments(clause, target, today)
        counted = target == "members" and plan and (counting or premise) and not cues.NOT_NOW.search(clause)
        if counted and (premise or not {"since", "until", "status"} & arguments["filters"].keys()):
            arguments["filters"] = {"plan": plan, "status": "active"}
        parts.append(Part("list", clause, target, arguments, premise if counted else ""))
    return parts


def _metrics(clause: str) -> list[str]:
    found = [m for m, pattern in cues.METRICS.items() if pattern.search(clause)]
    return [m for m in found if not any(other in found for other in cues.IMPLIED_BY.get(m, ()))]


def _premise(clause: str) -> str:
    """The number that the clause states as a fact of the business, as it was written; periods and dates are none."""
    if not _PREMISE.search(clause) and not _PEOPLE_COUNTED.search(clause):
        return ""
    bare = dates.DAY.sub(" ", dates.LAST_N.sub(" ", clause))
    numbers = re.findall(rf"{_NUMBER}(?!\s*(?:days?|weeks?|months?|years?|times?|st|nd|rd|th)\b)", bare)
    return numbers[0] if numbers else ""


def _kpi_arguments(clause: str, metric: str, today: date | None) -> dict[str, Any]:
    """Granularity as the words say, else weeks for counts and months for money; periods only where the words say so."""
    default = "month" if metric in (*cues.MONEY, "churn_rate") else "week"
    unit = dates.asked_unit(clause, dates.granularity(clause, default))
    if unit == "day" and today and (day := dates.asked_day(clause, today)):
        periods = max(1, (today - day).days + 1)
        unit = "day" if periods <= MAX_PERIODS else "month"
        if unit == "month":
            periods = (today.year - day.year) * 12 + today.month - day.month + 1
    else:
        periods = dates.periods(clause, unit, today)
    arguments: dict[str, Any] = {"metric": metric, "granularity": unit}
    return {**arguments, "periods": min(periods, MAX_PERIODS)} if periods else arguments


def _list_arguments(clause: str, target: str, today: date | None) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    lowered = clause.lower()
    if status := _status(clause, target):
        filters["status"] = status
    if plan := _plan(clause):
        filters["plan"] = plan
    if target != "memberships":
        filters.update(dates.since_until(lowered, today))
    if amount := re.search(
        rf"\b(?:over|above|more than|at least|greater than|min(?:imum)?)\s+{_NUMBER}", lowered
    ):
        filters["min_amount"] = float(amount[1].replace(",", ""))
    if search := re.search(
        r"\b(?:named|called)\s+[\"“']?([^\"”'?]+?)[\"”'?]*\s*$|(\S+@\S+\.\w+)", clause, re.IGNORECASE
    ) or (target == "members" and cues.PERSON.search(clause)):
        filters["search"] = next(group for group in search.groups() if group).strip()
    arguments: dict[str, Any] = {"target": target}
    if filters:
        arguments["filters"] = filters
    if limit := re.search(
        r"\b(?:last|latest|top|first|newest|recent)\s+(\d{1,3})\b(?!\s+(?:hour|day|week|month|year))"
        r"|\b(\d{1,3})\s+(?:last|latest|newest|most recent|recent)\b",
        lowered,
    ):
        arguments["limit"] = int(limit[1] or limit[2])
    return arguments


def _status(clause: str, target: str) -> str:
    """The status that a list of members or transactions is asked for."""
    if target not in ("members", "transactions"):
        return ""
    if target == "transactions" and re.search(r"\brefund", clause, re.IGNORECASE):
        return "refunded"
    return next((s for s in cues.STATUSES if re.search(rf"\b{s}\b", clause, re.IGNORECASE)), "")


def _plan(clause: str) -> str:
    named = re.search(
        r"[\"“]([^\"”]+)[\"”](?:\s+(?:plan|membership|tier))?"
        r"|\b(?:on|in|of|to|for|with|from|joined|cancelled|does|do) (?:the |my |our )?"
        r"([A-Z][\w&+-]+(?: [A-Z][\w&+-]*)*?)(?= (?:[Pp]lan|membership|tier)\b|\s*(?:[?.!,;:]|$)| (?:this|last|in|since|have|has|cost"
        r"|did|do|are|were|was|when|now|then)\b)",
        clause,
    ) or re.search(r"(?<=[a-z] )()([A-Z][\w&+-]+(?: [A-Z][\w&+-]*)*) (?:members|subscribers)\b", clause)
    name = (named[1] or named[2]) if named else ""
    return "" if name.lower() in (*cues.MONTHS, *(m[:3] for m in cues.MONTHS)) else name


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
