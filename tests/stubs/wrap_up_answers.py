"""Wrap-ups as a model writes them."""

from __future__ import annotations

import json
from typing import Any


def wrap_up_json(**fields: Any) -> str:
    """A valid wrap-up, with some fields set."""
    empty: dict[str, Any] = {
        "summary": "They spoke about the discount campaign.",
        "decisions": [],
        "open_items": [],
        "new_context": [],
        "next_session_note": "Ask how the campaign goes.",
    }
    return json.dumps(empty | fields)
