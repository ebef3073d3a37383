"""The tool that brings back a stored snapshot whole, from any conversation of this user and site, with its date."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from pydantic import ConfigDict, Field

from common.shapes import Shape
from common.tools.types import Tool, ToolContext, ToolMistake, ToolOutput


class Arguments(Shape):
    model_config = ConfigDict(extra="forbid")
    tool_name: str | None = Field(None, description="Only results of this tool, such as query_site_data")
    since_days: int | None = Field(None, ge=1, le=180, description="Only results of the last so many days")


# A result is read as it was stored: looking at it renews nothing. Conversations that were not to be remembered stay out.
_NEWEST = sa.text("""
    with stored as (
        select s.tool_name, s.tool_input, s.tool_output, s.created_at, s.observed_at, s.position, s.is_error, s.site_id,
               s.conversation_id
        from message_tool_results s where s.user_id = :user_id
        union all
        -- of the turn just before, while its event waits
        select r.tool_name, r.tool_input, r.tool_output, r.created_at, r.observed_at, r.position, r.is_error,
               cast(e.payload->>'site_id' as uuid), e.conversation_id
        from outbox_events e
        cross join lateral jsonb_to_recordset(e.payload->'results') as r (
            tool_name text, tool_input jsonb, tool_output jsonb, created_at timestamptz, observed_at timestamptz,
            position integer, is_error boolean)
        where e.user_id = :user_id and e.type = 'tool-results')
    select s.tool_name, s.tool_input, s.tool_output, s.created_at, s.observed_at, count(*) over () as found
    from stored s
    join conversations c on c.id = s.conversation_id and c.user_id = :user_id
    where s.site_id is not distinct from cast(:site_id as uuid) and not s.is_error
      and not (s.tool_name = any(cast(:hidden as text[])))
      and (cast(:tool_name as text) is null or s.tool_name = :tool_name)
      and (cast(:since as timestamptz) is null or s.created_at >= :since)
      and (c.remember or c.id = :conversation_id)
    order by s.created_at desc, s.position desc
    limit 1
""")


def recall(context: ToolContext, arguments: Arguments) -> ToolOutput:
    """The newest stored result that fits, with the day it was fetched in the site's zone."""
    since = context.now - timedelta(days=arguments.since_days) if arguments.since_days else None
    row = context.connection.execute(
        _NEWEST,
        {
            "user_id": context.user_id,
            "site_id": context.site.id if context.site else None,
            "conversation_id": context.conversation_id,
            "hidden": ["recall_prior_tool_result", "update_customer_brain"],
            "tool_name": arguments.tool_name,
            "since": since,
        },
    ).first()
    if row is None:
        raise ToolMistake("No stored result fits. Say that nothing like it is stored, or query it fresh.")
    zone = ZoneInfo(context.site.timezone if context.site else "UTC")
    return ToolOutput(
        {
            "note": "A stored snapshot, not live data. Refer to it as of its date.",
            "fetched_on": row.created_at.astimezone(zone).date().isoformat(),
            "tool_name": row.tool_name,
            "tool_input": row.tool_input,
            "result": row.tool_output,
            "other_results_stored": row.found - 1,
        },
        as_of=row.observed_at,
    )


def _signals(arguments: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": output["tool_name"], "fetched_on": output["fetched_on"]}


def _summarise(signals: dict[str, Any], earlier: dict[str, Any] | None, day: date | None) -> str:
    return f"{signals['tool_name']} of {signals['fetched_on']}"


TOOL = Tool(
    name="recall_prior_tool_result",
    description=(
        "Returns, whole and with its date, the newest stored result of an earlier tool call of this customer and site, from this or"
        " another conversation. Use it when the customer refers to something you showed them before and the details are not in front"
        " of you. It is a snapshot: say 'as of <date>', and never present it as live data."
    ),
    arguments=Arguments,
    handler=recall,
    signals=_signals,
    summarise=_summarise,
    volatility="stable",
    recallable=False,
)
