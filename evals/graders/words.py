"""The phrases by which graders recognise what an answer does, in the languages of the cases: data, in `words.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

_LISTS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def phrases(name: str) -> re.Pattern[str]:
    """A pattern that finds any phrase of that list, as whole words and in any case."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(_LISTS[name])})(?!\w)", re.IGNORECASE)
