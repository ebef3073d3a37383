"""The gate on wrap-ups: transcripts with labelled decisions, and whether a model's wrap-up has just these.

A line of `cases.jsonl` is a session: its messages, what was decided and left open (each as terms that one entry must hold, `a|b` for
either), what must be in no decision (`never`), and what in no entry at all (`nowhere`). A case is good when nothing decided is missing,
nothing is made up, and nothing forbidden stands there. `must_fail.jsonl` holds wrap-ups that the grader must reject.

`python -m evals.suites.wrap_ups.task` runs the configured model through the seam and prints the figures. It exits with 1 when the gate
is missed; with the offline model, whose figures say nothing about quality, when a transcript gives no wrap-up at all.
"""

import json
import sys
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from common.config import Settings, settings
from common.llm import call as llm
from common.llm.types import Stop, StopReason, TextDelta
from common.memory import wrap_up_prompts as prompts
from common.memory.transcripts import Said, Transcript, is_substantive, write_transcript
from common.memory.wrap_up_draft import Draft, UnusableAnswer, read_draft, shortened
from evals.case import Result
from evals.suite import Job, PlainSuite

FOLDER = Path(__file__).parent
THRESHOLD = 0.85
AT = datetime(2026, 5, 12, 9, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A session and its labels."""

    name: str
    language: str
    tags: tuple[str, ...]
    messages: tuple[tuple[str, str], ...]
    decisions: tuple[tuple[str, ...], ...]
    open_items: tuple[tuple[str, ...], ...]
    never: tuple[str, ...]
    nowhere: tuple[str, ...]

    @property
    def said(self) -> list[Said]:
        """The messages as stored ones."""
        return [
            Said(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.name} {n}"), role, text, AT + timedelta(minutes=n))
            for n, (role, text) in enumerate(self.messages)
        ]


@dataclass(frozen=True)
class Grade:
    """What a wrap-up has and lacks of a case's labels."""

    missing: list[str] = field(default_factory=list)
    made_up: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    open_missing: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.missing or self.made_up or self.forbidden)


def load_cases() -> list[Case]:
    """Returns the labelled sessions."""
    return [Case(**{k: _frozen(v) for k, v in row.items()}) for row in _rows("cases.jsonl")]


def load_must_fail() -> list[dict[str, Any]]:
    """Returns the wrap-ups that the grader must reject, each with the name of its case."""
    return _rows("must_fail.jsonl")


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def grade(
    case: Case,
    *,
    decisions: Iterable[str] = (),
    open_items: Iterable[str] = (),
    elsewhere: Iterable[str] = (),
) -> Grade:
    """Returns how the entries of a wrap-up meet the labels. An entry stands for one label only."""
    decisions, open_items = list(decisions), list(open_items)
    missing, made_up = _matched(case.decisions, decisions)
    open_missing, _ = _matched(case.open_items, open_items)
    entries = [*decisions, *open_items, *elsewhere]
    forbidden = [term for term in case.never if any(_holds(text, term) for text in decisions)]
    forbidden += [term for term in case.nowhere if any(_holds(text, term) for text in entries)]
    return Grade(missing, made_up, forbidden, open_missing)


def _matched(labels: Iterable[tuple[str, ...]], entries: list[str]) -> tuple[list[str], list[str]]:
    """The labels that no entry stands for, and the entries that stand for none. The label with the fewest choices chooses first."""
    fitting = {label: [e for e in entries if all(_holds(e, term) for term in label)] for label in labels}
    left, missing = list(entries), []
    for label, found in sorted(fitting.items(), key=lambda pair: len(pair[1])):
        entry = next((e for e in found if e in left), None)
        if entry is None:
            missing.append(" + ".join(label))
        else:
            left.remove(entry)
    return missing, left


def _holds(text: str, term: str) -> bool:
    return any(form in text.casefold() for form in term.casefold().split("|"))


def write(transcript: Transcript, config: Settings) -> Draft:
    """Returns the configured model's wrap-up, asked for again once where it cannot be used, as in production. Raises UnusableAnswer."""
    try:
        return _ask(transcript, config)
    except UnusableAnswer as exc:
        return _ask(transcript, config, prompts.unusable(str(exc)))


def _ask(transcript: Transcript, config: Settings, correction: str = "") -> Draft:
    choice, fallback = llm.choose(config, "wrap_up", "pro")
    text = ""
    reason: StopReason = "end"
    for event in llm.stream(prompts.request(transcript, correction), choice, fallback, config=config):
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, Stop):
            reason = event.reason
    return shortened(read_draft(text, reason, transcript))


