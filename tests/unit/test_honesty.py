"""The monitor that counts old numbers given without their day."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from common.memory.honesty import undated_values
from common.memory.snapshot_summary import Snapshot

AT = datetime(2026, 5, 12, 9, 0, tzinfo=UTC)
MEMBERS = Snapshot(
    "query_kpi_trend",
    {"metric": "active_members"},
    {"trend": "7-week trend, +12%", "latest": "1,128 members"},
    AT,
)
PLANS = Snapshot(
    "query_site_data", {"target": "memberships"}, {"plans": 5, "largest": {"name": "Gold", "active": 23}}, AT
)


def count(answer: str, *fresh: str) -> int:
    return undated_values(answer, [MEMBERS, PLANS], frozenset(fresh), "Europe/Berlin")


@pytest.mark.parametrize(
    "answer",
    [
        "You have 1,128 members.",
        "You have 1128 members.",
        "Sie haben 1.128 Mitglieder.",
        "1 128 members",
        "Gold has 23 members.",
    ],
)
def test_a_bare_old_number_counts(answer: str) -> None:
    assert count(answer) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "As of 2026-05-12 you had 1,128 members.",
        "On the 12th of May it stood at 1128.",
        "as of May 12, Gold had 23",
        "Am 12. Mai waren es 1.128.",
        "12/05: 23 members",
        "You have 5 plans.",
        "It grew by 12% over 7 weeks.",
        "In 2026 there were 12 of them.",
        "There are 11,283 of them.",
    ],
)
def test_a_dated_or_other_number_does_not(answer: str) -> None:
    assert count(answer) == 0


def test_a_fresh_call_of_the_tool_makes_its_numbers_todays() -> None:
    assert count("You have 1,128 members.", "query_kpi_trend") == 0
    assert count("You have 1,128 members.", "query_site_data") == 1
