"""Which of the numbered sources an answer cites. An answer is only read here, never changed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from common.knowledge.search import Candidate
from common.text import one_line

# Marks that follow each other, each of numbers and ranges. In `[guide][1]` and `[1][guide]` the brackets are those of a reference link.
_NUMBERS = r"\[\s*[0-9]{1,4}(?:\s*[-–—,;]\s*[0-9]{1,4})*\s*\]"
_MARKS = re.compile(rf"(?<!\])(?:{_NUMBERS})+(?!\[(?!\^))")
_RANGE = re.compile(r"([0-9]+)(?:\s*[-–—]\s*([0-9]+))?")
_HTML_SKIPPED = re.compile(r"<(/?)(?:a|code|pre|q|blockquote)\b", re.IGNORECASE)


def cited(answer: str, count: int) -> frozenset[int]:
    """The numbers of the `count` sources that `answer` cites: `[1]`, `[1, 3]`, `[1][3]`, `[2-4]`. A mark within code, a quotation or
    a link's text is none, nor is a footnote's; a number out of range is passed over."""
    if "[" not in answer or not _MARKS.search(answer):
        return frozenset()
    numbers: set[int] = set()
    for passage in _passages(answer):
        for marks in _MARKS.findall(passage):
            for first, last in _RANGE.findall(marks):
                numbers.update(range(max(int(first), 1), min(int(last or first), count) + 1))
    return frozenset(numbers)


def number_sources(candidates: Sequence[Candidate]) -> list[str]:
    """The entries as numbered sources for the prompt, in the order that `[n]` refers to."""
    return [
        f"[{number}] {one_line(found.title, 200)}{f' ({one_line(found.url, 500)})' if found.url else ''}\n{found.content}"
        for number, found in enumerate(candidates, start=1)
    ]


def _passages(answer: str) -> Iterator[str]:
    """The runs of plain text in `answer`: no code, no link's text, no quotation."""
    quoted = 0
    for block in _parser().parse(answer):
        quoted += {"blockquote_open": 1, "blockquote_close": -1}.get(block.type, 0)
        if block.type == "inline" and not quoted:
            yield from _runs(block.children)


def _runs(tokens: Sequence[Any]) -> Iterator[str]:
    run, skipped = "", 0
    for token in tokens:
        if token.type in ("link_open", "link_close"):
            skipped += token.nesting
        elif token.type == "html_inline" and (tag := _HTML_SKIPPED.match(token.content)):
            skipped += -1 if tag[1] else 1
        if token.type == "text" and not skipped:
            run += token.content
        else:
            yield run
            run = ""
    yield run


@functools.cache
def _parser() -> Any:
    from markdown_it import MarkdownIt  # not at import: an answer without marks needs no parser

    # Unjoined, an escaped bracket stays a token of its own and so makes no mark.
    return MarkdownIt("commonmark").enable("table").disable("text_join")
