"""Tools that misbehave, for the tests of what a turn makes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from common.advisor import turn
from common.tools import registry
from common.tools.types import Tool, ToolContext, ToolOutput


class Nothing(BaseModel):
    pass


def add_tool(
    monkeypatch: pytest.MonkeyPatch, handler: Callable[[ToolContext], dict[str, Any]], *, timeout: float = 5.0
) -> str:
    """Offer a tool with this handler to the Advisor; returns its name."""
    tool = Tool(
        name="query_strange",
        description="A tool of the tests.",
        arguments=Nothing,
        handler=lambda context, _arguments: ToolOutput(handler(context)),
        signals=lambda _arguments, data: {"keys": len(data)},
        summarise=lambda signals, _earlier, _day: f"{signals['keys']} keys",
        timeout_seconds=timeout,
    )
    real = registry.tools()
    monkeypatch.setattr(registry, "tools", lambda: {**real, tool.name: tool})
    for module in ("common.tools.run", "common.memory.snapshot_summary", "common.memory.snapshots"):
        monkeypatch.setattr(f"{module}.tools", registry.tools)
    monkeypatch.setattr(turn, "ADVISOR_TOOLS", (tool.name,))
    registry.spec.cache_clear()
    return tool.name


def hang(_context: ToolContext) -> dict[str, Any]:
    threading.Event().wait(60)
    return {}


def fail(_context: ToolContext) -> dict[str, Any]:
    raise RuntimeError("canary: what a driver might quote")


def nest(levels: int) -> dict[str, Any]:
    value: Any = "deep"
    for _ in range(levels):
        value = {"in": value}
    return {"nested": value}
