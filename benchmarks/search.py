"""Search over a knowledge base of 100,000 entries: recall against exact search, and time against bare pgvector.

    python -m benchmarks.search [--quick] [--entries N] [--queries N] [--rounds N] [--json FILE]

Entries are synthetic: vectors of 384 dimensions in clusters, texts of words drawn by Zipf's law with words of the cluster's own among
them, four chunks a document, collections and attributes for filters. A query lies near an entry and shares some of its words.

*Exact* is the same search, given the true nearest neighbours (by numpy); a second figure also gives it complete lists of entries for each
word, where the real search has the champions only. `recall@5` is the share of the exact search's first five that the real one has among
its first five. *Bare* is one pgvector query for the nearest five by the same index, with the same filter, as the same role under the same
policies and with the same settings, by pg8000's `run()`. Beside it stand the same query prepared, and one by `run()` for as many as the
search asks the index for (three times five, six times with a profile). They are timed in turn, in random order.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pg8000.native
import sqlalchemy as sa
from sqlalchemy import Connection

from benchmarks import report
from benchmarks.locomo import Database, add_user, database
from benchmarks.report import Row
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
    "no filter": {},
    "one collection": {"collection": "faq"},
    "by attributes": {"attributes": {"stage": "stage3"}},
    "profile boost": {"profile": {"platform": "podia", "stage": "stage7"}},
}
# So few that the index gives up before it has found them: recall only, for a bare query would find less.
RARE = {"by a rare attribute": {"attributes": {"stage": "rare"}}}


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
        # The most common words of all are stop words, which are not searched for.
        ranks = np.arange(20, VOCABULARY + 20)
        self.zipf = (1 / ranks) / (1 / ranks).sum()
        self.vectors = self.centres[self.cluster] + 0.8 * self.random.normal(size=(entries, DIMENSIONS))
        self.unit = (self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)).astype(np.float32)
        self.words = self._texts()
        self.ids = [str(uuid.UUID(bytes=self.random.bytes(16), version=4)) for _ in range(entries)]
        self.collection = np.array([COLLECTIONS[n // 5 % 4] for n in range(entries)])
        self.stage = np.array([STAGES[n % 7 + n % 4] for n in range(entries)])
        self.stage[:: entries // 40] = "rare"

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
        return [self.ids[n] for n in np.argsort(-similarity)[:count] if similarity[n] > -2]

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


def run(entries: int, queries: int, rounds: int) -> list[Row]:
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
        complete = _exact(found, user_id, corpus, asked, FILTERS)
        started = time.perf_counter()
        _count(owner, lexical.CHAMPIONS)
        counted = time.perf_counter() - started
        exact = _exact(found, user_id, corpus, asked, FILTERS | RARE)
        print(f"index {built:.0f} s, terms {counted:.0f} s, ef_search {EF_SEARCH}", flush=True)
        rows = []
        for name, options in (FILTERS | RARE).items():
            real = _real(found, user_id, asked, options)
            rows.append(
                Row(f"search, {name}: recall@5 against exact", _recall(real, exact[name]), "", "≥ 0.98")
            )
            if name in complete:
                rows.append(
                    Row(
                        f"search, {name}: recall@5 against exact, all words",
                        _recall(real, complete[name]),
                        "",
                    )
                )
        for name, options in FILTERS.items():
            rows += _rows(name, _timed(found, user_id, asked, options, rounds))
        return rows
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


def fetched(options: dict[str, Any]) -> int:
    """How many the search asks the index for."""
    return 5 * (search.OVER_FETCH_WITH_PROFILE if "profile" in options else search.OVER_FETCH)


def _exact(
    found: Database,
    user_id: uuid.UUID,
    corpus: Corpus,
    asked: list[Query],
    filters: dict[str, dict[str, Any]],
) -> dict[str, list[list[uuid.UUID]]]:
    """The first five of each query by filter: the real search, given the true nearest neighbours."""
    results: dict[str, list[list[uuid.UUID]]] = {}
    for name, options in filters.items():
        results[name] = []
        for query in asked:
            ids = ",".join(corpus.nearest(query, options, fetched(options)))
            given = f"select id, {{distance}} as distance from brain_entries where id = any(cast(string_to_array('{ids}', ',') as uuid[]))"
            search._statement.cache_clear()
            with (
                mock.patch.object(search, "_NEAREST", given),
                user_transaction(user_id, source=found.app) as connection,
            ):
                results[name].append([c.entry_id for c in _search(connection, user_id, query, options).top])
    search._statement.cache_clear()
    return results


def _real(
    found: Database, user_id: uuid.UUID, asked: list[Query], options: dict[str, Any]
) -> list[list[uuid.UUID]]:
    """The first five of each query."""
    results = []
    for query in asked:
        with user_transaction(user_id, source=found.app) as connection:
            results.append([c.entry_id for c in _search(connection, user_id, query, options).top])
    return results


def _recall(real: list[list[uuid.UUID]], exact: list[list[uuid.UUID]]) -> float:
    shares = [
        len(set(got) & set(wanted)) / len(wanted) if wanted else 1.0
        for got, wanted in zip(real, exact, strict=True)
    ]
    return statistics.fmean(shares)


_BARE = f"""
select id, document, title, url, content, created_at, updated_at, 1 - (embedding <=> cast(:embedding as vector)) as score
from brain_entries where tenant_id = 'global' and embedding_model = '{Synthetic.name}' {{filter}}
order by cast(embedding as halfvec({DIMENSIONS})) <=> cast(:embedding as halfvec({DIMENSIONS})) limit {{limit}}
"""


class Bare:
    """Bare pgvector on a connection of its own, in one transaction, as the application's role."""

    def __init__(self, server: sa.URL, user_id: uuid.UUID, options: dict[str, Any]) -> None:
        conditions, self._values = "", {}
        if "collection" in options:
            conditions, self._values = "and collection = :collection", {"collection": options["collection"]}
        elif "attributes" in options:
            self._values = {"attributes": json.dumps(options["attributes"])}
            conditions = "and attributes @> cast(:attributes as jsonb)"
        self._sql = _BARE.format(filter=conditions, limit=5)
        self._sql_for_more = _BARE.format(filter=conditions, limit=fetched(options))
        self.connection = pg8000.native.Connection(
            "memberintel_app", unix_sock=server.query["unix_sock"], database=server.database
        )
        self.connection.run("begin")
        self.connection.run(
            "select set_config('app.user_id', :user_id, true), set_config('hnsw.ef_search', :ef, true),"
            " set_config('hnsw.iterative_scan', 'strict_order', true)",
            user_id=str(user_id),
            ef=str(EF_SEARCH),
        )
        self._prepared = self.connection.prepare(self._sql)

    def run(self, query: Query) -> list[list[Any]]:
        """The nearest five by `run()`."""
        return list(self.connection.run(self._sql, embedding=vector_text(query.vector), **self._values))

    def run_for_more(self, query: Query) -> list[list[Any]]:
        """As many as the search fetches, by `run()`."""
        return list(
            self.connection.run(self._sql_for_more, embedding=vector_text(query.vector), **self._values)
        )

    def run_prepared(self, query: Query) -> list[list[Any]]:
        """The nearest five by the statement that was prepared."""
        return list(self._prepared.run(embedding=vector_text(query.vector), **self._values))


