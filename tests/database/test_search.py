"""Finding entries, as the application's role under row level security."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from common.config import Settings
from common.db import heard, user_transaction
from common.errors import ConfigError
from common.knowledge import ingest, lexical
from common.knowledge.embeddings import Kind
from common.knowledge.search import (
    SearchResult,
    TurnSearch,
    nearest_memory,
    search_brain,
    search_for_turn,
    vector_text,
)
from common.text import to_json
from tests.conftest import NOW, Database, Person, add_person

AXES = ("price", "cancel", "mail", "course", "event", "refund", "bike", "tea")


WORDLESS = "\N{THUMBS UP SIGN}"


class Meanings:
    """An embedder whose eight dimensions are eight words, each with a synonym that it takes for the same. One word has no meaning."""

    name = "meanings"
    dimensions = len(AXES)
    synonyms = {"cost": "price", "leave": "cancel", "newsletter": "mail", "lesson": "course"}  # noqa: RUF012

    def embed(self, texts: Sequence[str], *, kind: Kind) -> list[list[float]]:
        return [self._vector(text.lower().split()) for text in texts]

    def _vector(self, words: list[str]) -> list[float]:
        if WORDLESS in words:
            return [0.0] * self.dimensions
        named = [self.synonyms.get(word, word) for word in words]
        counts = [named.count(axis) + 0.01 for axis in AXES]
        length = sum(c * c for c in counts) ** 0.5
        return [c / length for c in counts]


MODEL = Meanings()


class Brain:
    """Arranges entries, and searches as the application."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.me = add_person(database, "me@club.example")

    def article(
        self,
        content: str,
        *,
        document: str = "",
        title: str = "",
        collection: str = "articles",
        model: str = MODEL.name,
        **attributes: Any,
    ) -> uuid.UUID:
        return self._add(None, "global", collection, document or content, title, content, attributes, model)

    def memory(
        self, content: str, *, of: Person | None = None, title: str = "", model: str = MODEL.name
    ) -> uuid.UUID:
        owner = of or self.me
        return self._add(owner.user_id, str(owner.tenant_id), "memory", "memory", title, content, {}, model)

    def _add(
        self,
        user_id: uuid.UUID | None,
        tenant: str,
        collection: str,
        document: str,
        title: str,
        content: str,
        attributes: Any,
        model: str,
    ) -> uuid.UUID:
        (vector,) = MODEL.embed([f"{title} {content}"], kind="document")
        entry_id = uuid.uuid4()
        self.database.run(
            "insert into brain_entries (id, tenant_id, user_id, collection, document, title, content, content_hash, attributes, embedding,"
            " embedding_model, created_at, updated_at) values (:id, :tenant, cast(:user_id as uuid), :collection, :document, :title,"
            " :content, :hash, cast(:attributes as jsonb), cast(:embedding as vector), :model, :now, :now)",
            id=entry_id,
            tenant=tenant,
            user_id=user_id,
            collection=collection,
            document=document,
            title=title,
            content=content,
            hash=str(entry_id),
            attributes=to_json(attributes),
            embedding=vector_text(vector),
            model=model,
            now=NOW,
        )
        return entry_id

    def ready(self) -> None:
        """What ingest does after writing."""
        with self.database.engine("owner").begin() as connection:
            lexical.count_terms(connection)
        ingest.make_index(self.database.engine("owner"), MODEL)

    @contextmanager
    def connection(self, person: Person | None = None) -> Iterator[Connection]:
        with user_transaction((person or self.me).user_id, source=self.database.engine("app")) as connection:
            yield connection

    def search(
        self, query: str, *, by: Person | None = None, meaning: bool = True, **options: Any
    ) -> SearchResult:
        asked: dict[str, Any] = {"collection": "knowledge", "trace": True, **options}
        vector = MODEL.embed([query], kind="query")[0] if meaning else None
        with self.connection(by) as connection:
            return search_brain(
                connection,
                user_id=(by or self.me).user_id,
                query=query,
                query_embedding=vector,
                model=MODEL.name,
                **asked,
            )

    def for_turn(self, query: str, **options: Any) -> TurnSearch:
        with self.connection() as connection:
            return search_for_turn(
                connection,
                user_id=self.me.user_id,
                query=query,
                query_embedding=MODEL.embed([query], kind="query")[0],
                model=MODEL.name,
                **options,
            )


