"""CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from flask import Request, Response

# A spreadsheet runs a cell that begins so; a title is whatever an author wrote.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def wants_csv(request: Request) -> bool:
    """Whether `?format=csv` or the Accept header asks for it."""
    if "format" in request.args:
        return request.args["format"] == "csv"
    return request.accept_mimetypes.best_match(["application/json", "text/csv"]) == "text/csv"


def csv_response(name: str, rows: Sequence[Mapping[str, Any]]) -> Response:
    """`rows`, which have the same keys, as a file of that name."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    if rows:
        writer.writerow(rows[0].keys())
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    response = Response(out.getvalue(), mimetype="text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return response


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
