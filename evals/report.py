"""The report of a run: for each gate its pass rate with an interval, what failed, what flickers, cost and latency, and what changed since
the stored baseline; and the one word on the release.

With the offline model a gate reads *plumbing passed*: every case was answered, what it is about was in the request that left, nothing that
passed at the baseline fails, and the gates that are about the system and not about the model (leak, router) pass as they must for a
release. It says nothing about quality, and the release reads *not run*.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from common.advisor import prompts
from common.memory import snapshot_summary, wrap_up_prompts
from common.text import canonical_hash
from common.tools.registry import spec, tools
from evals.case import Result
from evals.suite import Suite

BASELINES = Path(__file__).parent / "stored"
REAL = ("anthropic", "vertex")
MAX_AGE = timedelta(days=14)


@dataclass(frozen=True)
class CaseReport:
    """A case over all repeats."""

    id: str
    passed: int
    runs: int
    faults: tuple[str, ...]
    text: str

    @property
    def flaky(self) -> bool:
        return 0 < self.passed < self.runs


@dataclass(frozen=True)
class Gate:
    """A suite's figures and its verdict: `passed`, `failed` or `incomplete`, with the offline model `plumbing passed` or `plumbing failed`.
    `reasons` say why it did not pass."""

    name: str
    verdict: str
    threshold: float
    passed: int
    runs: int
    low: float
    high: float
    reasons: tuple[str, ...]
    cases: tuple[CaseReport, ...]
    cost_usd: float
    seconds_median: float
    seconds_p95: float
    tokens: int
    compared: bool = True
    before: float | None = None
    broke: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        return self.passed / self.runs if self.runs else 0.0

    @property
    def flaky(self) -> tuple[str, ...]:
        return tuple(case.id for case in self.cases if case.flaky)


@dataclass(frozen=True)
class Report:
    """A run's report. `words` is a hash of the prompts, the tools' descriptions and the recall block's wording: figures hold for these."""

    provider: str
    models: tuple[str, ...]
    version: str
    words: str
    date: str
    repeats: int
    release: str
    gates: tuple[Gate, ...]
    held: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    answered: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)