def run(cases: Iterable[Case], config: Settings) -> dict[str, tuple[Case, Draft | None, Grade]]:
    """Returns each case with its wrap-up (None where there is none) and its grade."""
    results = {}
    for case in cases:
        try:
            draft: Draft | None = write(write_transcript(case.said, "UTC"), config)
        except UnusableAnswer as exc:
            draft, graded = None, Grade(missing=[f"no wrap-up: {exc.reason}"])
        if draft is not None:
            graded = grade(
                case,
                decisions=[i.text for i in draft.decisions],
                open_items=[i.text for i in draft.open_items],
                elsewhere=[*(i.text for i in draft.new_context), draft.next_session_note],
            )
        results[case.name] = (case, draft, graded)
    return results


def render(results: dict[str, tuple[Case, Draft | None, Grade]]) -> str:
    """Returns the figures as text, and each case that is not good."""
    grades = [g for _, _, g in results.values()]
    decided = sum(len(c.decisions) for c, _, _ in results.values())
    opened = sum(len(c.open_items) for c, _, _ in results.values())
    made = sum(len(d.decisions) for _, d, _ in results.values() if d)
    dropped = sum(d.dropped for _, d, _ in results.values() if d)
    lines = [
        f"good: {sum(g.good for g in grades)} of {len(grades)} (at least {THRESHOLD:.0%})",
        f"decisions found: {decided - sum(len(g.missing) for g in grades)} of {decided}; "
        f"made up: {sum(len(g.made_up) for g in grades)} of {made}; forbidden: {sum(len(g.forbidden) for g in grades)}",
        f"open items found: {opened - sum(len(g.open_missing) for g in grades)} of {opened}; "
        f"entries dropped for want of support: {dropped}",
    ]
    for tag in sorted({tag for c, _, _ in results.values() for tag in (*c.tags, c.language)}):
        of_tag = [g for c, _, g in results.values() if tag in (*c.tags, c.language)]
        lines.append(f"  {tag:<12}{sum(g.good for g in of_tag):>3} of {len(of_tag)}")
    for name, (_, _, graded) in results.items():
        if not graded.good or graded.open_missing:
            what = {k: v for k, v in vars(graded).items() if v}
            lines.append(f"  {'open' if graded.good else 'BAD'}: {name}: {what}")
    return "\n".join(lines)


def jobs() -> list[Job]:
    """Returns each session as a case of the gate. A session that gives no wrap-up at all counts as not reached."""
    return [Job(case.name, partial(_run, case)) for case in load_cases()]


def _run(case: Case) -> Result:
    ((_, draft, graded),) = run([case], settings()).values()
    found = (("missing", graded.missing), ("made up", graded.made_up), ("forbidden", graded.forbidden))
    faults = tuple(f"{what}: {'; '.join(items)}" for what, items in found if items)
    text = "\n".join(item.text for item in draft.decisions) if draft else ""
    return Result("wrap_up_quality", case.name, 1, graded.good, draft is not None, faults, text)


SUITE = PlainSuite(name="wrap_up_quality", threshold=THRESHOLD, jobs=jobs)


def faulty_grader() -> list[str]:
    """Returns what the grader lets pass although it must not, and the cases that are no session worth a wrap-up."""
    cases = {case.name: case for case in load_cases()}
    passed = [
        f"{row['case']}: {row['why']}"
        for row in load_must_fail()
        if grade(
            cases[row["case"]], decisions=row.get("decisions", ()), open_items=row.get("open_items", ())
        ).good
    ]
    return passed + [f"{name}: too short" for name, case in cases.items() if not is_substantive(case.said)]


def main() -> int:
    """Prints the figures and returns the exit code."""
    if faults := faulty_grader():
        print("The grader is at fault:", *faults, sep="\n  ")
        return 1
    config = settings()
    choice, _ = llm.choose(config, "wrap_up", "pro")
    results = run(load_cases(), config)
    good = sum(g.good for _, _, g in results.values()) / len(results)
    print(f"wrap-ups by {choice.provider}:{choice.model}\n{render(results)}")
    if choice == llm.OFFLINE:
        whole = all(draft is not None for _, draft, _ in results.values())
        print(f"gate: {'plumbing passed' if whole else 'PLUMBING FAILED'}; quality not run (offline model)")
        return 0 if whole else 1
    print(f"gate: {'passed' if good >= THRESHOLD else 'FAILED'}")
    return 0 if good >= THRESHOLD else 1


if __name__ == "__main__":
    sys.exit(main())
