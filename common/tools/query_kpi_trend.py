"""The tool `query_kpi_trend`: one metric of the site over the last days, weeks or months."""

from __future__ import annotations

from datetime import date
from typing import Any

from pydantic import ConfigDict, Field

from common.shapes import Shape
from common.sites import money
from common.sites.freshness import NO_IMPORT, NO_SITE, freshness
from common.sites.metrics import DEFINITIONS, LEVELS, Granularity, Metric, Point, Series, trend
from common.tools.types import Tool, ToolContext, ToolMistake, ToolOutput


class Arguments(Shape):
    model_config = ConfigDict(extra="forbid")

    metric: Metric = Field(description="What to measure")
    granularity: Granularity = Field(
        default="week", description="Length of a period; weeks begin on Monday, all in the site's time zone"
    )
    periods: int = Field(
        default=8, ge=1, le=120, description="How many periods, the last being the current one"
    )


DESCRIPTION = "\n".join(
    [
        "A metric of the user's site over the last days, weeks or months, oldest first, with the change over that time.",
        "Periods are in the site's time zone. The last one contains `as_of`, the moment up to which the imported data reaches; it is "
        "marked partial where the data does not reach its end, and then not compared. Sums of money are never mixed: there is a series "
        "for each currency, in major units.",
        *(f"- {name}: {meaning}" for name, meaning in DEFINITIONS.items()),
    ]
)


def query_kpi_trend(context: ToolContext, arguments: Arguments) -> ToolOutput:
    """The metric's series. Raises ToolMistake where there is no site or nothing was imported."""
    site = context.site
    if site is None:
        raise ToolMistake(NO_SITE)
    if site.data_as_of is None:
        raise ToolMistake(NO_IMPORT)
    found = trend(
        context.connection,
        arguments.metric,
        arguments.granularity,
        arguments.periods,
        user_id=context.user_id,
        site_id=site.id,
        currency=site.currency,
        timezone=site.timezone,
        as_of=site.data_as_of,
    )
    data = {
        "metric": arguments.metric,
        "definition": DEFINITIONS[arguments.metric],
        "granularity": arguments.granularity,
        **freshness(site.data_as_of, context.now, site.timezone),
        "series": [_told(series, arguments.metric) for series in found],
    }
    return ToolOutput(data, site.data_as_of)


def _told(series: Series, metric: Metric) -> dict[str, Any]:
    currency = series.currency

    def number(point: Point) -> float | int | None:
        if point.value is None:
            return None
        if currency is not None:
            return money.to_major(point.value, currency)
        return round(float(point.value), 2) if metric == "churn_rate" else int(point.value)

    points = [
        {"from": p.first_day.isoformat(), "to": p.last_day.isoformat(), "value": number(p)}
        | ({"partial": True} if p.partial else {})
        for p in series.points
    ]
    comparable = [p for p in points if metric in LEVELS or not p.get("partial")] or points
    told: dict[str, Any] = {
        "unit": currency or ("percent" if metric == "churn_rate" else "members"),
        "latest": comparable[-1],
        "change": _change(comparable[0]["value"], comparable[-1]["value"], points=metric == "churn_rate"),
        "compared_periods": len(comparable),
        "points": points,
    }
    return told if currency is None else {"currency": currency, **told}


def _change(first: Any, last: Any, *, points: bool) -> str | None:
    """'+12%'; percentages change by points. None where there is nothing to compare with."""
    if first is None or last is None:
        return None
    if points:
        return f"{round(last - first, 1) + 0.0:+.1f} points"
    return f"{round(100 * (last - first) / first):+d}%" if first else None


def signals(arguments: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """`trend` and `latest`, as text, of the first series: the site's own currency."""
    series = data["series"][0]
    span, latest = series["compared_periods"] - 1, series["latest"]
    trend_text = f"{span}-{data['granularity']} trend, {series['change'] or 'no base to compare with'}"
    value = _written(latest["value"], series["unit"]) + (
        " so far" if latest.get("partial") and data["metric"] not in LEVELS else ""
    )
    return {"trend": trend_text if span else f"1 {data['granularity']}", "latest": value}


def _written(value: Any, unit: str) -> str:
    if value is None:
        return "undefined"
    if unit == "members":
        return f"{value:,} member{'' if value == 1 else 's'}"
    return f"{value:.1f}%" if unit == "percent" else f"{unit} {value:,.{money.digits(unit)}f}"


def summarise(new: dict[str, Any], old: dict[str, Any] | None, old_day: date | None) -> str:
    """'7-week trend, +12%, latest 128 members (was 114 on 2026-05-01)'."""
    line = f"{new['trend']}, latest {new['latest']}"
    if old and old_day and old.get("latest") != new["latest"]:
        before = str(old.get("latest")).removesuffix(" members").removesuffix(" member")
        line += f" (was {before} on {old_day.isoformat()})"
    return line


TOOL = Tool(
    name="query_kpi_trend",
    description=DESCRIPTION,
    arguments=Arguments,
    handler=query_kpi_trend,
    signals=signals,
    summarise=summarise,
    row_lists=("series",),
)