def wilson(passed: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a rate after Wilson; (0, 1) where nothing ran."""
    if not runs:
        return 0.0, 1.0
    rate, square = passed / runs, z * z
    centre = (rate + square / (2 * runs)) / (1 + square / runs)
    half = z * math.sqrt(rate * (1 - rate) / runs + square / (4 * runs * runs)) / (1 + square / runs)
    return max(0.0, centre - half), min(1.0, centre + half)


def gate(
    suite: Suite, expected: Sequence[str], results: Iterable[Result], *, offline: bool, repeats: int, baseline: dict[str, bool] | None
) -> Gate:  # fmt: skip
    """The gate of a suite. `expected` names its cases, `baseline` which of them passed then."""
    mine = [result for result in results if result.suite == suite.name]
    cases = _cases(expected, mine)
    passed, runs = sum(r.passed for r in mine), len(mine)
    before = baseline or {}
    broke = tuple(c.id for c in cases if before.get(c.id) and c.runs and not c.passed)
    mended = tuple(c.id for c in cases if before.get(c.id) is False and c.passed == c.runs > 0)
    missing = len(expected) * repeats - len([r for r in mine if not r.error])
    unreached = [r.case for r in mine if not r.reached and not r.error]
    reasons = [
        *([f"{missing} answers are missing"] if missing else []),
        *([f"never reached: {_some(unreached)}"] if unreached else []),
    ]
    if offline and broke:
        reasons.append(f"passed at the baseline and fails: {_some(broke)}")
    if suite.strict or not offline:
        if runs and passed / runs < suite.threshold:
            reasons.append(f"{passed / runs:.1%} passed, at least {suite.threshold:.0%} must")
        reasons += suite.faults(mine)
    seconds = sorted(r.seconds for r in mine) or [0.0]
    low, high = wilson(passed, runs)
    return Gate(
        name=suite.name,
        verdict=_verdict(bool(reasons), bool(missing), offline),
        threshold=suite.threshold,
        passed=passed,
        runs=runs,
        low=low,
        high=high,
        reasons=tuple(reasons),
        cases=cases,
        cost_usd=round(sum(r.cost_usd for r in mine), 6),
        seconds_median=statistics.median(seconds),
        seconds_p95=seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))],
        tokens=sum(r.input_tokens + r.output_tokens for r in mine),
        compared=not suite.strict,
        before=sum(before.values()) / len(before) if before else None,
        broke=broke,
        mended=mended,
    )


def _verdict(faulty: bool, missing: bool, offline: bool) -> str:
    if offline:
        return "plumbing failed" if faulty else "plumbing passed"
    if missing:
        return "incomplete"
    return "failed" if faulty else "passed"


def _cases(expected: Sequence[str], results: Sequence[Result]) -> tuple[CaseReport, ...]:
    by_case: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_case[result.case].append(result)
    reports = []
    for case in expected:
        runs = by_case[case]
        failed = next((r for r in runs if not r.passed), None)
        shown = failed or (runs[0] if runs else None)
        faults = (failed.faults or (failed.error,)) if failed else ()
        reports.append(
            CaseReport(case, sum(r.passed for r in runs), len(runs), faults, shown.text if shown else "")
        )
    return tuple(reports)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def release(provider: str, gates: Sequence[Gate], every: Iterable[str]) -> str:
    """The word on the release: `passed` and `failed` come of a real provider and all gates alone, else it is `not run`."""
    ran = {g.name for g in gates if g.verdict in ("passed", "failed")}
    if provider not in REAL or not set(every) <= ran:
        return "not run"
    return "passed" if all(g.verdict == "passed" for g in gates) else "failed"


def words_hash() -> str:
    """A hash of all that a model is told in our words: a change of it makes the figures those of another system."""
    told: list[Any] = [prompts.BASE, prompts.SKILL, prompts.SKILL_SCOPE, wrap_up_prompts.BASE]
    told += [snapshot_summary.HEADER, snapshot_summary.FOOTER, [asdict(spec(name)) for name in tools()]]
    return canonical_hash(told)[:12]


def version() -> str:
    """The commit that is run, `+` where files differ from it; without git what the build says it is."""
    root = Path(__file__).parent.parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("COMMIT_SHA", "unknown")
    return told.stdout.strip()


def summary(report: Report) -> str:
    """The report as lines for a terminal."""
    lines = [
        f"{report.provider} ({', '.join(report.models) or 'no model'}), {report.version}, {report.date}",
        "",
    ]
    for g in report.gates:
        change = "" if g.before is None else f"  baseline {g.before:.0%}"
        lines.append(
            f"{g.name:<22}{g.verdict:<18}{g.passed:>5} of {g.runs:<5}{g.rate:>5.0%}  [{g.low:.0%}, {g.high:.0%}]"
            f"  ${g.cost_usd:.4f}  median {g.seconds_median:.2f} s{change}"
        )
        lines += [f"{'':<22}  {reason}" for reason in g.reasons]
        if g.flaky:
            lines.append(f"{'':<22}  flaky: {_some(g.flaky)}")
    for what, of_suites in (
        ("the block holds what is needed", report.held),
        ("answered rightly with it", report.answered),
    ):
        for name, arms in of_suites.items():
            told = ", ".join(f"{arm} {share} of {of}" for arm, (share, of) in arms.items())
            lines += ["", f"{name}, {what}: {told}"]
    return "\n".join([*lines, "", f"release gate: {report.release}"])


def write(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.html` into `folder`."""
    document = asdict(report)
    for written, g in zip(document["gates"], report.gates, strict=True):
        written["rate"], written["flaky"] = g.rate, g.flaky
    (folder / "report.json").write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
    page = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    html = page.get_template("report.html").render(report=report)
    (folder / "report.html").write_text(html, encoding="utf-8")


def verdict_of(folder: Path, now: datetime) -> str:
    """The word on the release by the report in `folder`: `not run` also for one that is older than two weeks or of other words."""
    try:
        document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        dated = datetime.fromisoformat(document["date"])
    except (OSError, ValueError, KeyError):
        return "not run: there is no report"
    told = f"{document['provider']}, {document['version']}, {document['date']}"
    if document["release"] == "not run":
        return f"not run: {told} is no complete report of a real provider"
    if document["words"] != words_hash():
        return f"not run: the prompts have changed since {told}"
    if not timedelta(0) <= now - dated <= MAX_AGE:
        return f"not run: {told} is too old"
    return f"{document['release']}: {told}"


def read_baseline(provider: str) -> dict[str, dict[str, bool]]:
    """Suite -> case -> whether it passed, as stored for this provider; empty where nothing is."""
    path = BASELINES / f"{provider}.json"
    found: dict[str, dict[str, bool]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_baseline(report: Report) -> Path:
    """Store which cases passed, for later runs to be compared with; not of strict gates, whose thresholds hold for every provider."""
    path = BASELINES / f"{report.provider}.json"
    stored: dict[str, Any] = {
        g.name: {c.id: c.passed == c.runs for c in g.cases if c.runs} for g in report.gates if g.compared
    }
    path.write_text(
        json.dumps(read_baseline(report.provider) | stored, ensure_ascii=False, indent=0) + "\n",
        encoding="utf-8",
    )
    return path


def now_as_text() -> str:
    """The present moment for a report's date."""
    return datetime.now(UTC).isoformat(timespec="seconds")