@pytest.fixture
def brain(database: Database) -> Brain:
    return Brain(database)


def texts(result: SearchResult) -> list[str]:
    return [candidate.content for candidate in result.top]


def test_what_means_the_same_is_found_without_a_common_word(brain: Brain) -> None:
    brain.article("cancel")
    brain.article("bike")
    brain.ready()
    assert texts(brain.search("leave"))[0] == "cancel"


def test_a_rare_word_weighs_more_than_a_common_one(brain: Brain) -> None:
    for number in range(30):
        brain.article(f"the club number {number} has a rule")
    wanted = brain.article("the zeppelin has a gondola")
    brain.ready()
    assert brain.search("rule of the club with a zeppelin", meaning=False).top[0].entry_id == wanted


def test_the_same_holds_for_memory_by_counts_of_its_own(brain: Brain) -> None:
    for number in range(10):
        brain.memory(f"the club number {number} has a rule")
    wanted = brain.memory("the zeppelin has a gondola")
    found = brain.search("rule of the club with a zeppelin", collection="memory", meaning=False)
    assert found.top[0].entry_id == wanted


def test_words_are_matched_by_their_stem(brain: Brain) -> None:
    brain.article("Refunding members")
    brain.ready()
    assert texts(brain.search("refunds for a member", meaning=False)) == ["Refunding members"]


def test_an_entry_that_only_the_words_found_has_its_cosine_too(brain: Brain) -> None:
    for number in range(40):
        brain.article(f"price {number}")
    brain.article("tea zeppelin")
    brain.ready()
    found = {c.content: c for c in brain.search("price zeppelin", limit=2).trace}
    (asked,) = MODEL.embed(["price zeppelin"], kind="query")
    (stored,) = MODEL.embed([" tea zeppelin"], kind="document")
    assert found["tea zeppelin"].score == pytest.approx(
        sum(a * b for a, b in zip(asked, stored, strict=True)), abs=1e-5
    )
    assert 0 < found["tea zeppelin"].score < 0.1


def test_context_helps_to_find_but_is_not_returned(brain: Brain) -> None:
    entry = brain.article("tea")
    brain.database.run("update brain_entries set context = 'served on the zeppelin' where id = :id", id=entry)
    brain.ready()
    assert texts(brain.search("zeppelin", meaning=False)) == ["tea"]


def test_a_word_weighs_the_same_as_it_is_searched_as_in_the_lists_of_the_heaviest(brain: Brain) -> None:
    odd = "example.com/a'b?x='1'&y=2"
    for content in (f"tea {odd} tea", "a foo-bar at 1.5e-3", "tea tea tea tea"):
        entry = brain.article(content, title="tea time")
        brain.database.run(
            "update brain_entries set context = :context where id = :id", id=entry, context=f"tea {odd}"
        )
    brain.ready()
    alone, found = lexical.ALONE, lexical.times("e", "alone")
    rows = brain.database.rows(f"""
        select lexeme, listed, idf * {lexical.weight("e", found)} as counted, {found} as times
        from (select *, {alone} as alone, unnest(best) as id, unnest(words) as listed from brain_terms) as t
        join brain_entries as e using (id)
    """)
    assert {odd, "foo-bar", "1.5e-3"} <= {row.lexeme for row in rows}
    assert [row.counted for row in rows] == pytest.approx([row.listed for row in rows], rel=1e-5)
    assert max(row.times for row in rows if row.lexeme == "tea") == pytest.approx(1 + 4 + lexical.CONTEXT)


@pytest.mark.parametrize("collection", ["knowledge", "memory"])
def test_a_word_of_any_characters_is_found(brain: Brain, collection: str) -> None:
    wanted = "see example.com/a'b?x='1'&y=2 now"
    for content in (wanted, "see example.com now"):
        brain.article(content) if collection == "knowledge" else brain.memory(content)
    brain.ready()
    assert texts(brain.search("example.com/a'b?x='1'&y=2", meaning=False, collection=collection))[0] == wanted


