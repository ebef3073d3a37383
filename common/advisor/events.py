"""What happens in a turn, as it happens: what the answer's wire forms are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from common.errors import AppError
from common.llm.types import TextDelta, ToolCall
from common.tools.run import Executed


@dataclass(frozen=True)
class StepStarted:
    """A call of the model begins."""


@dataclass(frozen=True)
class StepFinished:
    """A call of the model, and the tools it asked for, are done."""


class Noted(NamedTuple):
    """Something to show beside the answer: `name` is route or recall."""

    name: str
    data: dict[str, Any]


class Finished(NamedTuple):
    """The stored answer in its JSON form; `error` says how a turn that did not complete ended."""

    answer: dict[str, Any]
    error: AppError | None = None


TurnEvent = StepStarted | StepFinished | Noted | TextDelta | ToolCall | Executed | Finished
