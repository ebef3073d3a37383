"""Sentences from what a tool returned. Only numbers, names and dates are read from a result; no text in it is obeyed."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

from common.llm.offline import cues
from common.text import one_line

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


def kpi_sentences(metric: str, data: dict[str, Any], premise: str, day: date | None = None) -> str:
    """Of each series (one a currency) the last value and the way it came, or the value of the period that holds `day`; a correction
    where the question assumed another number."""
    label = cues.LABELS.get(metric, metric.replace("_", " "))
    told = [s for s in data.get("series") or [] if isinstance(s, dict) and _known(s)]
    if not told or (day and not any(_holding(series, day) for series in told)):
        when = f"{day}: the data reaches to {str(data.get('as_of') or '')[:10]}" if day else "that"
        return f"There is no {label} data for {when}" + ("." if day else f" ({as_of(data)}).")
    sentences = [
        _series(series, metric, label, data, premise if n == 0 else "", day) for n, series in enumerate(told)
    ]
    return " ".join(s for s in sentences if s) + stale_note(data)


def _series(
    series: dict[str, Any], metric: str, label: str, data: dict[str, Any], premise: str, day: date | None
) -> str:
    known, unit = _known(series), str(series.get("unit") or "")
    last = _holding(series, day) if day else known[-1]
    if last is None:
        return ""
    so_far = " so far" if last.get("partial") and metric in cues.FLOWS else ""
    value = _amount(last["value"], unit)
    text = f"{label[:1].upper()}{label[1:]}: {value}{so_far} ({_period(last)}), {as_of(data)}."
    if premise and not _same(premise, last["value"]):
        text = f"You mention {premise}; the figure {'was' if day else 'is now'} {value}. {text}"
    return text if day else text + _way(known, unit, metric, series.get("change"))


def _way(known: list[dict[str, Any]], unit: str, metric: str, change: Any) -> str:
    """How the value came about. What adds up is compared over whole periods: the running one is not over."""
    if len(known) < 2:
        return ""
    way = ", ".join(f"{point['from']} {_amount(point['value'], unit)}" for point in known[-MAX_POINTS:])
    whole = [p for p in known if not p.get("partial")] if metric in cues.FLOWS else known
    if len(whole) < 2:
        return f" By period: {way}."
    first, last = _amount(whole[0]["value"], unit), _amount(whole[-1]["value"], unit)
    periods = f"{len(whole)} whole periods" if len(whole) < len(known) else f"{len(known)} periods"
    text = f" Over {periods} it went from {first} to {last}{f' ({change})' if change else ''}: {way}."
    if len(known) > 2 and metric in cues.FLOWS:
        text += f" In all: {_amount(sum((Decimal(str(p['value'])) for p in known), Decimal()), unit)}."
    return text


def _holding(series: dict[str, Any], day: date) -> dict[str, Any] | None:
    """The period that `day` lies in."""
    wanted = day.isoformat()
    return next((p for p in _known(series) if str(p.get("from")) <= wanted <= str(p.get("to"))), None)


def _known(series: dict[str, Any]) -> list[dict[str, Any]]:
    return [p for p in series.get("points") or [] if isinstance(p, dict) and p.get("value") is not None]


def _period(point: dict[str, Any]) -> str:
    first, last = point.get("from"), point.get("to")
    return str(first) if first == last else f"{first} to {last}"


def list_sentences(target: str, data: dict[str, Any], premise: str = "") -> str:
    """How many there are and the rows, one a line; a correction where the question assumed another number."""
    rows = rows_of(data)
    total = next(
        (data[k] for k in ("total", "count", "total_count", "row_count") if isinstance(data.get(k), int)),
        len(rows),
    )
    label = cues.LABELS.get(target, target.replace("_", " "))
    assumed = f"You mention {premise}; it is now {total}. " if premise and not _same(premise, total) else ""
    if not rows:
        return f"{assumed}I found no {label} for that, {as_of(data)}.{stale_note(data)}"
    shown = rows[:MAX_ROWS]
    head = f"{total} {label.removesuffix('s') if total == 1 else label}, {as_of(data)}" + (
        f" (the first {len(shown)})" if int(total) > len(shown) else ""
    )
    return assumed + head + ":\n" + "\n".join(f"- {_row(row)}" for row in shown) + stale_note(data)


def rows_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The result's rows: its longest list of objects."""
    lists = [v for v in data.values() if isinstance(v, list) and all(isinstance(r, dict) for r in v)]
    return max(lists, key=len, default=[])


def _amount(value: Any, unit: str) -> str:
    """The value as the result gives it, so that it can be found again, with its unit."""
    if unit == "percent":
        return f"{value}%"
    return f"{value}" if unit in ("", "members") else f"{value} {unit}"


def _number(value: Any) -> float | None:
    try:
        return float(str(value).replace(",", "").strip("$€£% "))
    except ValueError:
        return None


def _same(premise: str, value: Any) -> bool:
    return _number(premise) == _number(value)


def _row(row: dict[str, Any]) -> str:
    head_key = next((k for k in _HEADS if row.get(k) not in (None, "")), "")
    rest = [
        f"{key.replace('_', ' ')} {one_line(str(value), 60)}"
        for key, value in row.items()
        if key != head_key and key not in _META and not isinstance(value, dict | list) and value is not None
    ]
    head = one_line(str(row[head_key]), 80) if head_key else ""
    return f"{head}: {', '.join(rest)}" if head and rest else head or ", ".join(rest)
