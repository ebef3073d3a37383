"""Each grader fails the answers it must fail, and passes the unusual ones that keep its rule."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from evals.graders import calibration
from evals.graders.memory import unscoped
from evals.graders.reading import names_day, numbers_in, passages
from evals.graders.recall import in_block

DAY = date(2026, 5, 12)
ANSWERS = calibration.cases()


@pytest.mark.parametrize("row", ANSWERS, ids=lambda r: f"{r['rule']}: {r['text'][:50]}")
def test_a_rule_is_kept_or_broken_by_the_answers_that_are_said_to(row: dict[str, Any]) -> None:
    found = calibration.graded(row)
    assert found.passed == row["keeps"], found.faults


def test_every_rule_has_three_answers_that_break_it_and_three_unusual_ones_that_keep_it() -> None:
    counted = Counter((row["rule"], row.get("expect", ""), row["keeps"]) for row in ANSWERS)
    rules = {key[:2] for key in counted}
    assert len(rules) == 15
    assert all(counted[*rule, keeps] >= 3 for rule in rules for keeps in (True, False)), counted


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-12",
        "as of May 12",
        "on the 12th of May it stood at 23",
        "May 12th, 2026",
        "12 May",
        "am 12. Mai",
        "12.05.2026",
        "vom 12.5. an",
        "05/12/2026",
        "12/05/26",
        "el 12 de mayo de 2026",
        "le 12 mai",
        "5月12日",
    ],
)
def test_a_day_is_recognised_however_it_is_written(text: str) -> None:
    assert names_day(text, DAY)
    assert not names_day(text, date(2026, 5, 13))
    assert not names_day(text, date(2026, 6, 12))


@pytest.mark.parametrize("text", ["12 members in May", "version 12.5", "May I?", "5.12 dollars", "2026"])
def test_a_number_is_not_taken_for_a_day(text: str) -> None:
    assert not names_day(text, DAY)


def test_numbers_are_read_in_both_notations_and_days_are_none() -> None:
    text = "On 12 May query_kpi_trend(periods=8) gave 1.234,50 € and 1,234 members, USD 2,413.00, 46%."
    assert numbers_in(text) >= {Decimal("1234.5"), Decimal(1234), Decimal(2413), Decimal(46)}
    assert not numbers_in(text) & {Decimal(12), Decimal(8)}


def test_a_row_of_a_table_stands_under_its_header_and_an_item_under_its_introduction() -> None:
    text = "As of May 5:\n- 46 members\n\n| day | n |\n|---|---|\n| May 12 | 23 |\nAm 12. Mai waren es 23."
    assert passages(text)[1:] == [
        "As of May 5: - 46 members",
        "As of May 5: | day | n | | May 12 | 23 |",
        "As of May 5: Am 12. Mai waren es 23.",
    ]


def test_a_case_whose_block_never_left_is_not_reached() -> None:
    facts = calibration.Facts(calibration.TODAY, calibration.FACT)
    assert in_block((calibration.LINE,), facts)
    assert not in_block(("As of 2026-05-05 there were 46.",), facts)
    assert not in_block((calibration.LINE.replace("46", "47"),), facts)
    assert not in_block((), facts)


def test_only_the_role_of_the_app_must_name_the_user_in_every_statement() -> None:
    sweep = "delete from retrieval_events where created_at < %s"
    assert unscoped((("sweep", sweep),)) == []
    assert unscoped((("app", sweep),))
