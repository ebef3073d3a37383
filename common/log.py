"""Log lines: one JSON object a line on standard output, and the names of the events that metrics read.

The formatter is our own because the vendor's parses a message that *is* JSON into the entry's fields, so that a customer could
forge events by writing them. Here a message is always text, and only `emit` writes fields.
"""

from __future__ import annotations

import contextvars
import json
import sys
import traceback
from typing import Any

# The contract with terraform/metrics.tf: event -> the fields it carries. A test holds both sides to this list.
EVENTS: dict[str, tuple[str, ...]] = {
    "tool_results_persisted_total": ("tool_name", "row_count"),
    "tool_results_injection_tokens": ("tokens",),
    "tool_results_retention_deletes_total": ("row_count",),
    "retrieval_events_persisted_total": ("row_count",),
    "wrap_ups_generated_total": ("trigger", "outcome"),
    "wrap_up_cost_usd": ("cost_usd", "model"),
    "llm_cost_usd": ("cost_usd", "task", "model"),
    "turns_total": ("route", "outcome"),
    "route_handovers_total": ("from", "reason"),
    "undated_recall_total": ("count",),
    "turn_latency_ms": ("ms", "route"),
    "time_to_first_token_ms": ("ms", "route"),
    "outbox_oldest_seconds": ("seconds",),
    "events_dead_total": ("event_type",),
    "rollup_seconds": ("seconds",),
    "export_rows_total": ("table", "row_count"),
    "cutover_rows_per_day": ("rows",),
    "site_data_age_hours": ("hours",),
}

# `json.dumps` makes an encoder at each call.
_LINE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, default=str)
_trace: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("trace", default=None)


def set_trace(fields: dict[str, str]) -> None:
    """Attach `logging.googleapis.com/…` trace fields to every later line of this request."""
    _trace.set(fields)


def current_trace() -> dict[str, str]:
    """The trace fields of this request, to hand to a thread that works for it."""
    return _trace.get() or {}


def emit(event: str, *, severity: str = "INFO", **fields: Any) -> None:
    """Write one event line. Fields are numbers, flags and closed sets of names: never what a customer wrote, never an id of theirs."""
    write(event, severity=severity, event=event, **fields)


def write(message: str, *, severity: str = "INFO", **fields: Any) -> None:
    """Write one line whose `message` is our own text."""
    line = {"severity": severity, "message": str(message), **fields, **current_trace()}
    sys.stdout.write(_LINE.encode(line) + "\n")
    sys.stdout.flush()


def write_exception(message: str, exc: BaseException, **fields: Any) -> None:
    """Write an error line with the exception's type and where it was raised, without its text: drivers quote the data they
    failed on, and that is what a customer wrote."""
    frames = traceback.extract_tb(exc.__traceback__)
    where = [f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}" for f in frames[-8:]]
    cause = type(exc.__cause__).__name__ if exc.__cause__ else None
    write(message, severity="ERROR", error_type=type(exc).__name__, cause_type=cause, where=where, **fields)
