"""The skills: small model calls with their own tools, for questions that need nothing that was said before.

A skill's request has no field for history, memory or knowledge, and this module may not import them: what it never gets, it cannot leak
or mistake for the question's context.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from common.advisor import prompts
from common.llm.types import Message, Section, ToolCall, ToolSpec

HAND_OVER = ToolSpec(
    "hand_over",
    "Gives the question to the advisor, who knows the earlier conversation and can give advice. Call it, and write nothing, when the"
    " question is not of your kind or refers to something that you cannot see.",
    {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "enum": ["not_my_kind", "refers_to_earlier", "needs_advice"]}
        },
        "required": ["reason"],
        "additionalProperties": False,
    },
)


class Skill(NamedTuple):
    """A kind of question and the tools that answer it."""

    name: str
    scope: str
    tools: tuple[str, ...]


SKILLS = {
    skill.name: skill
    for skill in (
        Skill("kpi", prompts.SKILL_SCOPE["kpi"], ("query_kpi_trend",)),
        Skill("site_data", prompts.SKILL_SCOPE["site_data"], ("query_site_data",)),
        Skill("revenue", prompts.SKILL_SCOPE["revenue"], ("query_kpi_trend", "query_site_data")),
    )
}


class SkillRequest(NamedTuple):
    """All that a skill gets."""

    query: str
    today: date
    timezone: str


def skill_prompt(skill: Skill, request: SkillRequest) -> tuple[tuple[Section, ...], tuple[Message, ...]]:
    """The system sections and the one message of a skill's call."""
    sections = (
        Section("skill", f"{prompts.SKILL}\n\n{skill.scope}", stable=True),
        Section("today", prompts.today(request.today, request.timezone)),
    )
    return sections, (Message("user", request.query),)


def hand_over_reason(calls: Sequence[ToolCall]) -> str:
    """Why a skill's first calls give the question away; empty when the skill keeps it. A skill that answers without looking anything
    up gives it away too: it has nothing else to answer from."""
    if not calls:
        return "no_tool"
    asked = next((call for call in calls if call.name == HAND_OVER.name), None)
    if asked is None:
        return ""
    reasons = HAND_OVER.parameters["properties"]["reason"]["enum"]
    reason = asked.input.get("reason")
    return str(reason) if reason in reasons else "unstated"
