"""Cloud Logging's side of the log lines: the entry that it makes of a line, the filters of the metrics, and what a metric extracts.

The filters' language is read as far as ours use it (comparisons joined by AND, OR and brackets); anything else is a ValueError, so that a
filter which says more cannot pass for one that matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.contract.terraform_source import local, resource

Entry = dict[str, Any]
Filter = Callable[[Entry], bool]

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(>=|=)|([()])|([A-Za-z_][\w.]*))')


def read_entry(line: str, function: str) -> Entry:
    """The entry that Cloud Logging makes of a line which `function` wrote: special fields become the entry's own, the rest its payload."""
    fields = json.loads(line)
    entry: Entry = {
        "severity": fields.pop("severity"),
        "resource": {
            "type": "cloud_run_revision",
            "labels": {"service_name": function.replace("_", "-")},
        },
        "jsonPayload": {k: v for k, v in fields.items() if not k.startswith("logging.googleapis.com/")},
    }
    if trace := fields.get("logging.googleapis.com/trace"):
        entry["trace"] = trace
    return entry


def field(entry: Entry, path: str) -> Any:
    """The value at `path`, None where there is none."""
    found: Any = entry
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def read_filter(text: str) -> Filter:
    """The filter that `text` writes."""
    position, tokens = 0, []
    while text[position:].strip():
        if not (found := _TOKEN.match(text, position)):
            raise ValueError(f"not understood from here: {text[position:]}")
        tokens.append(found.group().strip())
        position = found.end()
    reading = _Reading(tokens)
    wanted = reading.all_of()
    if reading.tokens:
        raise ValueError(f"not understood: {reading.tokens}")
    return wanted


@dataclass
class _Reading:
    """The tokens that are left to read. OR binds closer than AND, other than in most languages."""

    tokens: list[str]

    def all_of(self) -> Filter:
        parts = list(self._joined("AND", self._any_of))
        return lambda entry: all(part(entry) for part in parts)

    def _any_of(self) -> Filter:
        parts = list(self._joined("OR", self._one))
        return lambda entry: any(part(entry) for part in parts)

    def _joined(self, word: str, read: Callable[[], Any]) -> Iterator[Any]:
        yield read()
        while self.tokens and self.tokens[0] == word:
            self._take()
            yield read()

    def _one(self) -> Filter:
        if self.tokens and self.tokens[0] == "(":
            return self._within(self.all_of)
        path, operator = self._take(), self._take()
        if operator not in ("=", ">="):
            raise ValueError(f"no operator of ours: {operator}")
        values = self._values()
        return lambda entry: any(_compare(path, operator, field(entry, path), value) for value in values)

    def _values(self) -> list[str]:
        """One value, or several in brackets of which any will do."""
        if self.tokens and self.tokens[0] == "(":
            return list(self._within(lambda: list(self._joined("OR", self._value))))
        return [self._value()]

    def _value(self) -> str:
        token = self._take()
        return str(json.loads(token)) if token.startswith('"') else token

    def _within(self, read: Callable[[], Any]) -> Any:
        self._take()
        found = read()
        if self._take() != ")":
            raise ValueError("a bracket is not closed")
        return found

    def _take(self) -> str:
        if not self.tokens:
            raise ValueError("the filter ends too early")
        return self.tokens.pop(0)


def _compare(path: str, operator: str, found: Any, wanted: str) -> bool:
    if found is None:
        return False
    if operator == ">=":
        if path == "timestamp":
            return datetime.fromisoformat(found) >= datetime.fromisoformat(wanted)
        if path != "severity":
            raise ValueError(f"no order of {path}")
        return SEVERITIES.index(found) >= SEVERITIES.index(wanted)
    return str(found).casefold() == wanted.casefold()


@dataclass(frozen=True)
class Metric:
    """A metric of terraform/metrics.tf. Without `value` it counts entries, with one it is the distribution of that field."""

    name: str
    filter: str
    value: str | None
    labels: tuple[str, ...]

    def matching(self, entries: list[Entry]) -> list[Entry]:
        """The entries that the metric is made of."""
        wanted = read_filter(self.filter)
        return [entry for entry in entries if wanted(entry)]

    def number(self, entry: Entry) -> float:
        """What the value's extractor gives. ValueError for what Cloud Logging would pass over in silence."""
        found = field(entry, f"jsonPayload.{self.value}")
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError(f"{self.name}: {self.value} is {found!r}")
        return float(found)

    def label(self, entry: Entry, name: str) -> str:
        """What a label's extractor gives. ValueError for what would be an empty label."""
        found = field(entry, f"jsonPayload.{name}")
        if not (isinstance(found, str) and found):
            raise ValueError(f"{self.name}: {name} is {found!r}")
        return found


def metrics() -> list[Metric]:
    """Every metric, as Terraform would make it; test_plan compares it with a plan."""
    template = resource("google_logging_metric", "this")["filter"]
    made = []
    for name, metric in local("metrics").items():
        filter_ = template.replace("${try(each.value.event, each.key)}", metric.get("event", name))
        made.append(Metric(name, filter_, metric.get("value"), tuple(metric.get("labels", ()))))
    return made