Round = dict[str, list[float]]


def _timed(
    found: Database, user_id: uuid.UUID, asked: list[Query], options: dict[str, Any], rounds: int
) -> list[Round]:
    """Each round's milliseconds of each way; the searches each in a transaction that is already open. One round more warms up."""
    bare = Bare(found.superuser.url, user_id, options)
    ways: dict[str, Callable[[Query], object]] = {
        "run": bare.run,
        "prepared": bare.run_prepared,
        "more": bare.run_for_more,
    }
    order = ["search", *ways]
    measured: list[Round] = []
    for _ in range(rounds + 1):
        took: Round = {kind: [] for kind in order}
        for query in asked:
            random.shuffle(order)
            for kind in order:
                with user_transaction(user_id, source=found.app) as connection:
                    connection.execute(sa.text("select 1"))
                    started = time.perf_counter()
                    if kind == "search":
                        _search(connection, user_id, query, options)
                    else:
                        ways[kind](query)
                    took[kind].append((time.perf_counter() - started) * 1000)
        measured.append(took)
    bare.connection.close()
    return measured[1:]


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def _rows(name: str, rounds: list[Round]) -> list[Row]:
    """Times of a filter, and their ratios round by round."""
    ratios = {kind: [p95(r["search"]) / p95(r[kind]) for r in rounds] for kind in ("run", "prepared", "more")}
    said = {kind: [value for r in rounds for value in r[kind]] for kind in rounds[0]}
    milliseconds = {kind: f"{statistics.median(all_):.2f} / {p95(all_):.2f}" for kind, all_ in said.items()}
    print(f"{name}: p50 / p95 in ms: {milliseconds}", flush=True)
    return [
        report.of(f"search, {name}: p95 against bare pgvector", ratios["run"], "×", "≤ 2"),
        report.of(f"search, {name}: p95 against bare pgvector, prepared", ratios["prepared"], "×"),
        report.of(
            f"search, {name}: p95 against bare pgvector for as many as it fetches", ratios["more"], "×"
        ),
    ]


def main(argv: list[str] | None = None) -> None:
    """Build, measure, publish."""
    arguments = report.parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help="few entries")
    arguments.add_argument("--entries", type=int, help="default: 100,000")
    arguments.add_argument("--queries", type=int, help="default: 100")
    arguments.add_argument("--rounds", type=int, help="of timing; default: 7")
    asked = arguments.parse_args(argv)
    entries, queries, rounds = (5000, 20, 2) if asked.quick else (100_000, 100, 7)
    report.publish(
        run(asked.entries or entries, asked.queries or queries, asked.rounds or rounds), asked.json
    )


if __name__ == "__main__":
    main()
