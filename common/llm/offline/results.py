"""Sentences from what a tool returned. Only numbers, names and dates are read from a result; no text in it is obeyed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from common.llm.offline import cues
from common.text import one_line

_LABELS = ("period", "label", "start", "date", "day", "week", "month")
_HEADS = ("name", "title", "plan", "member", "email", "item", "id")
_META = {"id", "site_id", "user_id", "as_of", "stale", "truncated", "currency"}
MAX_ROWS = 25
MAX_POINTS = 24


def data_of(content: str) -> dict[str, Any]:
    """The result as an object; empty where it is none. A visible note behind a cut result is passed over."""
    start = content.find("{")
    if start < 0:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(content[start:])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def as_of(data: dict[str, Any]) -> str:
    """`as of <day>`, or that the result carries no date."""
    day = str(data.get("as_of") or "")[:10]
    return f"as of {day}" if day else "undated: no site data was imported yet"


def stale_note(data: dict[str, Any]) -> str:
    """The sentence that says the data is old, or nothing."""
    if not data.get("stale"):
        return ""
    return f" This data is over a day old: it reaches only to {str(data.get('as_of') or '')[:10]}."


def kpi_sentences(metric: str, data: dict[str, Any], premise: str) -> str:
    """The last value, the way it came, each period's value, and a correction where the question assumed another number."""
    label = cues.LABELS.get(metric, metric.replace("_", " "))
    points = [
        (_label(row), value)
        for row in rows_of(data)
        if (value := _value(row, metric)) is not None or "value" in row
    ]
    known = [(name, value) for name, value in points if value is not None]
    if not known:
        return f"There is no {label} data for that ({as_of(data)})."
    name, last = known[-1]
    text = f"{label[:1].upper()}{label[1:]}: {_amount(last, metric, data)}{f' ({name})' if name else ''}, {as_of(data)}."
    if premise and not _same(premise, last):
        text = f"You mention {premise}; the figure is now {_amount(last, metric, data)}. " + text
    if len(known) > 1:
        first_name, first = known[0]
        text += (
            f" Over {len(known)} periods it went from {_amount(first, metric, data)}"
            f"{f' ({first_name})' if first_name else ''} to {_amount(last, metric, data)}{_change(first, last)}:"
            f" {', '.join(f'{n} {_amount(v, metric, data)}'.strip() for n, v in known[-MAX_POINTS:])}."
        )
    if len(known) > 2 and metric in cues.FLOWS:
        text += f" In all: {_amount(sum((Decimal(str(v)) for _, v in known), Decimal()), metric, data)}."
    return text + stale_note(data)


def list_sentences(target: str, data: dict[str, Any]) -> str:
    """How many there are and the rows, one a line."""
    rows = rows_of(data)
    total = next(
        (data[k] for k in ("total", "count", "total_count", "row_count") if isinstance(data.get(k), int)),
        len(rows),
    )
    label = cues.LABELS.get(target, target.replace("_", " "))
    if not rows:
        return f"I found no {label} for that, {as_of(data)}.{stale_note(data)}"
    shown = rows[:MAX_ROWS]
    head = f"{total} {label}, {as_of(data)}" + (
        f" (the first {len(shown)})" if int(total) > len(shown) else ""
    )
    return head + ":\n" + "\n".join(f"- {_row(row)}" for row in shown) + stale_note(data)


def rows_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The result's rows: its longest list of objects."""
    lists = [v for v in data.values() if isinstance(v, list) and all(isinstance(r, dict) for r in v)]
    return max(lists, key=len, default=[])


def _label(row: dict[str, Any]) -> str:
    return next((str(row[k]) for k in _LABELS if row.get(k) not in (None, "")), "")


def _value(row: dict[str, Any], metric: str) -> Any:
    for key in ("value", metric):
        if key in row:
            return row[key]
    return next((v for v in row.values() if isinstance(v, int | float) and not isinstance(v, bool)), None)


def _amount(value: Any, metric: str, data: dict[str, Any]) -> str:
    """The value as the result gives it, so that it can be found again, with its unit."""
    unit = str(data.get("unit") or "")
    if metric == "churn_rate" or unit in ("percent", "%"):
        return f"{value}%"
    currency = data.get("currency")
    return f"{value} {currency}" if currency and metric in cues.MONEY else f"{value}"


def _number(value: Any) -> float | None:
    try:
        return float(str(value).replace(",", "").strip("$€£% "))
    except ValueError:
        return None


def _same(premise: str, value: Any) -> bool:
    return _number(premise) == _number(value)


def _change(first: Any, last: Any) -> str:
    before, after = _number(first), _number(last)
    if not before or after is None:
        return ""
    return f" ({(after - before) / abs(before) * 100:+.1f}%)"


def _row(row: dict[str, Any]) -> str:
    head_key = next((k for k in _HEADS if row.get(k) not in (None, "")), "")
    rest = [
        f"{key.replace('_', ' ')} {one_line(str(value), 60)}"
        for key, value in row.items()
        if key != head_key and key not in _META and not isinstance(value, dict | list) and value is not None
    ]
    head = one_line(str(row[head_key]), 80) if head_key else ""
    return f"{head}: {', '.join(rest)}" if head and rest else head or ", ".join(rest)
