"""Search over a knowledge base of 100,000 entries: recall against exact search, and time against bare pgvector.

    python -m benchmarks.search [--entries N] [--queries N] [--json FILE]

Entries are synthetic: vectors of 384 dimensions in clusters, texts of words drawn by Zipf's law with words of the cluster's own among
them, four chunks a document, collections and attributes for filters. A query lies near an entry and shares some of its words.

*Exact* is the same search, given the true nearest neighbours (by numpy); a second figure also gives it complete lists of entries for each
word, where the real search has the champions only. `recall@5` is the share of the exact search's first five that the real one has among
its first five. *Bare* is one pgvector query by the same index, as the same role, at the same `ef_search`; the two are timed in turn
within one run.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from benchmarks.locomo import Database, add_user, database
from common.config import Settings
from common.db import make_engine, user_transaction
from common.knowledge import lexical, search
from common.knowledge.ingest import make_index
from common.knowledge.search import EF_SEARCH, SearchResult, search_brain, vector_text

DIMENSIONS = 384
CLUSTERS = 800
VOCABULARY = 30_000
COLLECTIONS = ("guides", "faq", "news", "templates")
STAGES = tuple(f"stage{n}" for n in range(10))
PLATFORMS = ("kajabi", "memberpress", "patreon", "podia")
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "collection": {"collection": "faq"},
    "attributes": {"attributes": {"stage": "stage3"}},
    "profile": {"profile": {"platform": "podia", "stage": "stage7"}},
}


class Synthetic:
    """A model's name and size, as `make_index` asks for them."""

    name = "synthetic"
    dimensions = DIMENSIONS


@dataclass(frozen=True)
class Query:
    text: str
    vector: list[float]


