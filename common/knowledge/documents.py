"""A folder of articles as chunks to search: Markdown with front matter, HTML and plain text, split by their headings.

HTML becomes Markdown first, so that there is one way to split. Nothing here knows the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from common.text import canonical_hash, one_line, plain_tokens, sanitise

SUFFIXES = {".md", ".markdown", ".html", ".htm", ".txt"}
MAX_BYTES = 5_000_000
CHUNK_TOKENS = 320  # a section up to this size stays whole
CONTEXT_CHARACTERS = 400  # of each neighbour

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")


class UnreadableDocument(Exception):
    """A file that cannot be taken in. The text says why."""


@dataclass(frozen=True)
class Document:
    """An article. `path` is relative to the folder, with slashes; it names the document."""

    path: str
    title: str
    url: str | None
    collection: str
    attributes: dict[str, Any]
    body: str  # Markdown


@dataclass(frozen=True)
class Chunk:
    """A section of a document, or a part of one. `context` is what stands before and after it."""

    document: Document
    title: str
    content: str
    context: str = field(compare=False, default="")

    @property
    def content_hash(self) -> str:
        """Equal for equal text to embed."""
        return canonical_hash([self.title, self.content])


def files(folder: Path) -> list[Path]:
    """The articles in `folder` and below it, in order; hidden files and folders are left out."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def read(path: Path, folder: Path) -> Document:
    """The article in a file. Raises UnreadableDocument."""
    text = _text(path)
    name = path.relative_to(folder).as_posix()
    if path.suffix.lower() in (".html", ".htm"):
        metadata, body = _from_html(text)
    elif path.suffix.lower() == ".txt":
        metadata, body = {}, text
    else:
        metadata, body = _front_matter(text)
    body = sanitise(body, limit=MAX_BYTES).strip()
    if not body:
        raise UnreadableDocument("there is no text in it")
    folders = name.split("/")[:-1]
    collection = one_line(str(metadata.pop("collection", folders[0] if folders else "articles")), 60)
    if collection in ("memory", "knowledge"):
        raise UnreadableDocument(f"a collection cannot be called `{collection}`")
    title = (
        metadata.pop("title", None) or _first_heading(body) or path.stem.replace("-", " ").replace("_", " ")
    )
    url = metadata.pop("url", None)
    if url and not str(url).startswith(("https://", "http://")):
        raise UnreadableDocument("its url is no http(s) address")
    return Document(
        path=name,
        title=one_line(sanitise(str(title)), 200),
        url=one_line(str(url), 500) if url else None,
        collection=collection,
        attributes={one_line(str(key), 60): _plain(value) for key, value in metadata.items()},
        body=body,
    )


def split(document: Document) -> list[Chunk]:
    """The document's chunks in order: a section each, a long section in parts; headings without text make none. The title of a chunk
    is the path of its headings; a text that comes twice makes one chunk."""
    parts = [(title, content) for title, blocks in _sections(document) for content in _parts(blocks)]
    texts = [content for _, content in parts]
    chunks: dict[str, Chunk] = {}
    for index, (title, content) in enumerate(parts):
        chunk = Chunk(document, title, content, _around(texts, index))
        chunks.setdefault(chunk.content_hash, chunk)
    return list(chunks.values())


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableDocument(f"it is larger than {MAX_BYTES // 1_000_000} MB")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableDocument("it is not UTF-8 text") from None
    except OSError as exc:
        raise UnreadableDocument(f"it cannot be opened ({exc.strerror})") from None


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    import yaml  # type: ignore[import-untyped]

    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    try:
        metadata = yaml.safe_load(found[1]) or {}
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f", line {mark.line + 2}" if mark else ""
        raise UnreadableDocument(f"its front matter is not YAML{line}") from None
    if not isinstance(metadata, dict):
        raise UnreadableDocument("its front matter is not a list of `name: value`")
    return metadata, text[found.end() :]


def _from_html(text: str) -> tuple[dict[str, Any], str]:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    page = BeautifulSoup(text, "html.parser")
    metadata: dict[str, Any] = {}
    if page.title and page.title.string:
        metadata["title"] = page.title.string.strip()
    canonical = page.find("link", rel="canonical", href=True)
    if canonical and str(canonical["href"]).startswith(("https://", "http://")):
        metadata["url"] = str(canonical["href"])
    for furniture in page.select(
        "script, style, template, noscript, nav, header, footer, aside, form, svg, title"
    ):
        furniture.decompose()
    article = page.find("main") or page.find("article") or page.body or page
    return metadata, MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(article)


def _first_heading(body: str) -> str | None:
    return next((text for level, text, _ in _blocks(body) if level == 1), None)


def _plain(value: Any) -> Any:
    """An attribute's value: text, or a list of texts."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, list | dict):
        raise UnreadableDocument("its front matter nests values")
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else one_line(sanitise(str(value)), 200)


def _blocks(body: str) -> Iterator[tuple[int, str, str]]:
    """The top-level blocks of Markdown: a heading's level (0 for other blocks), its text, and the source."""
    from markdown_it import MarkdownIt

    lines = body.splitlines()
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    for index, token in enumerate(tokens):
        if token.level == 0 and token.map and token.nesting >= 0:
            source = "\n".join(lines[token.map[0] : token.map[1]]).strip("\n")
            if token.type == "heading_open":
                yield int(token.tag[1]), one_line(tokens[index + 1].content, 200), source
            elif source.strip():
                yield 0, "", source


def _sections(document: Document) -> Iterator[tuple[str, list[str]]]:
    """The path of headings and the blocks of each section that has text."""
    path: list[tuple[int, str]] = []
    blocks: list[str] = []
    for level, text, source in [*_blocks(document.body), (1, "", "")]:
        if not level:
            blocks.append(source)
            continue
        if blocks:
            headings = [heading for _, heading in path if heading != document.title]
            yield " › ".join([document.title, *headings]), blocks
            blocks = []
        path = [(above, heading) for above, heading in path if above < level] + [(level, text)]


def _parts(blocks: list[str]) -> Iterator[str]:
    """A section's blocks as texts of at most `CHUNK_TOKENS`, cut between blocks, a longer block between sentences."""
    part: list[str] = []
    size = 0
    for block in blocks:
        for piece in [block] if plain_tokens(block) <= CHUNK_TOKENS else _pieces(block):
            tokens = plain_tokens(piece)
            if part and size + tokens > CHUNK_TOKENS:
                yield "\n\n".join(part)
                part, size = [], 0
            part.append(piece)
            size += tokens
    if part:
        yield "\n\n".join(part)


def _pieces(block: str) -> Iterator[str]:
    """A block that is too long, as runs of sentences; what has no sentences is cut at `CHUNK_TOKENS` characters times two."""
    run = ""
    for sentence in _SENTENCE_END.split(block):
        for start in range(0, len(sentence), CHUNK_TOKENS * 2):
            piece = sentence[start : start + CHUNK_TOKENS * 2]
            if run and plain_tokens(f"{run} {piece}") > CHUNK_TOKENS:
                yield run
                run = ""
            run = f"{run} {piece}" if run else piece
    if run:
        yield run


def _around(texts: list[str], index: int) -> str:
    """The end of the text before and the beginning of the text after."""
    before = texts[index - 1][-CONTEXT_CHARACTERS:] if index else ""
    after = texts[index + 1][:CONTEXT_CHARACTERS] if index + 1 < len(texts) else ""
    return f"{before}\n{after}".strip()
