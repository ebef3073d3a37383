"""`ingest`, `reembed`, `search`: filling the knowledge base and looking into it."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from common import db
from common.config import settings
from common.knowledge import ingest
from common.knowledge.embeddings import embedder
from common.knowledge.search import Candidate, search_brain
from local.stack import now, opened

NOBODY = uuid.UUID(int=0)  # the knowledge base is open to all; no customer is looked at


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The subcommands of this group."""
    fill = subparsers.add_parser("ingest", help="make the knowledge base equal to a folder of articles")
    fill.add_argument(
        "folder", type=Path, metavar="DIR", help="Markdown (with front matter), HTML and text files"
    )
    fill.set_defaults(run=ingest_folder)

    again = subparsers.add_parser(
        "reembed", help="embed all entries with the model in use, and make its index"
    )
    again.set_defaults(run=reembed_all)

    search = subparsers.add_parser("search", help="what a query finds in the knowledge base")
    search.add_argument("query", metavar="QUERY")
    search.add_argument(
        "--trace", action="store_true", help="every candidate, not only those that would be shown"
    )
    search.add_argument("--collection", default="knowledge", help="only this collection (default: all)")
    search.add_argument("--limit", type=int, default=5, metavar="N")
    search.set_defaults(run=print_search)


def ingest_folder(arguments: argparse.Namespace) -> int:
    """Ingest and print the counts; 1 if a file could not be read."""
    with opened(arguments.data), _bar("embedding") as progress:
        report = ingest.ingest(
            db.engine("owner"), arguments.folder, embedder(settings()), now=now(), progress=progress
        )
    print(
        f"{report.files} files: {report.added} entries added, {report.updated} updated, {report.unchanged} unchanged,"
        f" {report.removed} removed; {report.embedded} embedded"
    )
    for name, reason in report.unreadable:
        print(f"not read: {name}: {reason}")
    return 1 if report.unreadable else 0


def reembed_all(arguments: argparse.Namespace) -> int:
    """Re-embed and print how many."""
    with opened(arguments.data), _bar("embedding") as progress:
        model = embedder(settings())
        done = ingest.reembed(db.engine("owner"), db.engine("sweep"), model, progress=progress)
    print(f"{done} entries embedded with {model.name}")
    return 0


def print_search(arguments: argparse.Namespace) -> int:
    """Print the entries, best first: rank, cosine similarity, title and the beginning of the text."""
    with opened(arguments.data):
        model = embedder(settings())
        (vector,) = model.embed([arguments.query], kind="query")
        with db.user_transaction(NOBODY) as connection:
            result = search_brain(
                connection,
                user_id=NOBODY,
                query=arguments.query,
                query_embedding=vector,
                model=model.name,
                collection=arguments.collection,
                limit=arguments.limit,
                trace=arguments.trace,
            )
    for found in result.trace if arguments.trace else result.top:
        print(_line(found))
    if not result.top:
        print("(nothing found)")
    return 0


def _line(found: Candidate) -> str:
    beginning = " ".join(found.content.split())[:100]
    return (
        f"{found.rank:>3} {'*' if found.surfaced else ' '} {found.score:.3f}  {found.title}  |  {beginning}"
    )


@contextmanager
def _bar(what: str) -> Iterator[ingest.Progress]:
    """A progress bar on standard error, where that is a terminal."""
    with tqdm(desc=what, unit=" entries", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
