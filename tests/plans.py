"""What an executed plan (`explain (analyze, format json)`) has read."""

from __future__ import annotations

from typing import Any


def rows_read(node: dict[str, Any], relation: str) -> float:
    """How many rows of `relation` it has looked at, those that a filter dropped included."""
    below = sum(rows_read(one, relation) for one in node.get("Plans", []))
    if node.get("Relation Name") != relation:
        return below
    return float(below + (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
