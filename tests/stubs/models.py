"""A model behind the seam that says what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from common.llm import call
from common.llm.types import ModelRequest, ProviderEvent, Stop, StopReason, TextDelta, Usage


@dataclass(frozen=True)
class Answer:
    """What one call gives: its text, how it ends and what it used; `before` runs first and may raise."""

    text: str
    stop: StopReason = "end"
    usage: Usage = field(default_factory=lambda: Usage(1_000, 200))
    before: Callable[[], Any] = lambda: None


@dataclass
class ScriptedModel:
    """Gives its answers one after the other, the last again and again, and keeps the requests."""

    answers: list[Answer | Exception]
    requests: list[ModelRequest] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        with self._lock:
            self.requests.append(request)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        answer.before()
        yield answer.usage
        yield TextDelta(answer.text)
        yield Stop(answer.stop, model, "scripted", answer.usage)

    def preload(self) -> None:
        """Nothing to load."""


def play(monkeypatch: pytest.MonkeyPatch, *answers: Answer | Exception) -> ScriptedModel:
    """Let a model with these answers stand behind every provider's name, without waiting between tries."""
    model = ScriptedModel(list(answers))
    monkeypatch.setattr(call, "_provider", lambda _name, _config: model)
    monkeypatch.setattr(call, "BACKOFF_SECONDS", (0.0, 0.0))
    return model


def wrap_up_json(**fields: Any) -> str:
    """A valid wrap-up as a model writes it, with some fields set."""
    empty: dict[str, Any] = {
        "summary": "They spoke about the discount campaign.",
        "decisions": [],
        "open_items": [],
        "new_context": [],
        "next_session_note": "Ask how the campaign goes.",
    }
    return json.dumps(empty | fields)
