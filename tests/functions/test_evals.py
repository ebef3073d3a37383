"""The evals run: worlds made by the real code, questions over HTTP, and what a run that breaks off or meets a busy provider does."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from common.advisor import context
from evals import bad_providers, command, run
from evals.case import Case, Result
from evals.command import environment
from evals.facts import NOW
from evals.providers import SCRIPTED, Honest
from evals.suite import ChatSuite
from evals.suites import suites
from evals.system import running
from local.cli import main
from tests.stubs.anthropic_server import api_error, message, scripted

README = Path(__file__).parents[2] / "README.md"


def few(monkeypatch: pytest.MonkeyPatch, *ids: str) -> None:
    """Let every suite have these of its cases only."""
    every = ChatSuite.cases

    def cases(suite: ChatSuite) -> list[Case]:
        return [case for case in every(suite) if case.id in ids]

    monkeypatch.setattr(ChatSuite, "cases", cases)


def options(folder: Path, **given: object) -> argparse.Namespace:
    known = {
        "provider": "offline",
        "suite": [],
        "repeat": 1,
        "report": folder,
        "resume": False,
        "workers": None,
    }
    return argparse.Namespace(
        **{**known, "gate": False, "accept": False, "bad_providers": False, "arms": False, **given}
    )


def test_a_case_is_asked_in_a_world_of_its_own_and_its_answer_graded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few(monkeypatch, "members-then", "members-now")
    arguments = ["evals", "--suite", "recall_or_requery", "--repeat", "2", "--report", str(tmp_path)]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert "plumbing passed" in told
    assert told.count("release gate: not run") == 1
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(r["case"], r["repeat"], r["passed"], r["reached"]) for r in results] == [
        ("members-then", 1, True, True),
        ("members-now", 1, True, True),
        ("members-then", 2, True, True),
        ("members-now", 2, True, True),
    ]
    assert "As of 2026-05-05 (query_kpi_trend)" in results[0]["text"]
    assert main(["evals", "--gate", "--report", str(tmp_path)]) == 1
    assert "release gate: not run" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_broke_off_goes_on_and_asks_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few(monkeypatch, "members-then", "members-now", "mrr-then")
    suite = suites(["recall_or_requery"])
    ask = run.ask
    asked: list[str] = []

    def breaks(system: object, suite: ChatSuite, ready: run.Ready, **rest: object) -> Result:
        asked.append(ready.case.id)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return ask(system, suite, ready, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "ask", breaks)
    with pytest.raises(KeyboardInterrupt):
        command.evaluated(suite, options(tmp_path), environment("offline"), tmp_path)
    made = command.evaluated(suite, options(tmp_path, resume=True), environment("offline"), tmp_path)
    assert asked == ["members-then", "members-now", "members-now", "mrr-then"]
    assert (made.gates[0].runs, made.gates[0].verdict) == (3, "plumbing passed")


def test_a_results_file_that_was_cut_off_anywhere_gives_what_is_whole_and_takes_what_comes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    whole = Result("s", "whole", 1, True, True, ("fault",), "caf\u00e9, a line\u2028and another\x85")
    note = run.write_down(path)
    note(whole)
    assert list(run.read_back(path)) == [whole]
    one = path.read_bytes()
    later = replace(whole, case="later")
    for cut in range(1, len(one) - 1):
        path.write_bytes(one + one[:cut])
        note(later)
        assert list(run.read_back(path)) == [whole, later]
    path.write_bytes(b'7\n{"suite": "s"}\n' + one)
    assert [r.case for r in run.read_back(path)] == ["whole"]


def test_without_its_block_in_the_request_a_recall_case_does_not_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few(monkeypatch, "members-then", "members-now")
    monkeypatch.setattr("common.memory.snapshot_summary.recall_block", lambda snapshots, timezone: ("", []))
    (suite,) = suites(["recall_or_requery"])
    results: list[Result] = []
    with running(NOW, environment("offline")) as system:
        ready = run.build(system, [suite])
        system.provider = honest = Honest()
        run.run(system, [suite], ready, repeat=1, done=results.append, asking=honest.asking)
    assert [(r.reached, r.passed) for r in results] == [(False, False), (False, False)]


@pytest.mark.slow
def test_a_statement_that_does_not_name_its_user_fails_the_gate_on_leaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few(monkeypatch, "own-number")
    scoped = "where s.user_id = :user_id and s.conversation_id"
    assert any(scoped in sql for _, sql in context._LOADED)
    loose = tuple((name, sql.replace(scoped, "where s.conversation_id")) for name, sql in context._LOADED)
    (suite,) = suites(["cross_tenant_leak"])
    results: list[Result] = []
    with running(NOW, environment("offline")) as system:
        ready = run.build(system, [suite])
        run.run(system, [suite], ready, repeat=1, done=results.append)
        monkeypatch.setattr(context, "_LOADED", loose)
        run.run(system, [suite], ready, repeat=2, done=results.append)
    assert [r.passed for r in results] == [True, False], (
        "row level security hides the rows, and the gate still sees it"
    )
    assert "message_tool_results" in results[1].faults[0]


@pytest.mark.slow
def test_a_busy_provider_slows_a_run_and_fails_no_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few(monkeypatch, "members-then")
    waited: list[float] = []
    monkeypatch.setattr("common.llm.call.BACKOFF_SECONDS", (0.0, 0.0))
    with scripted() as server:
        server.play(
            *[api_error(429, "rate_limit_error")] * 7,
            message({"type": "text", "text": "As of 2026-05-05 (query_kpi_trend) it was 54."}),
        )
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        (suite,) = suites(["recall_or_requery"])
        results: list[Result] = []
        with running(NOW, environment("anthropic") | {"MEMBERINTEL_EMBEDDING_MODEL": "hashed"}) as system:
            ready = run.build(system, [suite])
            run.run(system, [suite], ready, repeat=1, done=results.append, sleep=waited.append)
    assert waited == [5, 15]
    assert [(r.passed, r.error, r.models) for r in results] == [(True, "", ("claude:claude-haiku-5-5",))]
    assert results[0].cost_usd > 0
    assert "Previously fetched" in json.dumps(server.bodies[-1]), "what left at the process's boundary"


def test_the_command_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert main(["evals", "--provider", "anthropic", "--report", str(tmp_path)]) == 1
    assert "ANTHROPIC_API_KEY" in capsys.readouterr().err
    assert main(["evals", "--suite", "happiness", "--report", str(tmp_path)]) == 1
    assert "There is no suite happiness" in capsys.readouterr().err
    assert main(["evals", "--resume", "--report", str(tmp_path)]) == 1
    assert "There is no run to resume" in capsys.readouterr().err


@pytest.mark.slow
def test_the_offline_model_passes_as_plumbing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evals", "--report", str(tmp_path)]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out.count("plumbing passed") == len(suites())


@pytest.mark.slow
def test_each_scripted_provider_fails_just_the_gates_that_it_must() -> None:
    chosen = suites()
    table = bad_providers.pass_rates(chosen, environment("offline"))
    assert bad_providers.failed(table, chosen) == {name: must for name, (_, must) in SCRIPTED.items()}
    honest = table["answers as it should"]
    # The router is asked itself, and a fact that did not survive in the block cannot be answered from it.
    assert {gate for gate, rate in honest.items() if rate < 1} <= {"router_accuracy", "budget_recall"}, (
        "every other case can be passed"
    )
    assert bad_providers.markdown(table, chosen) in README.read_text(encoding="utf-8")
