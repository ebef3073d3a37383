"""The report's pictures: SVG made on the server by pygal, shown as images, so that the page needs no script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

_SIZE = {"width": 720, "height": 280}
FUNNEL = ("retrieved", "surfaced", "cited", "helpful")


def funnel(totals: Mapping[str, int]) -> str:
    """How many candidates took each step of the funnel, as an image's address."""
    chart = _pygal().HorizontalBar(**_options(), show_legend=False)
    chart.x_labels = list(reversed(FUNNEL))  # bars are drawn from the bottom up
    chart.add("candidates", [totals[name] for name in reversed(FUNNEL)])
    return _address(chart)


def findings(counts: dict[str, int]) -> str:
    """How many entries there are of each finding, as an image's address."""
    chart = _pygal().HorizontalBar(**_options(), show_legend=False)
    chart.x_labels = [name.replace("_", " ") for name in reversed(counts)]
    chart.add("entries", [counts[name] for name in reversed(counts)])
    return _address(chart)


def trend(days: Sequence[Mapping[str, Any]]) -> str:
    """The funnel's four counts by day, as an image's address."""
    chart = _pygal().Line(**_options(), x_labels_major_count=8, show_minor_x_labels=False)
    chart.x_labels = [day["day"].isoformat() for day in days]
    for name in FUNNEL:
        chart.add(name, [day[name] for day in days])
    return _address(chart)


def _pygal() -> Any:
    import pygal

    return pygal


def _options() -> dict[str, Any]:
    from pygal.style import DefaultStyle

    # Not its usual fonts and scripts: those come from elsewhere.
    return {**_SIZE, "js": (), "style": DefaultStyle(font_family="sans-serif"), "print_values": True}


def _address(chart: Any) -> str:
    root = chart.render_tree()
    for parent in list(root.iter()):
        for child in [c for c in parent if str(c.tag).endswith("script")]:
            parent.remove(child)
    return "data:image/svg+xml;base64," + base64.b64encode(ElementTree.tostring(root)).decode()
