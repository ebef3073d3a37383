"""What `memberintel evals` does: choose suites and provider, run, report, and say by the exit code whether the gates are passed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from common.config import variable
from common.errors import AppError, ConfigError, InvalidRequest
from common.llm.routing import OFFLINE, ROUTES
from evals import baselines, report, run
from evals.case import Result
from evals.facts import NOW
from evals.graders import calibration
from evals.report import Report
from evals.run import Worlds
from evals.suite import ChatSuite, PlainSuite, Suite
from evals.suites import GATES, suites
from evals.suites.wrap_ups.task import faulty_grader
from evals.system import running

# Provider -> the name it has in the routing table, and the setting without which it cannot be called.
PROVIDERS = {"offline": ("offline", ""), "anthropic": ("claude", "anthropic_api_key"), "vertex": ("gemini", "vertex_project")}  # fmt: skip
COMPARED = ("premise_resistance", "budget_recall")
RESULTS = "results.jsonl"
RUN = "run.json"
T = TypeVar("T")
# What an offline run shares with the environment: nothing, but a real provider's own settings.
_KEPT = ("anthropic_api_key", "anthropic_base_url", "vertex_project", "vertex_location", "vertex_base_url", "embedding_model")  # fmt: skip


def evaluate(arguments: argparse.Namespace) -> int:
    """Run the suites and write the report; 0 when every gate that ran is passed. Raises AppError with one clear line."""
    folder: Path = arguments.report
    if arguments.gate:
        verdict = report.verdict_of(folder, datetime.now(UTC))
        print(f"release gate: {verdict}")
        return 0 if verdict.startswith("passed") else 1
    if wrong := [*calibration.faults(), *faulty_grader()]:
        raise AppError(f"The graders are at fault, so that no verdict would hold: {'; '.join(wrong)}")
    chosen = suites(_names(arguments.suite))
    environ = environment(arguments.provider)
    if arguments.bad_providers:
        from evals.bad_providers import print_table

        return print_table(chosen, environ)
    made = evaluated(chosen, arguments, environ, folder)
    report.write(made, folder)
    if arguments.accept:
        print(f"baseline stored in {report.write_baseline(made)}")
    print(report.summary(made))
    print(f"{folder / 'report.html'}, {folder / 'report.json'}")
    return 0 if all(gate.verdict.endswith("passed") for gate in made.gates) else 1


def evaluated(
    chosen: Sequence[Suite], arguments: argparse.Namespace, environ: dict[str, str], folder: Path
) -> Report:
    """The report of a run, whose results are written down in `folder` as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    started = _started(arguments, folder)
    known = list(run.read_back(folder / RESULTS))
    answered = {(r.suite, r.case, r.repeat) for r in known if not r.error}
    note = run.write_down(folder / RESULTS)
    with running(NOW, environ) as system:
        ready = _with_bar("worlds", _worlds(chosen), lambda step: run.build(system, chosen, progress=step))
        expected = {suite.name: _expected(suite, ready) for suite in chosen}
        total = sum(map(len, expected.values())) * arguments.repeat - len(answered)

        def ask(step: Callable[[], None]) -> None:
            def done(result: Result) -> None:
                note(result)
                step()

            for repeat in range(1, arguments.repeat + 1):
                skip = frozenset((s, c) for s, c, n in answered if n == repeat)
                workers = arguments.workers or (1 if arguments.provider == "offline" else 4)
                run.run(system, chosen, ready, repeat=repeat, done=done, skip=skip, workers=workers)

        _with_bar(arguments.provider, total, ask)
        compared = [s for s in chosen if isinstance(s, ChatSuite) and s.name in COMPARED]
        with system.database(run.WORLDS):
            held = {suite.name: baselines.held(suite.name, ready[suite.name]) for suite in compared}
        asked = compared if arguments.arms else []
        answered_with = {suite.name: baselines.answered(system, suite, ready) for suite in asked}
    results = _latest(run.read_back(folder / RESULTS))
    stored = report.read_baseline(arguments.provider)
    gates = tuple(
        report.gate(
            suite,
            expected[suite.name],
            results,
            offline=arguments.provider not in report.REAL,
            repeats=arguments.repeat,
            baseline=stored.get(suite.name),
        )
        for suite in chosen
    )
    return Report(
        provider=arguments.provider,
        models=tuple(sorted({model for r in results for model in r.models})),
        version=started["version"],
        words=started["words"],
        date=started["date"],
        repeats=arguments.repeat,
        release=report.release(arguments.provider, gates, GATES),
        gates=gates,
        held=held,
        answered=answered_with,
    )


def environment(provider: str) -> dict[str, str]:
    """The settings under which every task goes to that provider: the model that the routing table has of it, or the one that the
    environment names. Raises ConfigError where its key is missing."""
    name, needed = PROVIDERS[provider]
    if needed and not os.environ.get(variable(needed)):
        raise ConfigError(f"{variable(needed)} is missing: {provider} cannot be called without it.")
    kept = {} if provider == "offline" else {variable(f): os.environ.get(variable(f), "") for f in _KEPT}
    chosen = {}
    for route in ROUTES.values():
        models = [m for m in (route.model, route.fallback, OFFLINE) if m.provider == name]
        told = os.environ.get(variable(route.setting), "")
        model = told if told.startswith(f"{name}:") else f"{name}:{models[0].model}"
        # The fallback too: figures of one provider are not to hold answers of another.
        chosen[variable(route.setting)] = model
        if name != "offline":
            chosen.setdefault(variable(route.fallback_setting), model)
    embedding = {variable("embedding_model"): "hashed"} if provider == "offline" else {}
    return {**kept, **chosen, **embedding}


def _names(given: Sequence[str]) -> list[str]:
    names = [name for one in given for name in one.split(",") if name]
    if unknown := sorted(set(names) - set(GATES)):
        raise InvalidRequest(f"There is no suite {', '.join(unknown)}. The suites are: {', '.join(GATES)}.")
    return names


def _started(arguments: argparse.Namespace, folder: Path) -> dict[str, str]:
    """What the run is of. A run that goes on must be of the same; a new one forgets the results in the folder."""
    now = {"provider": arguments.provider, "version": report.version(), "words": report.words_hash()}
    path = folder / RUN
    if arguments.resume:
        try:
            before: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InvalidRequest(f"There is no run to resume in {folder}.") from None
        if {key: before.get(key) for key in now} != now:
            raise InvalidRequest(
                f"The run in {folder} is of another provider or version: start it anew, without --resume."
            )
        return before
    started = {**now, "date": report.now_as_text()}
    (folder / RESULTS).unlink(missing_ok=True)
    path.write_text(json.dumps(started), encoding="utf-8")
    return started


def _latest(results: Iterable[Result]) -> list[Result]:
    """One result for each case and repeat: of one that had no answer and was asked again, the later."""
    return list({(r.suite, r.case, r.repeat): r for r in results}.values())


def _expected(suite: Suite, ready: Worlds) -> list[str]:
    if isinstance(suite, PlainSuite):
        return [job.case for job in suite.jobs()]
    return [one.case.id for one in ready[suite.name]]


def _worlds(chosen: Iterable[Suite]) -> int:
    return sum(len(suite.cases()) for suite in chosen if isinstance(suite, ChatSuite))


def _with_bar(what: str, total: int, work: Callable[[Callable[[], None]], T]) -> T:
    """What `work` returns, with a progress bar on standard error, where that is a terminal."""
    with tqdm(desc=what, total=total, unit=" cases", disable=None, leave=False, file=sys.stderr) as bar:

        def step() -> None:
            bar.update(1)

        return work(step)
