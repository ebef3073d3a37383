"""The tables in BigQuery: their columns and what fills them. Nothing that a customer wrote is among them; a new column is a line here
and in `terraform/schemas`, which a test holds to this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Column(NamedTuple):
    """A column and the SQL that gives its value. Times are written in UTC without a zone, which BigQuery reads as UTC."""

    name: str
    type: str
    sql: str = ""
    required: bool = True

    @property
    def mode(self) -> str:
        """As BigQuery says it."""
        return "REQUIRED" if self.required else "NULLABLE"

    @property
    def expression(self) -> str:
        """What stands in the select list."""
        if self.sql:
            return self.sql
        return f"{self.name} at time zone 'UTC'" if self.type == "TIMESTAMP" else self.name


@dataclass(frozen=True)
class Table:
    """A table of the warehouse, partitioned by the day of `partition`, and the table it copies. `moment` is that day's column in
    PostgreSQL, `day_start` what a day's first moment is there."""

    name: str
    source: str
    partition: str
    clustering: tuple[str, ...]
    columns: tuple[Column, ...]
    only: str = "true"
    day_start: str = "cast('{day}' as timestamp) at time zone 'UTC'"

    def rows_of(self, first: str, after: str) -> str:
        """The condition for the rows from the day `first` until before the day `after` (ISO dates)."""
        since, until = self.day_start.format(day=first), self.day_start.format(day=after)
        return f"{self.partition} >= {since} and {self.partition} < {until} and {self.only}"


TABLES = (
    Table(
        "retrieval_events",
        "retrieval_events",
        "created_at",
        ("entry_id",),
        (
            Column("message_id", "STRING"),
            Column("user_id", "STRING"),
            Column("entry_id", "STRING"),
            Column("rank", "INTEGER"),
            Column("score", "FLOAT"),
            Column("surfaced", "BOOLEAN"),
            Column("cited", "BOOLEAN"),
            Column("created_at", "DATETIME"),
        ),
        day_start="cast('{day}' as timestamp)",
    ),
    Table(
        "entry_performance",
        "entry_performance",
        "day",
        ("entry_id",),
        (
            Column("day", "DATE"),
            Column("entry_id", "STRING"),
            Column("retrieved", "INTEGER"),
            Column("surfaced", "INTEGER"),
            Column("cited", "INTEGER"),
            Column("helpful", "INTEGER"),
            Column("last_seen_at", "DATETIME", required=False),
        ),
        only="day < 'infinity'",
        day_start="cast('{day}' as date)",
    ),
    Table(
        "usage_charges",
        "usage_charges",
        "created_at",
        ("tenant_id", "kind"),
        (
            Column("id", "STRING"),
            Column("tenant_id", "STRING"),
            Column("user_id", "STRING"),
            Column("kind", "STRING"),
            Column("provider", "STRING"),
            Column("model", "STRING"),
            Column("state", "STRING"),
            Column("cost_usd", "NUMERIC", required=False),
            Column("input_tokens", "INTEGER"),
            Column("output_tokens", "INTEGER"),
            Column("cache_read_tokens", "INTEGER"),
            Column("cache_write_tokens", "INTEGER"),
            Column("created_at", "TIMESTAMP"),
            Column("settled_at", "TIMESTAMP", required=False),
        ),
        only="state <> 'reserved'",
    ),
    Table(
        "snapshots",
        "message_tool_results",
        "created_at",
        ("tool_name", "user_id"),
        (
            Column("id", "STRING"),
            Column("user_id", "STRING"),
            Column("conversation_id", "STRING"),
            Column("message_id", "STRING"),
            Column("site_id", "STRING", required=False),
            Column("tool_name", "STRING"),
            Column("is_error", "BOOLEAN"),
            Column("output_bytes", "INTEGER", "pg_column_size(tool_output)", required=False),
            Column("observed_at", "TIMESTAMP", required=False),
            Column("created_at", "TIMESTAMP"),
        ),
    ),
    Table(
        "wrap_ups",
        "session_logs",
        "created_at",
        ("tenant_id",),
        (
            Column("id", "STRING"),
            Column("tenant_id", "STRING"),
            Column("user_id", "STRING"),
            Column("session_id", "STRING"),
            Column("trigger", "STRING"),
            Column("model", "STRING"),
            Column("input_tokens", "INTEGER"),
            Column("output_tokens", "INTEGER"),
            Column("decisions", "INTEGER", "jsonb_array_length(decisions)"),
            Column("open_items", "INTEGER", "jsonb_array_length(open_items)"),
            Column("new_context", "INTEGER", "jsonb_array_length(new_context)"),
            Column("created_at", "TIMESTAMP"),
            Column("edited_at", "TIMESTAMP", required=False),
        ),
    ),
)

# What the sink `both` publishes, row by row, through a subscription that writes into BigQuery. Without the user: a message in Pub/Sub
# names nobody.
STREAM_TABLE = "retrieval_events_stream"
STREAM_TOPIC = "retrieval-events"
STREAM_COLUMNS = tuple(c for c in TABLES[0].columns if c.name != "user_id")
