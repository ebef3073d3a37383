"""What leaves for the provider begins with the same bytes at each turn of a user, so that its cache serves them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.config import settings
from tests.functions.conftest import System
from tests.stubs.anthropic_server import message, scripted


def cached(body: dict[str, Any]) -> str:
    """The request up to the last mark that stands before anything of this turn: tools, and the system's stable sections."""
    marks = [i for i, block in enumerate(body["system"]) if "cache_control" in block]
    return json.dumps([body["tools"], body["system"][: marks[-1] + 1]])


def test_two_turns_through_the_chat_function_share_their_cached_prefix(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted() as provider:
        provider.play(message({"type": "text", "text": "Gladly."}))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-the-stub")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        settings.cache_clear()
        system.database.run(
            "insert into brain_documents (user_id, kind, content, author, updated_at) values (:u, 'soul', 'A cook.', 'user', now())",
            u=system.owner.user_id,
        )
        first = system.chat("What shall I do next?").json
        assert (first["provider"], first["text"]) == ("claude", "Gladly.")
        system.chat("And after that?", conversation_id=first["conversation_id"])
        system.chat("Something else altogether, in another conversation?")
    one, two, three = provider.bodies
    assert cached(one) == cached(two) == cached(three)
    assert "A cook." in cached(one)
    assert "Today is" not in cached(one)
    assert one["messages"] != two["messages"]
