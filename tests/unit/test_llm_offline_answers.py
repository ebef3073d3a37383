"""What a customer reads from the offline model: failed look-ups, the time that was asked for, and what it says of earlier talk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.llm.offline import mistakes
from common.llm.types import Message, ModelRequest, Section, ToolCall, ToolResult
from common.text import fenced
from tests.unit.test_llm_offline import DATA, KPI, answer, kpi, request, run

TODAY = Section("today", "Today is 2026-05-13 (Europe/Berlin).")
BARE = (Section("base", "You are the advisor."), TODAY)
NO_PLAN = "There is no plan of that name. The plans are: Growth Circle, Starter Pack."


def error(message: str) -> str:
    return json.dumps({"error": message})


def after(asked: ModelRequest, calls: list[ToolCall], *results: str, is_error: bool) -> ModelRequest:
    """The request of the next round, in which `calls` returned `results`."""
    given = tuple(ToolResult(c.id, r, is_error) for c, r in zip(calls, results, strict=True))
    more = (Message("assistant", calls=tuple(calls)), Message("user", results=given))
    return ModelRequest(asked.task, asked.system, (*asked.messages, *more), asked.tools)


@pytest.mark.parametrize(
    ("question", "message", "reason"),
    [
        (
            "Show members on the Gold plan",
            NO_PLAN,
            "there is no plan of that name; the plans are: Growth Circle, Starter Pack",
        ),
        (
            "List the paused members",
            "For target members, status is one of: active, no_plan.",
            "the only kinds I can look up are: active, no plan",
        ),
        (
            "List transactions in 2030",
            "The site's data reaches to 2026-11-30 only: use an earlier since.",
            "the data reaches only to 2026-11-30",
        ),
        (
            "What is my churn?",
            "The tool failed. Tell the user that this cannot be looked up right now.",
            "it cannot be looked up right now",
        ),
        (
            "What is my churn?",
            "The tool did not answer within 5 seconds. Ask for less.",
            "looking it up took too long",
        ),
        ("What is my churn?", "Use another tool.", "it cannot be looked up right now"),
        (
            "What is my churn?",
            "Nothing was imported yet. Tell the user to import data.",
            "nothing was imported yet",
        ),
    ],
)
def test_a_failed_look_up_is_one_sentence_in_the_customers_words(
    question: str, message: str, reason: str
) -> None:
    said = answer(request(question, system=BARE), error(message), is_error=True)
    assert said == f'I could not look up "{question.rstrip("?")}": {reason}.'


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("That is remembered already. Nothing needs to be saved.", 'I remember that already: "we love tea".'),
        (
            "The memory is full (5 of 5). Decide with what matters.",
            'I could not save "we love tea": I remember as much as I may; delete an entry first.',
        ),
    ],
)
def test_what_could_not_be_remembered_says_why(message: str, said: str) -> None:
    asked = request("Remember that we love tea", system=BARE)
    assert answer(asked, error(message), is_error=True) == said


@pytest.mark.parametrize(
    ("question", "message", "again", "note"),
    [
        (
            "How many people are on the Starter plan?",
            NO_PLAN,
            {"target": "members", "filters": {"plan": "Starter Pack", "status": "active"}},
            'I took "Starter" for "Starter Pack".',
        ),
        (
            "Show members who joined between May and March",
            "since lies after until: exchange them.",
            {"target": "recent_members", "filters": {"since": "2026-03-01", "until": "2026-05-01"}},
            "I took it as 2026-03-01 to 2026-05-01.",
        ),
        (
            "Show plans over $30",
            "The filter min_amount does not work with target memberships: leave it out, or use target transactions.",
            {"target": "memberships"},
            "I cannot narrow this list by amount, so it is shown without that.",
        ),
        (
            "Show me the 300 latest members",
            "Wrong arguments. limit: Input should be less than or equal to 200. Mend them and call again.",
            {"target": "recent_members", "limit": 200},
            "I can look up at most 200 at once.",
        ),
    ],
)
def test_a_call_is_mended_as_its_error_says_and_the_change_is_told(
    question: str, message: str, again: dict[str, Any], note: str
) -> None:
    asked = request(question, system=BARE)
    _, calls, _ = run(asked)
    second = after(asked, calls, error(message), is_error=True)
    _, mended, _ = run(second)
    assert [(c.name, c.input) for c in mended] == [("query_site_data", again)]
    assert mended[0].id != calls[0].id
    text, more, _ = run(
        after(
            second,
            mended,
            json.dumps({"total": 0, "rows": [], "as_of": "2026-05-12T00:00:00Z"}),
            is_error=False,
        )
    )
    assert not more
    assert text.startswith(note)
    assert "as of 2026-05-12" in text


def test_a_mended_call_that_fails_too_is_told_and_not_tried_again() -> None:
    asked = request("How many people are on the Starter plan?", system=BARE)
    _, calls, _ = run(asked)
    second = after(asked, calls, error(NO_PLAN), is_error=True)
    _, mended, _ = run(second)
    text, more, _ = run(after(second, mended, error(NO_PLAN), is_error=True))
    assert not more
    assert "I could not look up" in text


def test_an_ambiguous_plan_is_not_guessed() -> None:
    arguments = {"target": "members", "filters": {"plan": "Circle"}}
    content = error("There is no plan of that name. The plans are: Growth Circle, Inner Circle.")
    assert mistakes.mended(arguments, content) is None


def test_no_fence_leaks_from_any_section() -> None:
    record = (
        "Session of 2026-05-02:\nWe planned.\nDecisions:\n- Offer 20 % off\nNote for the next session: Ask."
    )
    system = (
        *BARE,
        Section("wrap_ups", fenced("wrap_ups", record)),
        Section("soul", fenced("soul", "SOUL, as of 2026-05-01:\n\nWe teach yoga.")),
        Section("memory", fenced("memory", "- 2026-04-02: We love tea")),
        Section("knowledge", fenced("knowledge", "[1] Prices\nYearly prices calm cash flow.")),
    )
    for question in ("Where were we?", "What do you remember about me?", "How should I set prices?"):
        text, _, _ = run(request(question, system=system))
        assert "data" not in text


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "What did we decide last time?",
            "In our session of 2026-05-02 we decided: Offer 20 % off; Write an email.",
        ),
        (
            "What was still open from our last session?",
            "In our session of 2026-05-02 was left open: Find a date.",
        ),
        (
            "Was haben wir letztes Mal beschlossen?",
            "In our session of 2026-05-02 we decided: Offer 20 % off; Write an email.",
        ),
        (
            "What did we agree on pricing?",
            "The last on record: In our session of 2026-05-02",
        ),
    ],
)
def test_a_session_is_told_as_far_as_it_is_asked_for(question: str, said: str) -> None:
    record = "Session of 2026-05-02:\nWe spoke.\nDecisions:\n- Offer 20 % off.\n- Write an email.\nOpen items:\n- Find a date."
    text, _, _ = run(request(question, system=(*BARE, Section("wrap_ups", fenced("wrap_ups", record)))))
    assert said in text


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        (
            "Remember that we meet on Tuesdays, and how many active members do I have?",
            ["we meet on Tuesdays"],
        ),
        ("Can you remember that we love tea?", ["we love tea"]),
        ("Merk dir, dass wir im August schließen.", ["wir im August schließen"]),
        ("Remember when we talked about pricing?", []),
        ("Remember the plans you showed me?", []),
    ],
)
def test_a_question_is_never_stored(question: str, kept: list[str]) -> None:
    _, calls, _ = run(request(question))
    assert [c.input["content"] for c in calls if c.name == "update_customer_brain"] == kept


@pytest.mark.parametrize(
    ("question", "tool"),
    [
        ("What exactly were the cancellations you showed me?", "query_site_data"),
        ("How many cancellations did you tell me about last time?", "query_kpi_trend"),
        ("List the recent members you showed me again", "query_site_data"),
        ("Who were the new members you listed?", "query_site_data"),
        ("What was my MRR when you last told me?", "query_kpi_trend"),
    ],
)
def test_a_stored_result_is_asked_for_by_the_tool_that_made_it(question: str, tool: str) -> None:
    _, calls, _ = run(request(question, system=BARE))
    assert [(c.name, c.input) for c in calls] == [("recall_prior_tool_result", {"tool_name": tool})]


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("How many cancellations did you tell me about?", '(target="cancellations"): 4 cancellations'),
        ("Remind me of the recent members", '(metric="new_members"): latest 4 members'),
    ],
)
def test_a_list_and_the_metric_of_the_same_happening_answer_for_each_other(question: str, line: str) -> None:
    fetched = Section("previously_fetched", f"Previously fetched:\n- 2026-05-12 query_x{line}")
    text, calls, _ = run(request(question, system=(*BARE, fetched)))
    assert not calls
    assert text == f"As of 2026-05-12 (query_x): {line.split(': ')[1]}."


def test_a_stored_result_about_something_else_is_not_passed_off() -> None:
    stored = {
        "fetched_on": "2026-05-10",
        "tool_name": "query_kpi_trend",
        "tool_input": {"metric": "revenue"},
        "result": kpi("revenue", "900.00"),
        "other_results_stored": 3,
    }
    asked = request("What was my MRR when you last told me?", system=BARE)
    text = answer(asked, stored)
    assert "900.00" not in text
    assert "the newest stored result, of 2026-05-10, is about something else" in text
    stored["tool_input"] = {"metric": "mrr"}
    assert answer(asked, stored).startswith("As of 2026-05-10 (query_kpi_trend): MRR: 900.00")


@pytest.mark.parametrize(
    ("question", "metric"),
    [
        ("Has my MRR grown since the last time I asked?", "mrr"),
        ("What is my churn rate and how does it compare to last time?", "churn_rate"),
        ("compare my active members with last time", "active_members"),
    ],
)
def test_a_comparison_with_earlier_asks_for_now_too(question: str, metric: str) -> None:
    line = f'Previously fetched:\n- 2026-05-01 query_kpi_trend(metric="{metric}"): latest 114'
    asked = request(question, system=(*BARE, Section("previously_fetched", line)))
    _, calls, _ = run(asked)
    assert [(c.name, c.input["metric"]) for c in calls] == [("query_kpi_trend", metric)]
    text = answer(asked, kpi(metric, 128))
    assert "As of 2026-05-01 (query_kpi_trend): latest 114." in text
    assert "128" in text


@pytest.mark.parametrize(
    "question", ["Do you remember my dog's name?", "What did you say about the weather?"]
)
def test_what_was_never_said_is_not_answered_with_other_lines(question: str) -> None:
    text, calls, _ = run(request(question))
    assert not calls
    assert text.startswith("Nothing is stored about that")


def test_last_time_is_the_last_session_whatever_words_it_used() -> None:
    records = "\n\n".join(
        f"Session of 2026-05-0{n}:\nWe spoke.\nDecisions:\n- {decided}"
        for n, decided in ((1, "The trial lasts a week"), (2, "Write an email"), (3, "Offer fourteen days"))
    )
    system = (*BARE, Section("wrap_ups", fenced("wrap_ups", records)))
    text, _, _ = run(request("What did we decide about the trial last time?", system=system))
    assert [line.split(":")[0] for line in text.splitlines()] == [
        "In our session of 2026-05-01 we decided",
        "In our session of 2026-05-03 we decided",
    ]


def test_a_recall_of_a_plan_is_told_by_the_line_that_names_it() -> None:
    lines = (
        'Previously fetched:\n- 2026-05-12 query_site_data(target="members"): 300 members\n'
        '- 2026-05-10 query_site_data(target="memberships"): 5 plans, Gold 23 active'
    )
    system = (*BARE, Section("previously_fetched", lines))
    text, _, _ = run(request("How many people on the Gold plan did you tell me about?", system=system))
    assert text == "As of 2026-05-10 (query_site_data): 5 plans, Gold 23 active."


def test_a_recall_that_names_no_topic_is_told_every_line() -> None:
    text, _, _ = run(request("Where did the figures you showed me come from?"))
    assert "As of 2026-05-12 (query_site_data)" in text
    assert "As of 2026-05-01 (query_kpi_trend)" in text


@pytest.mark.parametrize(
    "question",
    [
        "You told me last time that I have 114 active members, so what is our best plan?",
        "La última vez me dijiste que tengo 114 miembros activos.",
        "Du hast letztes Mal gesagt, wir haben 114 aktive Mitglieder.",
    ],
)
def test_a_number_taken_from_earlier_talk_is_checked(question: str) -> None:
    _, calls, _ = run(request(question))
    assert ("query_kpi_trend", "active_members") in [(c.name, c.input.get("metric")) for c in calls]


def test_what_was_asked_before_is_told_with_its_day() -> None:
    history = (
        Message("user", "[2026-05-12] What is my churn?"),
        Message("assistant", "4 %."),
        Message("user", "[2026-05-13] Which plans do I offer?"),
        Message("assistant", "Two."),
    )
    text, _, _ = run(request("What did I ask before?", history=history))
    assert text == 'You asked:\n- 2026-05-12: "What is my churn?"\n- 2026-05-13: "Which plans do I offer?"'
    text, _, _ = run(request("When did I last ask you about churn?", history=history))
    assert text == 'You asked:\n- 2026-05-12: "What is my churn?"'
    text, _, _ = run(request("What did I ask before?", system=BARE))
    assert text.startswith("Nothing is stored")


def test_what_is_known_of_the_customer_is_their_memories_and_not_the_numbers_fetched() -> None:
    text, calls, _ = run(request("What do you remember about me?"))
    assert not calls
    assert text == 'As of 2026-04-02 you told me: "Our audience is retired teachers"'


@pytest.mark.parametrize(
    ("question", "arguments", "value"),
    [
        ("What was my revenue last month?", {"granularity": "month", "periods": 2}, "10.00"),
        ("What was my revenue in April?", {"granularity": "month", "periods": 2}, "10.00"),
        ("Umsatz im letzten Monat", {"granularity": "month", "periods": 2}, "10.00"),
        ("What was my revenue on 2026-05-10?", {"granularity": "day", "periods": 4}, "20.00"),
        (
            "How is revenue this month compared to last month?",
            {"granularity": "month", "periods": 2},
            "20.00",
        ),
    ],
)
def test_the_figure_is_of_the_time_that_was_asked_for(
    question: str, arguments: dict[str, Any], value: str
) -> None:
    data = kpi("revenue", "10.00", "20.00")
    first, last = data["series"][0]["points"]
    first |= {"from": "2026-04-01", "to": "2026-04-30"}
    last |= {"from": "2026-05-01", "to": "2026-05-31", "partial": True}
    asked = request(question, system=BARE)
    _, calls, _ = run(asked)
    assert calls[0].input == {"metric": "revenue", **arguments}
    assert answer(asked, data).startswith(f"Revenue: {value} USD")


def test_a_day_that_the_data_does_not_reach_is_said() -> None:
    text = answer(request("What was my revenue on 2027-05-05?", system=BARE), kpi("revenue", "10.00"))
    assert text == "There is no revenue data for 2027-05-05: the data reaches to 2026-05-12."


def test_a_running_period_is_not_compared_with_whole_ones() -> None:
    data = kpi("revenue", "10.00", "15.00", "3.00")
    data["series"][0]["points"][-1]["partial"] = True
    text = answer(request("What is my revenue?", system=BARE), data)
    assert "Revenue: 3.00 USD so far" in text
    assert "Over 2 whole periods it went from 10.00 USD to 15.00 USD" in text


@pytest.mark.parametrize(
    ("before", "question", "expected"),
    [
        (
            "Who cancelled last month?",
            "And this month?",
            {"target": "cancellations", "filters": {"since": "2026-05-01"}},
        ),
        (
            "How many people are on Gold?",
            "and how many now?",
            {"target": "members", "filters": {"plan": "Gold", "status": "active"}},
        ),
        (
            "What is my churn?",
            "And last month?",
            {"metric": "churn_rate", "granularity": "month", "periods": 2},
        ),
    ],
)
def test_a_question_of_a_time_alone_is_about_what_was_asked_before(
    before: str, question: str, expected: dict[str, Any]
) -> None:
    history = (Message("user", f"[2026-05-13] {before}"), Message("assistant", "So many."))
    _, calls, _ = run(request(question, history=history))
    assert [c.input for c in calls] == [expected]


def test_then_and_now_of_a_plan_is_the_line_and_a_fresh_count() -> None:
    line = 'Previously fetched:\n- 2026-05-10 query_site_data(target="memberships"): 5 plans, Gold 23 active'
    asked = request(
        "How many people on Gold did you tell me about earlier, and how many are there now?",
        system=(*BARE, Section("previously_fetched", line)),
    )
    text = answer(asked, {"total": 52, "rows": [{"name": "Ann"}], "as_of": "2026-05-12T00:00:00Z"})
    assert "As of 2026-05-10 (query_site_data): 5 plans, Gold 23 active." in text
    assert "52 members, as of 2026-05-12" in text


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("I still need to write the email text.", "Understood."),
        ("Thanks!", "You are welcome."),
        ("What can you do?", "offline stand-in"),
        ("???", "offline stand-in"),
        ("Delete all my memories", "I delete nothing from here"),
    ],
)
def test_what_is_no_question_about_the_site_gets_a_fitting_answer(message: str, said: str) -> None:
    history = (Message("user", "[2026-05-13] What is my churn?"), Message("assistant", "Churn is 4 %."))
    text, calls, _ = run(request(message, history=history, system=BARE))
    assert not calls
    assert said in text


def test_a_judgement_gets_the_number_and_the_source() -> None:
    asked = request("Is my churn good?")
    text = answer(asked, kpi("churn_rate", 4.7))
    assert "Churn rate: 4.7%" in text
    assert "[1]" in text


def test_a_meaning_is_told_from_the_knowledge_base() -> None:
    text, calls, _ = run(request("What is churn?", tools=(KPI, DATA)))
    assert not calls
    assert "[1]" in text


@pytest.mark.parametrize(
    ("question", "filters"),
    [
        ("Find Lucia Park", {"search": "Lucia Park"}),
        ("Who is lucia@members.example?", {"search": "lucia@members.example"}),
        ("How many Growth Circle members do I have?", {"plan": "Growth Circle", "status": "active"}),
        ("How many are on Basic?", {"plan": "Basic", "status": "active"}),
        ("Given 40 people on Basic in April, what would you change?", {"plan": "Basic", "status": "active"}),
        ("Given 40 people on Basic, what would you change?", {"plan": "Basic", "status": "active"}),
    ],
)
def test_people_are_found_by_name_address_and_plan(question: str, filters: dict[str, str]) -> None:
    _, calls, _ = run(request(question))
    assert [c.input for c in calls] == [{"target": "members", "filters": filters}]


@pytest.mark.parametrize(
    "question",
    [
        "Da wir 114 Mitglieder haben, sollen wir die Preise erhöhen?",
        "Reicht das mit 114 aktiven Mitgliedern?",
        "Como tenemos 114 miembros, ¿debería subir los precios?",
        "Puisque nous avons 114 membres, que faire?",
    ],
)
def test_a_premise_is_corrected_in_other_languages_too(question: str) -> None:
    text = answer(request(question, system=BARE), kpi("active_members", 128))
    assert "You mention 114; the figure is now 128" in text


def test_a_premise_about_a_plan_is_corrected_by_its_count() -> None:
    asked = request("Since we have 40 people on the Gold plan, should we raise its price?", system=BARE)
    text = answer(asked, {"total": 52, "rows": [{"name": "Ann"}], "as_of": "2026-05-12T00:00:00Z"})
    assert text.startswith("You mention 40; it is now 52. 52 members, as of 2026-05-12")


def test_members_lost_are_cancelled_members() -> None:
    _, calls, _ = run(request("How many members did we lose yesterday?"))
    assert [c.input for c in calls] == [{"metric": "cancelled_members", "granularity": "day", "periods": 2}]
