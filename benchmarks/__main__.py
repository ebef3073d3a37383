"""Runs the benchmarks one after the other, each in a process of its own, and keeps their figures in `RESULTS.md`.

    python -m benchmarks [--quick] [--locomo DIR] [NAME…]

`--quick` measures less and writes nothing: its figures tell whether a benchmark works, not how fast the system is.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report, results
from benchmarks.report import Row


@dataclass(frozen=True)
class Benchmark:
    """A module of this package with the arguments of its full run. Each knows `--quick` and `--json FILE`."""

    name: str
    arguments: str = ""

    def command(self, *, quick: bool) -> list[str]:
        """How to run it by hand."""
        return [
            "-m",
            f"benchmarks.{self.name}",
            *shlex.split(self.arguments),
            *(["--quick"] if quick else []),
        ]


SUITE = (
    Benchmark("turn"),
    Benchmark("cold_start"),
    Benchmark("first_token"),
    Benchmark("streams"),
    Benchmark("search"),
    Benchmark("locomo", "--data DIR"),
    Benchmark("nightly"),
    Benchmark("export"),
    Benchmark("imports"),
)


def run(benchmark: Benchmark, *, quick: bool, locomo: Path | None) -> list[Row] | None:
    """The rows of one benchmark; None when it failed. What it prints is seen as it runs."""
    command = benchmark.command(quick=quick)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        arguments = [str(locomo) if part == "DIR" else part for part in command]
        done = subprocess.run([sys.executable, *arguments, "--json", file.name], check=False)
        return None if done.returncode else report.read(Path(file.name))


def main(argv: list[str] | None = None) -> int:
    """Runs what was asked for; 1 when a benchmark failed. A target that is missed is a figure, no failure."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    arguments.add_argument("--quick", action="store_true", help="smaller sizes; RESULTS.md stays as it is")
    arguments.add_argument("--locomo", type=Path, metavar="DIR", help="LoCoMo's conversations")
    asked = arguments.parse_args(argv)
    if unknown := set(asked.names) - {benchmark.name for benchmark in SUITE}:
        arguments.error(f"no benchmark: {', '.join(sorted(unknown))}")
    failed, missed = [], []
    for benchmark in SUITE:
        if asked.names and benchmark.name not in asked.names:
            continue
        command = f"python {shlex.join(benchmark.command(quick=asked.quick))}"
        print(f"\n== {command}", flush=True)
        if "DIR" in command and asked.locomo is None:
            print("not run: --locomo DIR says where its conversations are", flush=True)
            continue
        began = time.perf_counter()
        rows = run(benchmark, quick=asked.quick, locomo=asked.locomo)
        print(f"-- {time.perf_counter() - began:.0f} s", flush=True)
        if rows is None:
            failed.append(benchmark.name)
            continue
        missed += [row.name for row in rows if row.ok is False]
        if not asked.quick:
            results.record(benchmark.name, command, rows, today=datetime.now(UTC).date())
    print(f"\nmissed: {'; '.join(missed) or 'nothing'}\nfailed: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
