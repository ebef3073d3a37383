"""What a report says of a run: its figures, its verdicts, and the one word on the release."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evals import report
from evals.case import Result
from evals.report import Gate, Report
from evals.suite import PlainSuite, Suite
from evals.suites import GATES

SUITE = PlainSuite(name="citation", threshold=0.75)
NOW = datetime(2026, 5, 12, 10, 0, tzinfo=UTC)


def result(case: str, passed: bool = True, **fields: object) -> Result:
    known = {
        "suite": "citation",
        "case": case,
        "repeat": 1,
        "reached": True,
        "faults": () if passed else ("no day",),
    }
    return Result(**{**known, "passed": passed, "text": "x", **fields})  # type: ignore[arg-type]


def gate(
    *results: Result,
    expected: tuple[str, ...] = ("a", "b", "c", "d"),
    offline: bool = False,
    repeats: int = 1,
    suite: Suite = SUITE,
    baseline: dict[str, bool] | None = None,
) -> Gate:
    return report.gate(suite, expected, results, offline=offline, repeats=repeats, baseline=baseline)


def made(provider: str, gates: tuple[Gate, ...], **fields: object) -> Report:
    known = {
        "provider": provider,
        "models": ("claude:x",),
        "version": "v1",
        "words": report.words_hash(),
        "repeats": 1,
    }
    word = report.release(provider, gates, [g.name for g in gates])
    return Report(**{**known, "date": NOW.isoformat(), "release": word, "gates": gates, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("passed", "runs", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (10, 10, 0.722, 1.0),
        (0, 10, 0.0, 0.278),
        (85, 100, 0.767, 0.907),
        (1, 2, 0.095, 0.905),
    ],
)
def test_the_interval_is_wilsons(passed: int, runs: int, low: float, high: float) -> None:
    assert report.wilson(passed, runs) == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_a_gate_is_passed_from_its_threshold_on() -> None:
    three = [result("a"), result("b"), result("c"), result("d", False)]
    assert gate(*three).verdict == "passed"
    two = [result("a"), result("b"), result("c", False), result("d", False)]
    failed = gate(*two)
    assert failed.verdict == "failed"
    assert failed.reasons == ("50.0% passed, at least 75% must",)


def test_without_an_answer_a_gate_is_neither_passed_nor_failed() -> None:
    assert gate(result("a"), result("b"), result("c")).verdict == "incomplete"
    assert (
        gate(result("a"), result("b"), result("c"), result("d", False, error="503")).verdict == "incomplete"
    )
    assert gate(*(result(c) for c in "abcd"), repeats=2).verdict == "incomplete"


def test_a_case_that_never_reached_its_point_keeps_the_gate_shut_whoever_answers() -> None:
    results = [result("a"), result("b"), result("c"), result("d", False, reached=False)]
    assert gate(*results).verdict == "failed"
    assert gate(*results, offline=True).verdict == "plumbing failed"


def test_offline_is_about_plumbing_and_about_nothing_that_passed_before() -> None:
    poor = [result("a"), *(result(c, False) for c in "bcd")]
    assert gate(*poor, offline=True).verdict == "plumbing passed"
    assert gate(*poor, offline=True, baseline={"a": True, "b": False}).verdict == "plumbing passed"
    broken = gate(*poor, offline=True, baseline={"a": True, "b": True})
    assert (broken.verdict, broken.broke) == ("plumbing failed", ("b",))
    assert gate(*poor, offline=True, suite=replace(SUITE, strict=True)).verdict == "plumbing failed"


def test_a_case_that_flickers_shows_as_flaky() -> None:
    found = gate(
        result("a"),
        result("a", False, repeat=2),
        result("b"),
        result("b", repeat=2),
        expected=("a", "b"),
        repeats=2,
    )
    assert found.flaky == ("a",)
    assert "flaky: a" in report.summary(made("anthropic", (found,)))


def test_the_release_is_not_run_without_every_gate_of_a_real_provider() -> None:
    passed = tuple(replace(gate(*(result(c) for c in "abcd")), name=name) for name in GATES)
    assert report.release("anthropic", passed, GATES) == "passed"
    assert report.release("offline", passed, GATES) == "not run"
    assert report.release("anthropic", passed[1:], GATES) == "not run"
    assert (
        report.release("vertex", (*passed[1:], replace(passed[0], verdict="incomplete")), GATES) == "not run"
    )
    assert report.release("vertex", (*passed[1:], replace(passed[0], verdict="failed")), GATES) == "failed"


def test_a_report_tells_a_later_gate_what_holds_and_for_how_long(tmp_path: Path) -> None:
    assert report.verdict_of(tmp_path, NOW).startswith("not run")
    good = made("anthropic", (gate(*(result(c) for c in "abcd")),))
    report.write(good, tmp_path)
    assert report.verdict_of(tmp_path, NOW + timedelta(days=3)).startswith("passed: anthropic, v1")
    assert report.verdict_of(tmp_path, NOW + timedelta(days=15)).startswith("not run")
    report.write(replace(good, words="other"), tmp_path)
    assert report.verdict_of(tmp_path, NOW).startswith("not run: the prompts have changed")
    report.write(replace(good, provider="offline", release="not run"), tmp_path)
    assert report.verdict_of(tmp_path, NOW).startswith("not run")


def test_what_an_answer_says_is_shown_as_text(tmp_path: Path) -> None:
    hostile = made(
        "anthropic", (gate(result("a", False, text="<script>alert(1)</script>"), expected=("a",)),)
    )
    report.write(hostile, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert (
        json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["gates"][0]["verdict"] == "failed"
    )
