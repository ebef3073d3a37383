"""What a tool is: schema, handler, summariser and volatility in one value."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from sqlalchemy import Connection

Volatility = Literal["live", "slow", "stable"]
"""How fast a result goes out of date: live within hours (numbers), slow within weeks (lists of plans), stable hardly ever."""


class ToolMistake(Exception):
    """The call cannot be carried out as written. The text goes to the model and says how to mend the call."""


@dataclass(frozen=True)
class Site:
    """The site a turn is about. `data_as_of` is the moment up to which its imported data reaches; None before an import."""

    id: uuid.UUID
    name: str
    currency: str
    timezone: str
    data_as_of: datetime | None = None


@dataclass(frozen=True)
class Remembering:
    """What a turn may keep of what it hears. `said` is what the customer themselves wrote in this conversation, as the prompt has it.
    `recalled` are the texts that the prompt quotes, and the results of the turn's tools: they are remembered already, or are not the
    customer's. `staged` are the changes that earlier calls of the turn staged."""

    allowed: bool = True
    most_memories: int = 0
    said: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()
    staged: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class ToolContext:
    """Who calls, about which site, when, and a read-only transaction scoped to that user.

    `staged` collects what a tool wants written with the turn's answer; nothing a tool does is committed before that.
    """

    user_id: uuid.UUID
    site: Site | None
    conversation_id: uuid.UUID
    now: datetime
    connection: Connection
    remembering: Remembering = Remembering()
    staged: list[dict[str, Any]] = field(default_factory=list)


class ToolOutput(NamedTuple):
    """A result: JSON for the model, and the moment up to which its data reaches (never the clock)."""

    data: dict[str, Any]
    as_of: datetime | None = None


@dataclass(frozen=True)
class Tool:
    """A tool. `signals` reduces a result to the one or two fields that its summary line shows; recall stores and reads only these.
    `summarise` makes the text behind the colon of that line from them and, where the same call was made before, from the earlier
    signals and their day, so that a change is shown. `recallable=False` keeps a tool's results out of the recall block.
    `row_lists` names the keys of `data` that hold lists of rows, longest first, where an oversized result is cut.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    handler: Callable[[ToolContext, Any], ToolOutput]
    signals: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    summarise: Callable[[dict[str, Any], dict[str, Any] | None, date | None], str]
    volatility: Volatility = "live"
    recallable: bool = True
    row_lists: tuple[str, ...] = ("rows",)
    timeout_seconds: float = 10.0
