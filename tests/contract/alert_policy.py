"""What the monitoring API would refuse of an alert or a chart, or take and never evaluate: more rules over a plan's JSON.

From the API's own descriptions: a distribution has no sum that a threshold could be set on, only percentiles, or `_sum` in PromQL; a window
is whole minutes and, with the duration, 25 hours at most; data that stay away are judged only where the condition says how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.contract.plan_policy import Plan, resources

_LONGEST_SECONDS = 25 * 3600
_ABSENT_SECONDS = int(23.5 * 3600)
_UNITS = {"m": 60, "h": 3600, "d": 86400}


def unevaluable_thresholds(plan: Plan) -> list[str]:
    """Which threshold is set on what cannot be one number, on no metric of ours, or on a window that is refused."""
    kinds = {name: kind for name, (kind, _) in _metrics(plan).items()}
    wrong = []
    for alert, condition in _conditions(plan, "condition_threshold"):
        (window,) = condition["aggregations"]
        named = re.findall(r'metric\.type="logging\.googleapis\.com/user/(\w+)"', condition["filter"])
        aligner, reducer = window["per_series_aligner"], window["cross_series_reducer"] or ""
        seconds, duration = _seconds(window["alignment_period"]), _seconds(condition["duration"])
        waits_for_data = condition["evaluation_missing_data"] == "EVALUATION_MISSING_DATA_ACTIVE"
        checks = {
            "watches a metric that is not there": set(named) <= set(kinds),
            "has a window of broken minutes": seconds % 60 == 0 and seconds >= 60,
            "looks back too far": seconds + duration <= _LONGEST_SECONDS,
            "is quiet when nothing is logged": condition["comparison"] != "COMPARISON_LT" or waits_for_data,
            "cannot judge that data stay away": not waits_for_data or duration >= 60,
        }
        for name in named:
            checks[f"makes no number of {name}"] = _is_number(kinds.get(name), aligner, reducer)
        wrong += [f"{alert} {fault}" for fault, good in checks.items() if not good]
    wrong += [
        f"{alert} waits for longer than absence is watched"
        for alert, condition in _conditions(plan, "condition_absent")
        if _seconds(condition["duration"]) > _ABSENT_SECONDS
    ]
    return wrong


def unevaluable_queries(plan: Plan) -> list[str]:
    """Which query of an alert or a chart names a metric, a suffix or a label that the metric does not have, or looks back too far."""
    known = _metrics(plan)
    wrong = []
    for where, query, is_alert in _queries(plan):
        for name, labels in re.findall(r"logging_googleapis_com:user_(\w+)\{([^}]*)\}", query):
            bare = re.sub(r"_(sum|count|bucket)$", "", name) if name not in known else name
            kind, carried = known.get(bare, ("", set()))
            if kind == "" or (kind == "DISTRIBUTION") == (bare == name):
                wrong.append(f"{where} reads {name}, which is no series")
            if 'monitored_resource="cloud_run_revision"' not in labels:
                wrong.append(f"{where} does not say of which resource it reads {name}")
            if not set(re.findall(r"(\w+)[=!]", labels)) - {"monitored_resource"} <= carried:
                wrong.append(f"{where} selects by a label that {name} does not have")
        spans = [int(n) * _UNITS[unit] for n, unit in re.findall(r"\[(\d+)([mhd])\]", query)]
        if is_alert and max(spans, default=0) + 300 > _LONGEST_SECONDS:
            wrong.append(f"{where} looks back too far")
        if is_alert and not re.search(r" [<>] [\d.]+", query):
            wrong.append(f"{where} compares with nothing")
    return wrong


def silent_alerts(plan: Plan) -> list[str]:
    """Which alert tells nobody, does not say what to do, or would send a notice for each line of a log."""
    wrong = []
    for address, values in resources(plan, "google_monitoring_alert_policy"):
        (says,) = values["documentation"]
        limits = values["alert_strategy"][0]["notification_rate_limit"]
        reads_lines = any(condition["condition_matched_log"] for condition in values["conditions"])
        checks = {
            "tells nobody": bool(values["notification_channels"]),
            "does not say what to do": f'"Alert: {values["display_name"]}"' in says["content"],
            "has no condition": bool(values["conditions"]),
            "sends a notice for each line": bool(limits) or not reads_lines,
        }
        wrong += [f"{address} {fault}" for fault, good in checks.items() if not good]
    return wrong


RULES = (unevaluable_thresholds, unevaluable_queries, silent_alerts)


def _is_number(kind: str | None, aligner: str, reducer: str) -> bool:
    """Whether aligning and reducing make one number. A distribution becomes one by a percentile, at either step and no other way."""
    by_aligner, by_reducer = "PERCENTILE" in aligner, "PERCENTILE" in reducer
    if kind == "DISTRIBUTION":
        if by_aligner:
            return not by_reducer
        return aligner in ("ALIGN_DELTA", "ALIGN_SUM") and by_reducer
    return aligner in ("ALIGN_DELTA", "ALIGN_RATE", "ALIGN_SUM") and not by_reducer


def _metrics(plan: Plan) -> dict[str, tuple[str, set[str]]]:
    """Metric → its kind and its labels."""
    return {
        values["name"]: (values["metric_descriptor"][0]["value_type"], set(values["label_extractors"] or ()))
        for _, values in resources(plan, "google_logging_metric")
    }


def _conditions(plan: Plan, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for address, values in resources(plan, "google_monitoring_alert_policy"):
        for condition in values["conditions"]:
            for body in condition[kind]:
                yield address, body


def _queries(plan: Plan) -> Iterator[tuple[str, str, bool]]:
    """Every PromQL query: where it stands, its text, whether it is an alert's."""
    for address, body in _conditions(plan, "condition_prometheus_query_language"):
        yield address, body["query"], True
    for address, values in resources(plan, "google_monitoring_dashboard"):
        for query in re.findall(
            r'"prometheusQuery": ("(?:[^"\\]|\\.)*")', json.dumps(json.loads(values["dashboard_json"]))
        ):
            yield address, json.loads(query), False


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))
