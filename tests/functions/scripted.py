"""A model that says what a test tells it to: a provider behind the seam, in place of a vendor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from common.llm import call as llm
from common.llm.types import ModelEvent, ModelRequest, Stop, TextDelta, ToolCall, Usage

Script = Iterable[ModelEvent | str | Callable[[], Any]]


class ScriptedModel:
    """Plays one script a call, the last one again and again. A string is a delta; a callable is called on the way; what does not end
    in a `Stop` gets one that fits. `requests` keeps what was asked."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = [list(script) for script in scripts]
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest, model: str) -> Iterator[ModelEvent]:
        self.requests.append(request)
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        asked = False
        for step in script:
            if isinstance(step, str):
                yield TextDelta(step)
            elif callable(step):
                step()
            else:
                asked = asked or isinstance(step, ToolCall)
                yield step
                if isinstance(step, Stop):
                    return
        yield Stop("tool_use" if asked else "end", model, "offline", Usage(100, 20))

    @property
    def prompt(self) -> str:
        """All system sections of the last request."""
        return "\n\n".join(section.text for section in self.requests[-1].system)


def play(monkeypatch: pytest.MonkeyPatch, *scripts: Script) -> ScriptedModel:
    """Put a scripted model in the place of every provider."""
    model = ScriptedModel(*scripts)
    monkeypatch.setattr(llm, "_provider", lambda _name, _config: model)
    return model
