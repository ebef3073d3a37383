"""The cases as data: enough of them, each in a scene that there is, and prompts in pairs."""

from __future__ import annotations

from collections import Counter

import pytest

from common.config import read_settings
from common.llm.routing import TASKS, choose
from evals.command import environment
from evals.fixture import SCENES
from evals.suite import ChatSuite, PlainSuite, Suite
from evals.suites import GATES, suites

CHAT = [suite for suite in suites() if isinstance(suite, ChatSuite)]


def test_there_is_a_suite_for_every_gate() -> None:
    assert [suite.name for suite in suites()] == list(GATES)


@pytest.mark.parametrize("suite", suites(), ids=lambda s: s.name)
def test_a_suite_has_enough_cases_of_distinct_names(suite: Suite) -> None:
    names = (
        [job.case for job in suite.jobs()] if isinstance(suite, PlainSuite) else [c.id for c in suite.cases()]
    )  # type: ignore[attr-defined]
    assert len(names) >= 25
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("suite", CHAT, ids=lambda s: s.name)
def test_no_question_is_asked_twice_and_some_are_not_english(suite: ChatSuite) -> None:
    cases = suite.cases()
    if suite.name != "injection_resistance":
        assert len({(case.scene, case.ask) for case in cases}) == len(cases)
    assert len({case.lang for case in cases}) >= 3


@pytest.mark.parametrize("suite", CHAT, ids=lambda s: s.name)
def test_a_case_is_asked_in_a_scene_that_knows_its_fact(suite: ChatSuite) -> None:
    for case in suite.cases():
        if "world" in case.data:
            continue
        assert case.scene in SCENES, case.id
        if case.expect not in ("wrap_up", "memory", "nothing", ""):
            assert case.about in SCENES[case.scene]["facts"], case.id


def test_recall_and_query_are_asked_in_pairs() -> None:
    (suite,) = (s for s in CHAT if s.name == "recall_or_requery")
    pairs = Counter((case.scene, case.about, case.lang, case.expect) for case in suite.cases())
    assert {expect for *_, expect in pairs} == {"recall", "now"}
    assert all(pairs[*key, "recall"] == pairs[*key, "now"] for key in {tuple(k[:3]) for k in pairs})


@pytest.mark.parametrize(
    ("provider", "name"), [("offline", "offline"), ("anthropic", "claude"), ("vertex", "gemini")]
)
def test_every_task_goes_to_the_provider_that_was_chosen(
    provider: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    monkeypatch.setenv("MEMBERINTEL_VERTEX_PROJECT", "test")
    monkeypatch.setenv("MEMBERINTEL_SKILL_MODEL", "claude:claude-sonnet-5-5")
    config = read_settings({"ANTHROPIC_API_KEY": "test", **environment(provider)})
    for task in TASKS:
        model, fallback = choose(config, task, "pro")
        assert model.provider == name, task
        assert fallback in (None, model), "no other model answers in its place"
    if provider == "anthropic":
        assert choose(config, "skill", "pro")[0].model == "claude-sonnet-5-5", "the environment's own choice"
