"""The cold start of each function, from its first import to an application that can answer, against importing what any of them needs.

    python -m benchmarks.cold_start [--quick | --rounds 9]

The floor is functions-framework, SQLAlchemy and pg8000. Every start is a process of its own; each stands between two floors, and its
ratio is to their mean. CPU time is counted, which on a machine of its own is the time that passes: with the files in memory an import
waits for nothing. Beside it: the sizes of what is deployed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.report import Row
from local import package

FLOOR = "import functions_framework, sqlalchemy, pg8000"
START = "import functions_framework; functions_framework.create_app('main', 'functions/{}/main.py')"
_TIMED = "import time; began = time.process_time(); {}; print(time.process_time() - began)"


def seconds(code: str) -> float:
    """How long a fresh interpreter takes for `code`, its own start not counted."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(code)],
        cwd=package.ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package.ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def functions() -> list[str]:
    """The deployed functions."""
    return sorted(path.parent.name for path in package.ROOT.glob("functions/*/main.py"))


def measure(rounds: int) -> dict[str, list[float]]:
    """The ratios of each function, one a round."""
    found: dict[str, list[float]] = {name: [] for name in functions()}
    for name in found:
        seconds(START.format(name))  # compiles what was never imported
    floors: list[float] = []
    for _ in range(rounds):
        before = seconds(FLOOR)
        for name, ratios in found.items():
            start, after = seconds(START.format(name)), seconds(FLOOR)
            ratios.append(2 * start / (before + after))
            floors.append(after)
            before = after
    print(f"the floor: {statistics.median(floors):.3f} s ({min(floors):.3f} to {max(floors):.3f})")
    return found


def sizes() -> list[Row]:
    """What is deployed: the archives, and what the image holds besides Python."""
    with tempfile.TemporaryDirectory() as folder:
        archives = [package.archive(name, Path(folder)).stat().st_size / 1000 for name in package.FUNCTIONS]
    pinned = package.cloud_requirements((package.ROOT / "requirements.txt").read_text(encoding="utf-8"))
    installed = sum(map(_installed, set(re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE))))
    sources = sum(
        path.stat().st_size
        for part in ("common", "functions", "local", "evals")
        for path in (package.ROOT / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return [
        report.of("the archive of a function that runs from a zip", archives, "kB"),
        Row("requirements in the image, as installed", installed / 1e6, "MB"),
        Row("sources in the image", sources / 1e6, "MB"),
    ]


def _installed(name: str) -> int:
    """Bytes of an installed package, with its compiled modules; 0 for one that this platform does not need."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return 0
    return sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file())


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write for the runner."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="few rounds")
    arguments.add_argument("--rounds", type=int, help="default: 9")
    asked = arguments.parse_args(argv)
    rounds = asked.rounds or (1 if asked.quick else 9)
    rows = [
        report.of(f"cold start of `{name}` against its floor", ratios, "×", "≤ 1.5")
        for name, ratios in measure(rounds).items()
    ]
    report.publish([*rows, *sizes()], asked.json)


if __name__ == "__main__":
    main()
