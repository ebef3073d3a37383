"""The router gate: labelled queries, the route each gets, and whether that is good enough for a release.

`cases.jsonl` is what the cue lists are tuned against. `held_out.jsonl` was labelled before the router was
written and is not to be tuned against. A line is `{"q", "route", "plans"?, "tags"?}`. A query tagged
`reference` that reaches a skill is counted apart from accuracy, for it is a fault, not an inaccuracy: the
gate allows none.

`python -m evals.suites.router.task` prints both sets and exits with 1 when a threshold is missed.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from common.advisor.router import Route, route
from evals.case import Result
from evals.suite import Job, PlainSuite

FOLDER = Path(__file__).parent
NAMES = ("kpi", "site_data", "revenue", "advisor")
# The least accuracy of each set: the first is tuned against, the second tells how far that carries.
THRESHOLDS = {"cases": 0.97, "held_out": 0.90}

REFERENCE_MISSED = " (a reference query)"

Router = Callable[[str, tuple[str, ...]], Route]


@dataclass(frozen=True)
class Case:
    """One labelled query on a site with these plans."""

    query: str
    route: str
    plans: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()


@dataclass
class Score:
    """What a router did with a set of cases."""

    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)  # (expected, got)
    wrong: list[tuple[Case, Route]] = field(default_factory=list)
    reference_misses: list[Case] = field(default_factory=list)  # reference queries that reached a skill
    references: int = 0
    named_references: int = 0  # those that the reference gate itself named

    @property
    def total(self) -> int:
        return self.confusion.total()

    @property
    def accuracy(self) -> float:
        return 1 - len(self.wrong) / self.total if self.total else 0.0


def load_cases(name: str) -> list[Case]:
    """Returns the cases of `<name>.jsonl` in this folder."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Case(row["q"], row["route"], tuple(row.get("plans", ())), frozenset(row.get("tags", ())))
        for row in map(json.loads, lines)
    ]


def score(cases: Iterable[Case], router: Router = route) -> Score:
    """Returns how the router did on these cases."""
    result = Score()
    for case in cases:
        got = router(case.query, case.plans)
        result.confusion[case.route, got.name] += 1
        if got.name != case.route:
            result.wrong.append((case, got))
        if "reference" in case.tags:
            result.references += 1
            result.named_references += any(reason.startswith("reference:") for reason in got.reasons)
            if got.name != "advisor":
                result.reference_misses.append(case)
    return result


def passes(name: str, result: Score) -> bool:
    """Says whether a set's score is good enough for a release."""
    return result.accuracy >= THRESHOLDS[name] and not result.reference_misses


def render(name: str, result: Score) -> str:
    """Returns the score as text: the figures, the confusion table, and each query that went wrong."""
    lines = [
        f"{name}: {'passed' if passes(name, result) else 'FAILED'}",
        f"  accuracy: {result.accuracy:.1%} of {result.total} (at least {THRESHOLDS[name]:.0%})",
        f"  reference queries that reached a skill: {len(result.reference_misses)} of {result.references} "
        f"(none allowed; {result.named_references} named by the reference gate)",
        "  expected \\ got " + "".join(f"{got:>11}" for got in NAMES),
    ]
    for expected in NAMES:
        counts = "".join(f"{result.confusion[expected, got]:>11}" for got in NAMES)
        lines.append(f"  {expected:<15}" + counts)
    lines += [f"  wrong: {c.query!r}: {c.route}, got {r.name} {list(r.reasons)}" for c, r in result.wrong]
    return "\n".join(lines)


def jobs() -> list[Job]:
    """Returns each query of both sets as a case, named by its set and line."""
    return [
        Job(f"{name}/{n}", partial(_run, f"{name}/{n}", case))
        for name in THRESHOLDS
        for n, case in enumerate(load_cases(name), start=1)
    ]


def _run(name: str, case: Case) -> Result:
    got = route(case.query, case.plans)
    missed = "reference" in case.tags and got.name != "advisor"
    fault = f"{case.query!r}: {case.route}, got {got.name}" + (REFERENCE_MISSED if missed else "")
    right = got.name == case.route
    return Result("router_accuracy", name, 1, right, True, () if right else (fault,), got.name)


def faults(results: Iterable[Result]) -> tuple[str, ...]:
    """Returns which set is below its threshold, and whether a reference query reached a skill."""
    found = []
    results = list(results)
    for name, least in THRESHOLDS.items():
        of_set = [r for r in results if r.case.startswith(f"{name}/")]
        if of_set and sum(r.passed for r in of_set) / len(of_set) < least:
            found.append(f"{name} is below {least:.0%}")
    if any(REFERENCE_MISSED in fault for r in results for fault in r.faults):
        found.append("a reference query reached a skill")
    return tuple(found)


SUITE = PlainSuite(
    name="router_accuracy", threshold=min(THRESHOLDS.values()), strict=True, faults=faults, jobs=jobs
)


def main() -> int:
    """Prints the score of both sets and returns the exit code."""
    results = {name: score(load_cases(name)) for name in THRESHOLDS}
    print("\n\n".join(render(name, result) for name, result in results.items()))
    return 0 if all(passes(name, result) for name, result in results.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
