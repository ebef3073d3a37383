"""Which tools there are, found by looking into this folder, and their schemas as a model gets them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from common.llm.types import ToolSpec
from common.tools.types import Tool

_NOT_TOOLS = {"registry", "run", "types"}


@functools.cache
def tools() -> dict[str, Tool]:
    """Every tool by name, in alphabetical order, so that a prompt built from it is the same each time."""
    import common.tools as package

    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name not in _NOT_TOOLS)
    found = [importlib.import_module(f"common.tools.{name}").TOOL for name in names]
    return {tool.name: tool for tool in found}


@functools.cache
def spec(name: str) -> ToolSpec:
    """The tool `name` as a model sees it."""
    tool = tools()[name]
    return ToolSpec(tool.name, tool.description, _plain_schema(tool.arguments.model_json_schema()))


def _plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with references resolved and titles dropped: providers differ in what they accept beyond the plain core."""
    definitions = schema.pop("$defs", {})

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return plain(definitions[node["$ref"].rsplit("/", 1)[-1]])
            return {k: plain(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
        return [plain(v) for v in node] if isinstance(node, list) else node

    result: dict[str, Any] = plain(schema)
    return result