def test_of_a_document_only_the_best_chunk_stays(brain: Brain) -> None:
    brain.article("price and mail", document="guide")
    brain.article("price price of a zeppelin", document="guide")
    brain.article("price of tea", document="other")
    brain.ready()
    result = brain.search("price of a zeppelin")
    assert texts(result) == ["price price of a zeppelin", "price of tea"]
    assert [candidate.document for candidate in result.trace] == ["guide", "other"]


def test_memories_are_never_dropped_as_chunks_of_one_document(brain: Brain) -> None:
    brain.memory("price one")
    brain.memory("price two")
    assert sorted(texts(brain.search("price", collection="memory"))) == ["price one", "price two"]


def test_the_trace_is_the_whole_list_in_order_and_the_top_its_beginning(brain: Brain) -> None:
    for number in range(12):
        brain.article(f"price number {number}")
    brain.ready()
    result = brain.search("price", limit=3)
    assert [c.rank for c in result.trace] == list(range(1, len(result.trace) + 1))
    assert len(result.trace) >= 9
    assert result.top == result.trace[:3]
    assert [c.surfaced for c in result.trace] == [c.rank <= 3 for c in result.trace]
    assert brain.search("price", trace=False).trace == []


def test_a_match_with_the_profile_lifts_an_entry(brain: Brain) -> None:
    plain = brain.article("price price guide", document="a")
    fitting = brain.article("price guide", document="b", platform=["kajabi", "memberpress"])
    other = brain.article("price price guide to", document="c", platform="patreon")
    brain.ready()
    assert {c.entry_id for c in brain.search("price guide").top[:2]} == {plain, other}
    assert brain.search("price guide", profile={"platform": "kajabi"}).top[0].entry_id == fitting
    assert brain.search("price guide", profile={"platform": "patreon"}).top[0].entry_id == other


def test_a_filter_leaves_only_what_matches_and_still_finds_enough(brain: Brain) -> None:
    for number in range(200):
        brain.article(f"price {number}", stage="launch")
    for number in range(5):
        brain.article(f"the price of tea {number}", stage="growth")
    brain.ready()
    result = brain.search("price", attributes={"stage": "growth"})
    assert sorted(texts(result)) == [f"the price of tea {number}" for number in range(5)]


def test_a_collection_can_be_searched_alone(brain: Brain) -> None:
    for number in range(100):
        brain.article(f"price {number}", collection="articles")
    brain.article("price of tea", collection="faq")
    brain.ready()
    assert texts(brain.search("price", collection="faq")) == ["price of tea"]


def test_a_small_user_beside_a_large_one_gets_all_of_their_rows(brain: Brain) -> None:
    large = add_person(brain.database, "large@club.example")
    brain.database.run(
        "insert into brain_entries (tenant_id, user_id, collection, document, title, content, content_hash, embedding, embedding_model,"
        " created_at, updated_at) select :tenant, :user_id, 'memory', 'm', '', 'price ' || n, 'h', cast(:embedding as vector), :model,"
        " :now, :now from generate_series(1, 5000) as n",
        tenant=str(large.tenant_id),
        user_id=large.user_id,
        embedding=vector_text(MODEL.embed(["price"], kind="document")[0]),
        model=MODEL.name,
        now=NOW,
    )
    for word in ("tea", "bike", "event"):
        brain.memory(word)
    brain.ready()
    assert sorted(texts(brain.search("price", collection="memory"))) == ["bike", "event", "tea"]
    assert len(brain.search("price", by=large, collection="memory").top) == 5


def test_another_users_memory_is_out_of_reach_by_either_lock(brain: Brain) -> None:
    other = add_person(brain.database, "other@club.example")
    brain.memory("price of theirs", of=other)
    vector = MODEL.embed(["price"], kind="query")[0]
    asked: dict[str, Any] = {
        "query": "price",
        "query_embedding": vector,
        "model": MODEL.name,
        "collection": "memory",
    }
    with brain.connection() as connection:  # row level security alone: the condition asks for the other's
        assert search_brain(connection, user_id=other.user_id, **asked).top == []
        assert nearest_memory(connection, user_id=other.user_id, embedding=vector, model=MODEL.name) is None
    with (
        brain.database.superuser.begin() as connection
    ):  # the condition alone: no policy holds for a superuser
        assert search_brain(connection, user_id=brain.me.user_id, **asked).top == []
        assert (
            nearest_memory(connection, user_id=brain.me.user_id, embedding=vector, model=MODEL.name) is None
        )
        assert len(search_brain(connection, user_id=other.user_id, **asked).top) == 1


