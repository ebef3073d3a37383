"""The offline model: a deterministic engine that stands in where no key is set.

It gets what any model gets, a `ModelRequest`, and looks at nothing else. It proves that everything is connected, not that answers are good.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from common.config import Settings
from common.llm.offline.engine import Step, step
from common.llm.offline.wrap_up import write_wrap_up
from common.llm.types import ModelRequest, ProviderEvent, Stop, TextDelta, Usage
from common.text import plain_tokens, to_json


class Offline:
    """The provider "offline"; its one model is "offline-1"."""

    def stream(self, request: ModelRequest, model: str) -> Generator[ProviderEvent]:
        """The answer word by word, or the calls; the same for the same request."""
        if request.task == "wrap_up":
            taken = Step(text=to_json(write_wrap_up(request.messages[-1].text, request.schema or {})))
        else:
            taken = step(request)
        usage = Usage(input_tokens=_tokens_in(request))
        yield usage
        limit = request.max_output_tokens
        for said, word in enumerate(re.findall(r"\s*\S+", taken.text)):
            if said == limit:
                yield Stop("max_tokens", model, "offline", Usage(usage.input_tokens, limit))
                return
            yield TextDelta(word)
        yield from taken.calls
        written = plain_tokens(taken.text) + sum(plain_tokens(to_json(c.input)) for c in taken.calls)
        yield Stop("tool_use" if taken.calls else "end", model, "offline", Usage(usage.input_tokens, written))

    def preload(self) -> None:
        """Nothing to load."""


def provider(config: Settings) -> Offline:
    """The offline model; it needs no settings."""
    return Offline()


def _tokens_in(request: ModelRequest) -> int:
    texts = [section.text for section in request.system]
    texts += [to_json(tool.parameters) for tool in request.tools]
    for message in request.messages:
        texts += [
            message.text,
            *(to_json(c.input) for c in message.calls),
            *(r.content for r in message.results),
        ]
    return sum(plain_tokens(text) for text in texts)
