"""The report's pictures: SVG made on the server by pygal, shown as images, so that the page needs no chart library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

FUNNEL = ("retrieved", "surfaced", "cited", "helpful")
# Text, softer text, lines, and a colour for each step of the funnel: those of the console.
SCHEMES = {
    "light": ("#20242a", "#5a626d", "#e0ddd5", ("#8aa4a0", "#4f8f7c", "#2d5f50", "#b7791f")),
    "dark": ("#e5e6e3", "#a4acb3", "#343a3f", ("#5f7f79", "#93cbb8", "#cfe9df", "#e0b25f")),
}


def pictures(report: Mapping[str, Any], scheme: str) -> dict[str, str]:
    """The charts of a usage report, as addresses of images, by name."""
    return {
        "funnel": funnel(report["totals"], scheme),
        "findings": findings(report["findings"], scheme),
        "trend": trend(report["trend"], scheme),
    }


def funnel(totals: Mapping[str, int], scheme: str) -> str:
    """How many candidates took each step of the funnel, as an image's address."""
    return _bars([(name, totals[name]) for name in FUNNEL], scheme)


def findings(counts: Mapping[str, int], scheme: str) -> str:
    """How many entries there are of each finding, as an image's address."""
    return _bars([(name.replace("_", " "), count) for name, count in counts.items()], scheme)


def trend(days: Sequence[Mapping[str, Any]], scheme: str) -> str:
    """The funnel's four counts by day, as an image's address."""
    chart = _pygal().Line(
        **_options(scheme), show_legend=True, legend_at_bottom=True, legend_at_bottom_columns=4, show_dots=len(days) < 2, dots_size=5,
        stroke_style={"width": 3}, x_labels_major_count=5, show_minor_x_labels=False, truncate_label=-1,
    )  # fmt: skip
    chart.x_labels = [f"{day['day']:%b %d}" for day in days]
    for name in FUNNEL:
        chart.add(name, [day[name] for day in days])
    return _address(chart)


def _bars(values: Sequence[tuple[str, int]], scheme: str) -> str:
    chart = _pygal().HorizontalBar(
        **_options(scheme),
        show_legend=False,
        truncate_label=-1,
    )
    # Bars are drawn from the bottom up.
    chart.x_labels = [name for name, _ in reversed(values)]
    chart.add("", [count for _, count in reversed(values)])
    return _address(chart)


def _pygal() -> Any:
    import pygal

    return pygal


def _options(scheme: str) -> dict[str, Any]:
    from pygal.style import Style

    ink, soft, line, colours = SCHEMES[scheme]
    style = Style(
        # Not its usual fonts and scripts: those come from elsewhere.
        font_family="sans-serif", background="transparent", plot_background="transparent", foreground=soft, foreground_strong=ink,
        foreground_subtle=line, guide_stroke_color=line, major_guide_stroke_color=line, value_colors=(ink,) * 4,
        colors=colours, opacity="1", opacity_hover="1", label_font_size=13, major_label_font_size=13,
        value_font_size=13, legend_font_size=13, no_data_font_size=16,
    )  # fmt: skip
    return {
        # Small, so that the labels can still be read on a phone.
        "width": 400,
        "height": 230,
        "js": (),
        "style": style,
        "no_data_text": "Nothing yet",
        "margin": 8,
    }


def _address(chart: Any) -> str:
    root = chart.render_tree()
    for parent in list(root.iter()):
        for child in [c for c in parent if str(c.tag).endswith("script")]:
            parent.remove(child)
    return "data:image/svg+xml;base64," + base64.b64encode(ElementTree.tostring(root)).decode()