def test_with_no_user_set_there_is_no_memory_but_the_knowledge_base(brain: Brain) -> None:
    brain.memory("price of mine")
    brain.article("price of all")
    brain.ready()
    with brain.database.engine("app").begin() as connection:
        found = search_for_turn(
            connection,
            user_id=brain.me.user_id,
            query="price",
            query_embedding=MODEL.embed(["price"], kind="query")[0],
            model=MODEL.name,
        )
    assert (texts(found.memory), texts(found.knowledge)) == ([], ["price of all"])


@contextmanager
def searches(statements: list[str]) -> Iterator[None]:
    """Note the statements that search."""

    def note(_role: str, sql: str) -> None:
        if "asked as materialized" in sql:
            statements.append(sql)

    with heard(note):
        yield


def test_a_turn_searches_memory_and_knowledge_by_one_statement(brain: Brain) -> None:
    brain.memory("cancel by mail")
    brain.article("cancel by price")
    brain.ready()
    statements: list[str] = []
    with brain.connection() as connection, searches(statements):
        found = search_for_turn(
            connection,
            user_id=brain.me.user_id,
            query="how do members leave",
            query_embedding=MODEL.embed(["leave"], kind="query")[0],
            model=MODEL.name,
            profile={"platform": "kajabi"},
        )
    assert len(statements) == 1
    assert (texts(found.memory), texts(found.knowledge)) == (["cancel by mail"], ["cancel by price"])
    assert found.memory.trace == []
    assert [c.content for c in found.knowledge.trace] == ["cancel by price"]


def test_a_plan_for_any_values_uses_the_index_of_the_model(brain: Brain) -> None:
    brain.article("price", stage="new")
    brain.ready()
    statements: list[str] = []
    with brain.connection() as connection:
        with searches(statements):
            search_brain(
                connection,
                user_id=brain.me.user_id,
                query="price",
                query_embedding=MODEL.embed(["price"], kind="query")[0],
                model=MODEL.name,
                collection="articles",
                attributes={"stage": "new"},
            )
        connection.exec_driver_sql("set local enable_seqscan = off")
        plan = connection.exec_driver_sql(f"explain (generic_plan) {statements[0]}").scalars().all()
    assert any("ix_brain_entries_embedding_" in line for line in plan), "\n".join(plan)


def test_a_filter_that_leaves_little_finds_it_though_the_index_gives_up(brain: Brain) -> None:
    rare = {brain.article(f"tea {n}", stage="rare") for n in range(3)}
    for n in range(250):
        brain.article(f"price {n}", stage="common")
    brain.ready()
    statements: list[str] = []
    with brain.connection() as connection:
        for setting in ("enable_seqscan = off", "enable_sort = off", "hnsw.max_scan_tuples = 1"):
            connection.exec_driver_sql(f"set local {setting}")
        with searches(statements):
            found = search_brain(
                connection,
                user_id=brain.me.user_id,
                query="price",
                query_embedding=MODEL.embed(["price"], kind="query")[0],
                model=MODEL.name,
                collection="knowledge",
                attributes={"stage": "rare"},
            )
    assert {candidate.entry_id for candidate in found.top} == rare
    assert len(statements) == 2


def test_the_two_searches_find_what_each_finds_alone(brain: Brain) -> None:
    for number, axis in enumerate(AXES * 3):
        brain.memory(f"{axis} of mine {number}")
        brain.article(f"{axis} of all {number}")
    brain.ready()
    found = brain.for_turn("price of a course")
    assert found.memory.top == brain.search("price of a course", collection="memory").top
    assert found.knowledge == brain.search("price of a course")


def test_the_settings_of_the_scan_end_with_the_transaction(brain: Brain) -> None:
    brain.article("price")
    brain.ready()
    brain.search("price")
    with brain.database.engine("app").connect() as connection:
        assert connection.scalar(sa.text("show hnsw.iterative_scan")) == "off"


