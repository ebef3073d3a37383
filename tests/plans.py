"""What a statement reads under the plan that serves any values (`db.ONE_PLAN`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection


def rows_read(
    connection: Connection, statement: sa.TextualSelect, values: Mapping[str, Any], relation: str
) -> float:
    """How many rows of `relation` it looks at, those that a filter drops included. It is carried out."""
    compiled = statement.compile(dialect=connection.dialect)
    numbers = itertools.count(1)
    connection.exec_driver_sql(
        f"prepare explained as {re.sub('%s', lambda _: f'${next(numbers)}', str(compiled))}"
    )
    given = [values.get(name) for name in compiled.positiontup or ()]
    literals = ", ".join("null" if value is None else f"'{value}'" for value in given)
    plan = connection.exec_driver_sql(
        f"explain (analyze, format json) execute explained({literals})"
    ).scalar_one()
    connection.exec_driver_sql("deallocate explained")
    return _rows(plan[0]["Plan"], relation)


def _rows(node: dict[str, Any], relation: str) -> float:
    below = sum(_rows(one, relation) for one in node.get("Plans", []))
    if node.get("Relation Name") != relation:
        return below
    return float(below + (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
