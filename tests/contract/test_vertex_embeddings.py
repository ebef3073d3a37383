"""What goes to Vertex AI's embedding models over HTTP, by the real SDK, and what comes back."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import pytest

from common.config import Settings
from common.errors import ConfigError, Unavailable
from common.knowledge.embeddings import Embedder, embedder
from tests.stubs.vertex_embeddings_server import VertexStub, vertex_embeddings_server


@pytest.fixture
def vertex() -> Iterator[VertexStub]:
    with vertex_embeddings_server() as stub:
        yield stub


def model(stub: VertexStub, name: str = "text-embedding-005") -> Embedder:
    return embedder(
        Settings(
            embedding_model=name,
            vertex_project="club",
            vertex_location="europe-west1",
            vertex_base_url=stub.url,
        )
    )


def test_a_query_and_a_document_are_told_apart(vertex: VertexStub) -> None:
    model(vertex).embed(["how do I win members back"], kind="query")
    model(vertex).embed(["Send three mails."], kind="document")
    (path, query), (_, document) = vertex.requests
    assert path == (
        "/v1beta1/projects/club/locations/europe-west1/publishers/google/models/text-embedding-005:predict"
    )
    assert query["instances"] == [{"content": "how do I win members back", "task_type": "RETRIEVAL_QUERY"}]
    assert document["instances"] == [{"content": "Send three mails.", "task_type": "RETRIEVAL_DOCUMENT"}]
    assert query["parameters"] == {"outputDimensionality": 768}


def test_vectors_come_back_in_order_and_at_length_one(vertex: VertexStub) -> None:
    used = model(vertex)
    first, second = used.embed(["a", "bbb"], kind="document")
    assert used.name == "text-embedding-005"
    assert used.dimensions == len(first) == len(second) == 768
    assert first[:2] == pytest.approx([1 / math.sqrt(10), 3 / math.sqrt(10)])
    assert second[:2] == pytest.approx([1 / math.sqrt(2), 1 / math.sqrt(2)])


def test_many_texts_go_in_requests_within_the_limits(vertex: VertexStub) -> None:
    short = [f"text {n}" for n in range(600)]
    assert len(model(vertex).embed(short, kind="document")) == 600
    assert [len(body["instances"]) for _, body in vertex.requests] == [250, 250, 100]
    vertex.requests.clear()
    assert len(model(vertex).embed(["word " * 10_000] * 3, kind="document")) == 3
    assert [len(body["instances"]) for _, body in vertex.requests] == [1, 1, 1]


def test_gemini_models_get_one_text_a_request(vertex: VertexStub) -> None:
    assert len(model(vertex, "gemini-embedding-001").embed(["a", "b"], kind="document")) == 2
    assert len(vertex.requests) == 2


def test_an_overload_is_tried_again(vertex: VertexStub) -> None:
    vertex.failures = [503]
    assert len(model(vertex).embed(["a"], kind="query")) == 1
    assert len(vertex.requests) == 2


def test_an_outage_is_told_as_one(vertex: VertexStub) -> None:
    vertex.failures = [503] * 10
    with pytest.raises(Unavailable):
        model(vertex).embed(["a"], kind="query")
    used = model(vertex, "text-multilingual-embedding-002")
    vertex.failures = [403]
    with pytest.raises(Unavailable):
        used.embed(["a"], kind="query")


def test_a_server_that_is_not_there_is_told_as_an_outage() -> None:
    with vertex_embeddings_server() as gone:
        used = model(gone)
    with pytest.raises(Unavailable):
        used.embed(["a"], kind="query")


def test_vectors_of_another_length_are_refused(vertex: VertexStub) -> None:
    vertex.dimensions = 256
    with pytest.raises(Unavailable):
        model(vertex).embed(["a"], kind="query")


def test_what_the_sdk_could_not_send_is_cleaned(vertex: VertexStub) -> None:
    assert len(model(vertex).embed(["a\x00b\ud800", ""], kind="query")) == 2
    assert [i["content"] for i in vertex.requests[0][1]["instances"]] == ["ab\ufffd", " "]


def test_real_credentials_never_go_over_plain_http(vertex: VertexStub) -> None:
    model(vertex).embed(["a"], kind="query")
    assert vertex.authorizations == ["Bearer local"]


def test_a_model_of_vertex_needs_a_project() -> None:
    with pytest.raises(ConfigError, match="MEMBERINTEL_VERTEX_PROJECT"):
        embedder(Settings(embedding_model="text-embedding-005"))


def test_the_module_imports_no_sdk() -> None:
    import subprocess

    code = "import sys, common.knowledge.embeddings; sys.exit(any(m in sys.modules for m in ('google.genai', 'onnxruntime', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