@pytest.mark.parametrize("collection", ["memory", "knowledge"])
def test_another_models_entries_stop_the_search_and_name_the_command(brain: Brain, collection: str) -> None:
    brain.memory("price", model="another") if collection == "memory" else brain.article(
        "price", model="another"
    )
    brain.ready()
    with pytest.raises(ConfigError, match="memberintel reembed"):
        brain.search("price", collection=collection)
    with pytest.raises(ConfigError, match="memberintel reembed"):
        brain.for_turn("price")


def test_vectors_of_another_length_stop_the_search_the_same_way(brain: Brain) -> None:
    brain.memory("price")
    brain.article("price")
    brain.ready()
    with brain.connection() as connection, pytest.raises(ConfigError, match="memberintel reembed"):
        search_for_turn(
            connection,
            user_id=brain.me.user_id,
            query="price",
            query_embedding=[1.0, 0.0, 0.0],
            model="shorter",
        )


def test_an_entry_without_a_vector_is_found_by_its_words(brain: Brain) -> None:
    entry = brain.memory("price of a zeppelin")
    brain.memory("price of tea")
    brain.database.run(
        "update brain_entries set embedding = null, embedding_model = null where id = :id", id=entry
    )
    found = brain.search("zeppelin", collection="memory")
    assert found.top[0].entry_id == entry
    assert found.top[0].score == 0.0


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "the of and",
        "'; drop table users; --",
        "a & b | !c <-> :*",
        "nul \x00 lone \ud800",
        "x" * 8000,
        "٣ 漢字 🚲",
    ],
)
def test_any_query_is_searched_for(brain: Brain, query: str) -> None:
    brain.article("price")
    brain.memory("price")
    brain.ready()
    found = brain.for_turn(query)
    assert (texts(found.memory), texts(found.knowledge)) == (["price"], ["price"])
    assert brain.search(query, meaning=False, collection="memory").top == []


def test_an_empty_brain_finds_nothing(brain: Brain) -> None:
    found = brain.for_turn("price")
    assert found.memory.top == found.knowledge.top == found.knowledge.trace == []


def test_the_nearest_memory_and_its_similarity(brain: Brain) -> None:
    assert _nearest(brain, "price") is None
    brain.memory("tea")
    entry = brain.memory("price price")
    found = _nearest(brain, "cost")
    assert found is not None
    assert found[0] == entry
    assert found[1] > 0.99


def test_only_the_knowledge_base_is_in_the_index(brain: Brain) -> None:
    brain.ready()
    (row,) = brain.database.rows(
        "select indexdef from pg_indexes where starts_with(indexname, 'ix_brain_entries_embedding')"
    )
    assert "hnsw" in row.indexdef
    assert "WHERE ((tenant_id = 'global'::text)" in row.indexdef


def test_settings_choose_the_embedder() -> None:
    from common.knowledge.embeddings import embedder

    assert embedder(Settings(embedding_model="hashed")).name == "hashed-ngrams-1024"
    assert embedder(Settings(embedding_model="local")).dimensions == 384
    assert embedder(Settings()) is embedder(Settings(embedding_model="local"))


def _nearest(brain: Brain, text: str) -> tuple[uuid.UUID, float] | None:
    with brain.connection() as connection:
        return nearest_memory(
            connection,
            user_id=brain.me.user_id,
            embedding=MODEL.embed([text], kind="query")[0],
            model=MODEL.name,
        )


@pytest.mark.parametrize("collection", ["memory", "knowledge"])
def test_what_has_no_direction_leaves_the_words_to_decide(brain: Brain, collection: str) -> None:
    """A vector of zeros is like nothing, and nothing is like it. It spoils no other entry's score."""
    add = brain.memory if collection == "memory" else brain.article
    wordless, bike, tea = (add(text) for text in (WORDLESS, "the bike", "tea at five"))
    brain.ready()
    by_words = brain.search(f"{WORDLESS} tea", collection=collection)
    assert by_words.top[0].entry_id == tea
    assert {c.score for c in by_words.trace} == {0.0}
    by_both = {c.entry_id: c.score for c in brain.search("bike", collection=collection).trace}
    assert by_both[bike] > 0.9
    assert by_both.get(wordless, 0.0) == 0.0
