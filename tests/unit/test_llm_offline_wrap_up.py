"""The offline model's wrap-ups: what counts as decided, open and learned, message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.config import Settings
from common.llm import offline
from common.llm.offline.wrap_up import MAX_WORDS, write_wrap_up
from common.llm.types import Message, ModelRequest, Section, TextDelta


def transcript(*messages: tuple[str, str]) -> str:
    return "\n".join(
        f"[m{n}] {role} (2026-05-12): {text}" for n, (role, text) in enumerate(messages, start=1)
    )


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["text"] for item in items]


@pytest.mark.parametrize(
    ("said", "decided"),
    [
        ("Let's start the spring campaign on May 15.", ["Let's start the spring campaign on May 15."]),
        ("Ok, we'll go with the yearly plan.", ["We'll go with the yearly plan."]),
        ("We have decided to close in August.", ["We have decided to close in August."]),
        ("Agreed, the price stays at 29 euros.", ["Agreed, the price stays at 29 euros."]),
        ("Lass uns die Preise im Juni senken.", ["Lass uns die Preise im Juni senken."]),
        ("Vamos a lanzar la campaña en mayo.", ["Vamos a lanzar la campaña en mayo."]),
        ("Should we go with the yearly plan?", []),
        ("Maybe we'll go with the yearly plan.", []),
        ("If we raise prices we will lose members.", []),
        ("Let's talk about churn.", []),
        ('The consultant wrote "we have decided to double the fee for everyone".', []),
        ("See this:\n> Let's delete all members.", []),
        ("```\nWe decided to close the shop.\n```", []),
    ],
)
def test_what_the_user_decides(said: str, decided: list[str]) -> None:
    assert texts(write_wrap_up(transcript(("user", said)), {})["decisions"]) == decided


def test_a_suggestion_counts_when_the_user_agrees_and_names_both_messages() -> None:
    made = write_wrap_up(
        transcript(
            ("user", "How do I win lapsed members back?"),
            ("assistant", "Lapsed members react to offers. I suggest a 20 % discount for two weeks."),
            ("tool", "I suggest to delete everyone."),
            ("user", "Good idea, let's do it."),
        ),
        {},
    )
    assert made["decisions"] == [
        {"text": "I suggest a 20 % discount for two weeks.", "message_ids": ["m2", "m4"]}
    ]


def test_a_suggestion_alone_is_no_decision() -> None:
    said = transcript(("assistant", "I suggest a discount."), ("user", "I'm not sure about that yet."))
    assert write_wrap_up(said, {})["decisions"] == []


def test_a_reversed_decision_appears_once_as_reversed_to() -> None:
    made = write_wrap_up(
        transcript(
            ("user", "Let's start the campaign on May 15. We'll use the newsletter."),
            ("assistant", "Noted."),
            ("user", "Actually, let's start the campaign on June 1 instead."),
        ),
        {},
    )
    assert texts(made["decisions"]) == [
        "We'll use the newsletter.",
        "Let's start the campaign on June 1 instead.",
    ]


def test_a_dropped_decision_is_gone() -> None:
    said = transcript(("user", "Let's run a discount."), ("user", "Scrap that, too risky."))
    assert write_wrap_up(said, {})["decisions"] == []


def test_tool_results_never_count() -> None:
    said = transcript(("tool", "We decided to sell everything."), ("system", "Let's delete the site."))
    made = write_wrap_up(said, {})
    assert (made["decisions"], made["open_items"], made["new_context"]) == ([], [], [])


def test_open_items_facts_and_the_note() -> None:
    made = write_wrap_up(
        transcript(
            ("user", "We run a yoga club for retired teachers. I prefer short answers."),
            ("user", "I still need to write the email. I also need to ask my partner about the price."),
            ("user", "I've already asked my partner about the price. What should the subject line be?"),
        ),
        {},
    )
    assert texts(made["new_context"]) == [
        "We run a yoga club for retired teachers.",
        "I prefer short answers.",
    ]
    assert made["open_items"][0] == {"text": "I still need to write the email.", "message_ids": ["m2"]}
    assert len(made["open_items"]) == 2
    assert made["open_items"][1]["text"].startswith("Unanswered: ")
    assert "subject line" in made["next_session_note"]


def test_a_wrap_up_stays_within_its_words() -> None:
    long = " ".join(["word"] * 60)
    said = f"Let's do number 1 {long}. I need to {long}. My goal is {long}."
    lines = transcript(*(("user", said.replace("1", str(n))) for n in range(30)))
    made = write_wrap_up(lines, {})
    assert made["decisions"]
    assert len(json.dumps(made).split()) <= MAX_WORDS


def test_it_streams_one_json_object_and_follows_a_schema_of_strings() -> None:
    schema = {"properties": {"decisions": {"items": {"type": "string"}}}}
    asked = ModelRequest(
        "wrap_up",
        (Section("base", "Write a wrap-up."),),
        (Message("user", "Transcript:\n" + transcript(("user", "Let's run a discount."))),),
        schema=schema,
    )
    events = list(offline.provider(Settings()).stream(asked, "offline-1"))
    made = json.loads("".join(e.text for e in events if isinstance(e, TextDelta)))
    assert set(made) == {"summary", "decisions", "open_items", "new_context", "next_session_note"}
    assert made["decisions"] == ["Let's run a discount."]
