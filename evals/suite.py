"""A suite: its cases as data, how an answer is graded, what proves that a case was one, and how good is good enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.case import Case, Facts, Reply, Result, Verdict

SUITES = Path(__file__).parent / "suites"
_FIELDS = ("id", "ask", "scene", "expect", "about", "lang")


@dataclass(frozen=True)
class Job:
    """A case to run: its name in the suite, and what gives its result."""

    case: str
    run: Callable[[], Result]


@dataclass(frozen=True)
class Suite:
    """A gate. `threshold` is the least pass rate for a release; a `strict` one is about the system and not about the model, so that the
    offline model must pass it too. `faults` names what else keeps it from passing."""

    name: str
    threshold: float
    strict: bool = False
    faults: Callable[[Iterable[Result]], tuple[str, ...]] = lambda results: ()


@dataclass(frozen=True)
class ChatSuite(Suite):
    """A gate whose cases are questions to the chat function. `reached` says whether what a case is about was in a request that left for
    the model. `watches` has what is remembered of the user compared before and after."""

    grade: Callable[[Case, Reply, Facts], Verdict] = lambda case, reply, facts: Verdict()
    reached: Callable[[Case, Reply, Facts], bool] = lambda case, reply, facts: bool(reply.prompts)
    watches: bool = False

    def cases(self) -> list[Case]:
        """The suite's cases, in the order of the file."""
        return [_case(self.name, row) for row in rows(SUITES / self.name / "cases.jsonl")]


@dataclass(frozen=True)
class PlainSuite(Suite):
    """A gate that asks something else than the chat function. `jobs` gives its cases."""

    jobs: Callable[[], list[Job]] = list


def rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _case(suite: str, row: dict[str, Any]) -> Case:
    known = {name: row[name] for name in _FIELDS if name in row}
    return Case(suite, **known, data={k: v for k, v in row.items() if k not in _FIELDS})
