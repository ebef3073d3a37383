"""What a benchmark found, as rows that a person reads and the runner collects.

A benchmark is a module with `main(argv)` and the arguments of its sizes; it ends with `publish(rows, arguments.json)`. Whether a figure
is good enough is read from its target alone, so that the two cannot disagree.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_RELATIONS = {"≤": float.__le__, "≥": float.__ge__, "<": float.__lt__, ">": float.__gt__}


@dataclass(frozen=True)
class Row:
    """One figure. `target` is a relation and a number ("≤ 1.5"), or empty where a figure is only reported; `spread` is the lowest
    and highest of the rounds that `value` is the median of."""

    name: str
    value: float
    unit: str
    target: str = ""
    spread: tuple[float, float] | None = None

    @property
    def ok(self) -> bool | None:
        """Whether the target is reached; None without one. Raises KeyError and ValueError for a target that is none."""
        if not self.target:
            return None
        relation, bound = self.target.split()
        return bool(_RELATIONS[relation](float(self.value), float(bound)))

    @property
    def figure(self) -> str:
        """The value with its spread and unit."""
        spread = f" ({number(self.spread[0])} to {number(self.spread[1])})" if self.spread else ""
        return f"{number(self.value)}{spread} {self.unit}".rstrip()

    @property
    def verdict(self) -> str:
        """The target's outcome in a word."""
        return {True: "reached", False: "missed", None: ""}[self.ok]


def of(name: str, values: Sequence[float], unit: str, target: str = "") -> Row:
    """The median of rounds, with their spread."""
    return Row(name, statistics.median(values), unit, target, (min(values), max(values)))


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every benchmark has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    return made


def publish(rows: Iterable[Row], file: Path | None = None) -> None:
    """Print a line a row; write them to `file` for the runner."""
    found = list(rows)
    for row in found:
        target = f"   (wanted: {row.target}, {row.verdict})" if row.target else ""
        print(f"{row.name}: {row.figure}{target}", flush=True)
    if file is not None:
        file.write_text(json.dumps([asdict(row) for row in found], ensure_ascii=False), encoding="utf-8")


def read(file: Path) -> list[Row]:
    """The rows that `publish` wrote."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [Row(**{**row, "spread": row["spread"] and tuple(row["spread"])}) for row in rows]


def number(value: float) -> str:
    """A figure with the digits that matter: three, and none behind the point from 100 on."""
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
