"""The admin's page: one document without scripts, its pictures and its style within it."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from common.knowledge.performance import FINDINGS
from functions.admin import charts

FOLDER = Path(__file__).parent


@functools.cache
def _style() -> str:
    return (FOLDER / "page.css").read_text()


def content_security_policy() -> str:
    """What the page may do: show its pictures and use its one style, known by its hash."""
    style = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


@functools.cache
def _template() -> Any:
    return Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
    ).get_template("page.html")


def render(report: dict[str, Any], assessment: dict[str, Any], cutover: dict[str, Any], days: int) -> str:
    """The page for a usage report, the triggers' last assessment and the cutover's status."""
    page: str = _template().render(
        style=_style(),
        report=report,
        assessment=assessment,
        cutover=cutover,
        days=days,
        findings=FINDINGS,
        funnel=charts.FUNNEL,
        pictures={
            "funnel": charts.funnel(report["totals"]),
            "findings": charts.findings(report["findings"]),
            "trend": charts.trend(report["trend"]),
        },
    )
    return page