class Corpus:
    """Entries and queries from one seed."""

    def __init__(self, entries: int, seed: int = 7) -> None:
        self.random = np.random.default_rng(seed)
        self.entries = entries
        self.centres = self.random.normal(size=(CLUSTERS, DIMENSIONS))
        self.cluster = self.random.integers(CLUSTERS, size=entries)
        self.topics = self.random.integers(VOCABULARY, size=(CLUSTERS, 40))
        ranks = np.arange(
            20, VOCABULARY + 20
        )  # the most common words of all are stop words, which are not searched for
        self.zipf = (1 / ranks) / (1 / ranks).sum()
        self.vectors = self.centres[self.cluster] + 0.8 * self.random.normal(size=(entries, DIMENSIONS))
        self.unit = (self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)).astype(np.float32)
        self.words = self._texts()
        self.ids = [str(uuid.UUID(bytes=self.random.bytes(16), version=4)) for _ in range(entries)]
        self.collection = np.array([COLLECTIONS[n // 5 % 4] for n in range(entries)])
        self.stage = np.array([STAGES[n % 7 + n % 4] for n in range(entries)])

    def _texts(self) -> list[list[str]]:
        common = self.random.choice(VOCABULARY, size=(self.entries, 40), p=self.zipf)
        own = np.take_along_axis(
            self.topics[self.cluster], self.random.integers(40, size=(self.entries, 20)), axis=1
        )
        words = self.random.permuted(np.concatenate([common, own], axis=1), axis=1)
        return [[f"w{word}" for word in row] for row in words.tolist()]

    def queries(self, count: int) -> list[Query]:
        made = []
        for entry in self.random.integers(self.entries, size=count):
            vector = self.vectors[entry] + 0.6 * self.random.normal(size=DIMENSIONS)
            words = self.random.choice(self.words[entry], size=6, replace=False)
            made.append(Query(" ".join(words), (vector / np.linalg.norm(vector)).tolist()))
        return made

    def nearest(self, query: Query, options: dict[str, Any], count: int) -> list[str]:
        """The ids of the entries nearest to the query among those that the filter leaves."""
        similarity = self.unit @ np.array(query.vector, dtype=np.float32)
        if "collection" in options:
            similarity[self.collection != options["collection"]] = -2
        if "attributes" in options:
            similarity[self.stage != options["attributes"]["stage"]] = -2
        return [self.ids[n] for n in np.argsort(-similarity)[:count]]

    def copy(self, connection: Connection) -> None:
        """Load the entries by COPY. Whole numbers in the vectors, for cosine does not know length."""
        now = "2026-05-12 10:00+00"
        scaled = np.rint(self.vectors * 1000).astype(int)
        cursor = connection.connection.cursor()
        for start in range(0, self.entries, 5000):
            lines = []
            for n in range(start, min(start + 5000, self.entries)):
                attributes = json.dumps({"stage": self.stage[n], "platform": PLATFORMS[n // 3 % 4]})
                row = [
                    self.ids[n],
                    "global",
                    self.collection[n],
                    f"d{n // 4}",
                    f"w{n % 997}",
                    " ".join(self.words[n]),
                    str(n),
                    attributes,
                    str(scaled[n].tolist()),
                    Synthetic.name,
                    now,
                    now,
                ]
                lines.append("\t".join(row))
            cursor.execute(
                "copy brain_entries (id, tenant_id, collection, document, title, content, content_hash, attributes, embedding,"
                " embedding_model, created_at, updated_at) from stdin",
                stream=io.BytesIO(("\n".join(lines) + "\n").encode()),
            )


def run(entries: int, queries: int) -> dict[str, Any]:
    """Build the knowledge base, then measure."""
    for found in database():
        owner = make_engine(Settings(database_url=str(found.superuser.url)), "owner")
        corpus = Corpus(entries)
        with found.superuser.begin() as connection:
            corpus.copy(connection)
        started = time.perf_counter()
        make_index(owner, Synthetic())  # type: ignore[arg-type]
        built = time.perf_counter() - started
        with found.superuser.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("vacuum analyze brain_entries"))
        asked = corpus.queries(queries)
        user_id, _ = add_user(found.superuser)
        _count(owner, 10**9)
        complete = _exact(found, user_id, corpus, asked)
        started = time.perf_counter()
        _count(owner, lexical.CHAMPIONS)
        counted = time.perf_counter() - started
        exact = _exact(found, user_id, corpus, asked)
        recall, recall_complete = (
            {name: round(_recall(found, user_id, asked, FILTERS[name], first[name]), 4) for name in FILTERS}
            for first in (exact, complete)
        )
        timed = {name: _timed(found, user_id, asked, options) for name, options in FILTERS.items()}
        return {
            "entries": entries,
            "queries": queries,
            "ef_search": EF_SEARCH,
            "index_seconds": round(built, 1),
            "count_terms_seconds": round(counted, 1),
            "recall@5": recall,
            "recall@5 with complete word lists": recall_complete,
            "time": timed,
        }
    raise AssertionError("the database yields once")


def _count(owner: sa.Engine, champions: int) -> None:
    with owner.begin() as connection:
        connection.execute(sa.text("select set_config('statement_timeout', '0', true)"))
        lexical.count_terms(connection, champions=champions)
    with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("vacuum analyze brain_terms"))


def _search(
    connection: Connection, user_id: uuid.UUID, query: Query, options: dict[str, Any]
) -> SearchResult:
    asked = {"collection": "knowledge", **options}
    return search_brain(
        connection,
        user_id=user_id,
        query=query.text,
        query_embedding=query.vector,
        model=Synthetic.name,
        **asked,
    )


def _exact(
    found: Database, user_id: uuid.UUID, corpus: Corpus, asked: list[Query]
) -> dict[str, list[list[uuid.UUID]]]:
    """The first five of each query by filter: the real search, given the true nearest neighbours."""
    results: dict[str, list[list[uuid.UUID]]] = {}
    for name, options in FILTERS.items():
        results[name] = []
        count = 5 * (search.OVER_FETCH_WITH_PROFILE if "profile" in options else search.OVER_FETCH)
        for query in asked:
            ids = ",".join(corpus.nearest(query, options, count))
            given = f"union (select unnest(cast(string_to_array('{ids}', ',') as uuid[])))"
            search._statement.cache_clear()
            with (
                mock.patch.object(search, "_BY_MEANING", given),
                user_transaction(user_id, source=found.app) as connection,
            ):
                results[name].append([c.entry_id for c in _search(connection, user_id, query, options).top])
    search._statement.cache_clear()
    return results


def _recall(
    found: Database,
    user_id: uuid.UUID,
    asked: list[Query],
    options: dict[str, Any],
    exact: list[list[uuid.UUID]],
) -> float:
    shares = []
    for query, wanted in zip(asked, exact, strict=True):
        with user_transaction(user_id, source=found.app) as connection:
            got = {c.entry_id for c in _search(connection, user_id, query, options).top}
        shares.append(len(got & set(wanted)) / len(wanted) if wanted else 1.0)
    return statistics.fmean(shares)


_BARE = f"""
select id, document, title, url, content, created_at, updated_at, 1 - (embedding <=> cast(:embedding as vector)) as score
from brain_entries where tenant_id = 'global' and embedding_model = '{Synthetic.name}' {{filter}}
order by cast(embedding as halfvec({DIMENSIONS})) <=> cast(:embedding as halfvec({DIMENSIONS})) limit 5
"""


def _bare(options: dict[str, Any]) -> Callable[[Connection, Query], object]:
    conditions, values = "", {}
    if "collection" in options:
        conditions, values = "and collection = :collection", {"collection": options["collection"]}
    elif "attributes" in options:
        values = {"attributes": json.dumps(options["attributes"])}
        conditions = "and attributes @> cast(:attributes as jsonb)"
    statement = sa.text(_BARE.format(filter=conditions))

    def ask(connection: Connection, query: Query) -> object:
        return connection.execute(statement, {"embedding": vector_text(query.vector), **values}).all()

    return ask


def _timed(
    found: Database, user_id: uuid.UUID, asked: list[Query], options: dict[str, Any]
) -> dict[str, float]:
    """Milliseconds of the two, in turn; each within a transaction that is already open and set up."""
    bare = _bare(options)
    took: dict[str, list[float]] = {"search": [], "bare": []}
    for turn, query in enumerate(asked * 3):
        order = ("search", "bare") if turn % 2 else ("bare", "search")
        for kind in order:
            with user_transaction(user_id, source=found.app) as connection:
                connection.execute(
                    sa.text(
                        "select set_config('hnsw.ef_search', :ef, true), set_config('hnsw.iterative_scan', 'strict_order', true)"
                    ),
                    {"ef": str(EF_SEARCH)},
                )
                started = time.perf_counter()
                _search(connection, user_id, query, options) if kind == "search" else bare(connection, query)
                took[kind].append((time.perf_counter() - started) * 1000)
    warm = {kind: sorted(times[len(times) // 3 :]) for kind, times in took.items()}
    p50 = {kind: statistics.median(times) for kind, times in warm.items()}
    p95 = {kind: times[int(len(times) * 0.95)] for kind, times in warm.items()}
    return {
        "search_p50_ms": round(p50["search"], 2),
        "bare_p50_ms": round(p50["bare"], 2),
        "search_p95_ms": round(p95["search"], 2),
        "bare_p95_ms": round(p95["bare"], 2),
        "p95_ratio": round(p95["search"] / p95["bare"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    text = json.dumps(run(arguments.entries, arguments.queries), indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text)


if __name__ == "__main__":
    main()
