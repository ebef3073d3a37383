"""Which sources an answer cites."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from common.knowledge.citations import cited, number_sources
from common.knowledge.search import Candidate

ANSWERS = [
    ("Prices rose [1].", {1}),
    ("As [1] says, annual plans keep members longer [3].", {1, 3}),
    ("Both agree [1, 3].", {1, 3}),
    ("Both agree [1,3].", {1, 3}),
    ("Both agree [1; 3].", {1, 3}),
    ("Both agree [1][3].", {1, 3}),
    ("Both agree [1] [3].", {1, 3}),
    ("All of them [2-4].", {2, 3, 4}),
    ("All of them [2–4].", {2, 3, 4}),
    ("All of them [2 - 4].", {2, 3, 4}),
    ("Most of them [1, 3-5].", {1, 3, 4, 5}),
    ("From four down [4-2].", set()),
    ("More than there are [4-9].", {4, 5}),
    ("In the years [2023-2025].", set()),
    ("Nothing is cited.", set()),
    ("", set()),
    ("Out of range [6], [0], [99].", set()),
    ("A huge number [123456789].", set()),
    ("Without a space[2].", {2}),
    ("According to [2]: send three mails.", {2}),
    ("In bold **[1]**, in italics *[2]*.", {1, 2}),
    ("- first [1]\n- second [2]\n  - nested [3]", {1, 2, 3}),
    ("# A heading [4]\n\nText.", {4}),
    ("| plan | why |\n|---|---|\n| Gold | keeps members [2] |", {2}),
    ("A superscript mark<sup>[1]</sup> counts.", {1}),
    ("A superscript¹ or <sup>2</sup> without brackets does not.", set()),
    ("Inline code `rows[1]` is not a mark, [2] is.", {2}),
    ("Two ticks ``a ` [1]`` are code.", set()),
    ("```\nx = [1]\n```\nSee [2].", {2}),
    ("~~~python\nx = [1]\n~~~", set()),
    ("```\nnever closed [1]", set()),
    ("Text.\n\n    indented = [1]\n\nText [3].", {3}),
    ("As HTML <code>[1]</code> and <a href='x'>[2]</a>.", set()),
    ("A link [1](https://example.com) is none.", set()),
    ("A link [see [1]](https://example.com) is none.", set()),
    ("A link with a title [1](https://example.com 'one').", set()),
    ("A picture ![1](chart.png).", set()),
    ("A reference link [1][guide].\n\n[guide]: https://example.com", set()),
    ("A reference link [the guide][1].\n\n[1]: https://example.com", set()),
    ("A reference link without its definition [the guide][1].", set()),
    ("The same the other way round [1][guide].", set()),
    ("A short reference link [1].\n\n[1]: https://example.com", set()),
    ("A footnote[^1] is none, and so is its text.\n\n[^1]: Text.", set()),
    ("A source and a footnote [1][^2].", {1}),
    ("> You wrote [1].\n\nThe guide says so [2].", {2}),
    ("> You wrote\ncarried on [1] without a mark.", set()),
    ("> > Twice quoted [1].", set()),
    ("Escaped \\[1\\] is no mark.", set()),
    ("A task list:\n\n- [x] done\n- [ ] open", set()),
    ("Letters [a], [1a], [n].", set()),
    ("Other digits [١] and other brackets (1), {1}, 【1】.", set()),
    ("Line one [1]\nline two [2]", {1, 2}),
    ("Sources: [1], [2] and [3]", {1, 2, 3}),
    ("[5] begins the answer.", {5}),
    ("An open bracket [1", set()),
    ("A mark in a broken link [1](see the guide).", {1}),
]


@pytest.mark.parametrize(("answer", "numbers"), ANSWERS)
def test_the_numbers_an_answer_cites(answer: str, numbers: set[int]) -> None:
    assert cited(answer, 5) == numbers


def test_without_sources_nothing_is_cited() -> None:
    assert cited("As [1] says.", 0) == frozenset()


def test_an_answer_of_brackets_is_read_in_linear_time() -> None:
    assert cited("[" * 20_000 + "1" + "]" * 20_000, 5) <= {1}
    assert cited("[1, " * 5_000, 5) == frozenset()
    assert cited("[1]" * 10_000 + "[", 5) in ({1}, set())


def test_sources_are_numbered_by_position_with_title_and_address() -> None:
    now = datetime(2026, 5, 12, tzinfo=UTC)
    first = Candidate(
        uuid.uuid4(), "a", "Win-back\nmails", "https://club.example/a", "Send three.", now, now, 0.8, 1, True
    )
    second = Candidate(uuid.uuid4(), "b", "Pricing", None, "Raise it once a year.", now, now, 0.7, 2, True)
    assert number_sources([first, second]) == [
        "[1] Win-back mails (https://club.example/a)\nSend three.",
        "[2] Pricing\nRaise it once a year.",
    ]
