"""Finding entries of the brain: a user's MEMORY and the knowledge base, by meaning and by words, in one statement.

SQL gathers what either way finds and fuses both scores; Python adds the customer's profile, puts all in order, and drops further chunks of
the same document. A user's own entries are compared one by one, through the index on `user_id`: an approximate index would lose a small
user's rows among the others'. Only the knowledge base has one (HNSW, partial, on a cast; `reembed` makes it).
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from common.db import ask, binary, statement
from common.errors import ConfigError
from common.knowledge.lexical import ALONE, ENTRIES_WITH, times, weight
from common.text import clean_text, to_json

# Set by benchmarks/locomo.py and benchmarks/search.py.
WORDS = 0.6  # the share of the words in the fused score; the rest is meaning's
BOOST = 0.15  # what a full match with the customer's profile adds
EF_SEARCH = 120  # how many neighbours HNSW keeps in view, and so the size of the first batch that it finds
MORE = 20  # the size of each further batch, where a filter leaves too little of those before
OVER_FETCH, OVER_FETCH_WITH_PROFILE = 3, 6


class MixedModels(ConfigError):
    """Entries were embedded by another model than the one in use. Run `memberintel reembed`."""

    type = "mixed-embedding-models"


class Candidate(NamedTuple):
    """An entry that a search returned. `score` is the cosine similarity to the query, by half-precision numbers where the index found
    it, also of what only the words found (0 where it is not known); `rank` counts from 1 in the final order, which is by the fused
    score."""

    entry_id: uuid.UUID
    document: str
    title: str
    url: str | None
    content: str
    created_at: datetime
    updated_at: datetime
    score: float
    rank: int
    surfaced: bool


@dataclass(frozen=True)
class SearchResult:
    """`top` is what to show, best first. `trace` is the whole de-duplicated, re-ranked list; empty unless it was asked for."""

    top: list[Candidate]
    trace: list[Candidate]


@dataclass(frozen=True)
class TurnSearch:
    """What one statement found for a turn, and the columns that were asked for beside, by name, as the driver gives them."""

    memory: SearchResult
    knowledge: SearchResult
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """Columns that a statement gives beside what the search finds: pairs of a name and an SQL expression, and the values of the
    expressions' parameters."""

    columns: tuple[tuple[str, str], ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def search_brain(
    connection: Connection,
    *,
    user_id: uuid.UUID,
    query: str,
    query_embedding: Sequence[float] | None,
    model: str,
    collection: str,
    limit: int = 5,
    profile: Mapping[str, str] | None = None,
    attributes: Mapping[str, str] | None = None,
    trace: bool = False,
) -> SearchResult:
    """The `limit` best entries for `query` in `memory` (the user's), in `knowledge` (the whole knowledge base) or in the collection of
    it that is named. `query_embedding` is the query's vector by `model`; without one, words alone decide.

    `profile` lifts entries whose attributes match the customer's, `attributes` leaves only those that match. Raises MixedModels where
    what would be searched was embedded by another model.
    """
    asked = _Asked(user_id, query, query_embedding, model, collection, limit, profile, attributes, trace)
    part = "memory" if collection == "memory" else "knowledge"
    return _ranked(_run(connection, asked, part)[f"{part}_found"] or [], asked)


def search_for_turn(
    connection: Connection,
    *,
    user_id: uuid.UUID,
    query: str,
    query_embedding: Sequence[float] | None,
    model: str,
    limit: int = 5,
    profile: Mapping[str, str] | None = None,
    beside: Beside = Beside(),
) -> TurnSearch:
    """What `search_brain` finds in MEMORY and, with the trace, in the knowledge base, by one statement. Raises MixedModels."""
    asked = _Asked(user_id, query, query_embedding, model, "knowledge", limit, profile, None, True)
    row = _run(connection, asked, "memory", "knowledge", beside=beside)
    memory, knowledge = row["memory_found"] or [], row["knowledge_found"] or []
    return TurnSearch(
        _ranked(memory, asked._replace(collection="memory", trace=False)),
        _ranked(knowledge, asked),
        {name: row[name] for name, _ in beside.columns},
    )


def nearest_memory(
    connection: Connection, *, user_id: uuid.UUID, embedding: Sequence[float], model: str
) -> tuple[uuid.UUID, float] | None:
    """The user's MEMORY entry that is nearest in meaning and its cosine similarity; None if there is none by that model."""
    row = connection.execute(
        sa.text(
            "select id, 1 - (embedding <=> cast(:embedding as vector)) as score from brain_entries"
            " where user_id = :user_id and collection = 'memory' and embedding_model = :model"
            " order by score desc limit 1"
        ),
        {"user_id": user_id, "embedding": _vector(embedding), "model": model},
    ).first()
    return (row.id, float(row.score)) if row else None


def literal(text: str) -> str:
    """`text` as it stands in SQL that SQLAlchemy reads, where a parameter cannot."""
    return "'" + text.replace("'", "''").replace(":", r"\:") + "'"


def vector_text(vector: Sequence[float]) -> str:
    """`vector` as pgvector reads it."""
    return f"[{','.join(['%.7g'] * len(vector)) % tuple(vector)}]"


def _vector(vector: Sequence[float]) -> bytes:
    """`vector` as a parameter: as pgvector reads it in binary. A turn's query is hundreds of numbers, which take a while to write as text,
    and to read."""
    return binary(struct.pack(f">hh{len(vector)}f", len(vector), 0, *vector))


class _Asked(NamedTuple):
    user_id: uuid.UUID
    query: str
    embedding: Sequence[float] | None
    model: str
    collection: str
    limit: int
    profile: Mapping[str, str] | None
    attributes: Mapping[str, str] | None
    trace: bool

    @property
    def fetch(self) -> int:
        """How many entries each way is to find: more than are shown, for the profile lifts some and chunks of a document are dropped."""
        return self.limit * (OVER_FETCH_WITH_PROFILE if self.profile else OVER_FETCH)

    @property
    def most(self) -> int:
        """How many entries of MEMORY are to come, the best: more than are shown only for a trace, or for the profile to lift."""
        return self.fetch if self.profile or (self.trace and self.collection == "memory") else self.limit


# The settings of the scan are made in the statement itself, by the sub-select that the scan waits for: no round trip of their own.
_ASKED = f"""
asked as materialized (
    select cast(:embedding as vector) as embedding,
           set_config('hnsw.ef_search', '{EF_SEARCH}', true), set_config('hnsw.iterative_scan', 'strict_order', true)
),
terms as materialized (
    select lexeme, {ALONE} as alone from unnest(to_tsvector('english', cast(:query as text)))
)"""

_SHOWN = "id as entry_id, document, title, url, content, attributes, created_at, updated_at, score"
# Each score as a share of the best. Not ranks or ranges: those would depend on which others were found.
_FUSED = f"""
    {WORDS} * coalesce(words / nullif(max(words) over (), 0), 0)
    + {1 - WORDS} * coalesce(greatest(score, 0) / nullif(max(greatest(score, 0)) over (), 0), 0) as fused"""
# A vector of zeros (a text without words) has no direction: what it is compared with is of no known similarity, not of NaN.
_SIMILARITY = "case when embedding_model = :model then nullif(1 - (embedding <=> (select embedding from asked)), 'NaN') end"
_SCORE = f"{_SIMILARITY} as score"

_MEMORY = f"""
mine as materialized (
    select *, {_SCORE} from brain_entries
    where user_id = :user_id and collection = 'memory' and attributes @> cast(:attributes as jsonb)
),
my_terms as (
    select id, {weight("mine", times("mine", "alone"))} as weight, count(*) over (partition by lexeme) as entries
    from mine, terms where lexemes @@ alone
),
my_words as (
    select id, sum(weight * {ENTRIES_WITH.format(total="(select count(*) from mine)", entries="entries")}) as words
    from my_terms group by id
),
my_found as (
    select {_SHOWN}, {_FUSED} from mine left join my_words using (id)
    where words is not null or score is not null
    order by fused desc, entry_id limit :most
),
memory as (
    select (select json_agg(my_found) from my_found) as found,
           (select array_agg(distinct embedding_model) from mine where embedding is not null) as models
)"""

# The knowledge base. A filter applies within each of the two scans, so that it cannot leave too little. What the words found is asked for
# the filter from the best on, each by itself, until enough passed: the heaviest few hundred are not all looked up.
_KNOWLEDGE = """
known as materialized (select * from terms join brain_terms using (lexeme)),
champions as (select unnest(best) as id, unnest(words) as words from known),
by_words as (select id, sum(words) as words from champions group by id order by words desc),
nearest as materialized ({nearest}),
candidates as (
    select id, max(similarity) as similarity from (
        (select id, null as similarity from by_words {filtered} order by words desc limit {fetch})
        union all select id, nullif(1 - distance, 'NaN') from nearest
    ) as either group by id
),
known_found as (
    select {shown}, {fused} from (
        select e.*, coalesce(similarity, {similarity}) as score,
               (select sum(idf * {weight}) from known) as words
        from candidates join brain_entries as e using (id) where e.tenant_id = 'global'
    ) as e order by entry_id
),
knowledge as (
    select (select json_agg(known_found) from known_found) as found,
           (select array[min(embedding_model), max(embedding_model)] from brain_entries where tenant_id = 'global') as models,
           (select count(*) from nearest) as nearest
)"""

# The index reads the size of a batch as it begins one. A row comes when the first has been made, and makes those after it small: a filter
# mostly leaves a few too little, not a whole batch. The distance is computed for the order in any case.
_NEAREST = f"""
    select id, {{distance}} as distance, set_config('hnsw.ef_search', '{MORE}', true) from brain_entries
    where {{within}} and embedding_model = {{model}} order by distance limit {{fetch}}"""
_NOTHING = "select cast(null as uuid) as id, cast(null as float8) as distance limit 0"
_BY_INDEX = "cast(embedding as halfvec({size})) <=> cast((select embedding from asked) as halfvec({size}))"
_ONE_BY_ONE = "embedding <=> (select embedding from asked)"


@functools.lru_cache(64)
def _statement(
    parts: tuple[str, ...],
    size: int,
    model: str,
    fetch: int,
    one_collection: bool,
    attributes: bool,
    beside: tuple[tuple[str, str], ...],
    one_by_one: bool,
) -> sa.TextualSelect:
    """The statement that gathers the candidates of `parts`; `size` is the query vector's, 0 without one. `one_by_one` compares every entry
    that the filter leaves, where else the index is asked.

    `model` and `fetch` stand in its text: a plan that serves any values of the parameters could use neither the index of one model's
    entries nor the knowledge that few rows are wanted.
    """
    distance = _ONE_BY_ONE if one_by_one else _BY_INDEX.format(size=size)
    within = "tenant_id = 'global'"
    within += " and collection = :collection" if one_collection else ""
    within += " and attributes @> cast(:attributes as jsonb)" if attributes else ""
    knowledge = _KNOWLEDGE.format(
        filtered=f"where (select true from brain_entries e where e.id = by_words.id and {within})"
        if one_collection or attributes
        else "",
        nearest=_NEAREST.format(within=within, model=literal(model), distance=distance, fetch=fetch)
        if size
        else _NOTHING,
        fetch=fetch,
        shown=_SHOWN,
        fused=_FUSED,
        similarity=_SIMILARITY,
        weight=weight("e", times("e", "alone")),
    )
    chosen = [{"memory": _MEMORY, "knowledge": knowledge}[part] for part in parts]
    shown = [(f"{part}.{what}", f"{part}_{what}") for part in parts for what in ("found", "models")]
    shown += [("knowledge.nearest", "nearest")] if "knowledge" in parts else []
    shown += [(sql, name) for name, sql in beside]
    columns = ", ".join(f"{value} as {name}" for value, name in shown)
    return statement(
        " ".join(name for _, name in shown),
        f"with {','.join([_ASKED, *chosen])} select {columns} from {', '.join(parts)}",
    )


def _run(connection: Connection, asked: _Asked, *parts: str, beside: Beside = Beside()) -> Mapping[str, Any]:
    """The row that has the candidates of each part (`memory_found`, `knowledge_found`) and what was asked for beside, by one statement, or
    by a second where a filter leaves so little that the index gave up before it had enough. Raises MixedModels."""
    one_collection, attributes = asked.collection not in parts, asked.attributes is not None
    shape = (
        parts,
        len(asked.embedding or ()),
        asked.model,
        asked.fetch,
        one_collection,
        attributes,
        beside.columns,
    )
    values = {
        "user_id": asked.user_id,
        "query": clean_text(asked.query),
        "embedding": None if asked.embedding is None else _vector(asked.embedding),
        "model": asked.model,
        "most": asked.most,
        "attributes": to_json(dict(asked.attributes or {})),
        "collection": asked.collection,
        **beside.values,
    }
    row = _gathered(connection, _statement(*shape, one_by_one=False), values)
    if asked.embedding and (one_collection or attributes) and row.get("nearest", asked.fetch) < asked.fetch:
        row = _gathered(connection, _statement(*shape, one_by_one=True), values)
    models = {model for part in parts for model in row[f"{part}_models"] or () if model}
    if asked.embedding is not None and models - {asked.model}:
        raise MixedModels()
    return row


def _gathered(
    connection: Connection, which: sa.TextualSelect, values: Mapping[str, Any]
) -> Mapping[str, Any]:
    (row,) = ask(connection, which, values)
    return row._asdict()  # type: ignore[no-any-return]


def _ranked(found: Sequence[Mapping[str, Any]], asked: _Asked) -> SearchResult:
    """The candidates in their final order: the profile's boost added; of a document of the knowledge base only the best chunk."""

    def boosted(row: Mapping[str, Any]) -> float:
        return float(row["fused"]) + BOOST * profile_match(row["attributes"], asked.profile)

    ordered = sorted(found, key=boosted, reverse=True)
    if asked.collection != "memory":
        first: dict[str, Mapping[str, Any]] = {}
        for row in ordered:
            first.setdefault(row["document"], row)
        ordered = list(first.values())
    shown = ordered if asked.trace else ordered[: asked.limit]
    candidates = [
        _candidate(row, rank, surfaced=rank <= asked.limit) for rank, row in enumerate(shown, start=1)
    ]
    return SearchResult(candidates[: asked.limit], candidates if asked.trace else [])


def _candidate(row: Mapping[str, Any], rank: int, *, surfaced: bool) -> Candidate:
    return Candidate(
        entry_id=uuid.UUID(row["entry_id"]),
        document=row["document"],
        title=row["title"],
        url=row["url"],
        content=row["content"],
        created_at=datetime.fromisoformat(row["created_at"]),
        updated_at=datetime.fromisoformat(row["updated_at"]),
        score=row["score"] or 0.0,
        rank=rank,
        surfaced=surfaced,
    )


def profile_match(attributes: Mapping[str, Any], profile: Mapping[str, str] | None) -> float:
    """The share of the profile's traits that an entry's attributes name, as a value or in a list of them; 0 without a profile."""
    if not profile:
        return 0.0
    matches = 0
    for trait, value in profile.items():
        named = attributes.get(trait)
        matches += value in named if isinstance(named, list) else value == named
    return matches / len(profile)
