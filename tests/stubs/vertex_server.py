"""Vertex AI's side of the wire for Gemini: chunks of `streamGenerateContent` as a real server streams them."""

from __future__ import annotations

from typing import Any

from tests.stubs.scripted import Reply, Scripted, scripted

__all__ = ["Reply", "Scripted", "answer", "api_error", "blocked", "chunk", "cut", "scripted"]


def chunk(
    *parts: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None
) -> dict[str, Any]:
    """One chunk with the parts of the only candidate."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    made: dict[str, Any] = {"candidates": [candidate], "modelVersion": "gemini-3.5-flash-lite"}
    return {**made, "usageMetadata": usage} if usage else made


def answer(*parts: dict[str, Any], finish: str = "STOP", usage: dict[str, int] | None = None) -> Reply:
    """A whole answer, a chunk for each part and a last one that says why it ended and what was used."""
    used = usage or {"promptTokenCount": 100, "candidatesTokenCount": 20}
    chunks = [*(chunk(part) for part in parts), chunk(finish=finish, usage=used)]
    return Reply(tuple(("", made) for made in chunks))


def blocked(reason: str = "PROHIBITED_CONTENT") -> Reply:
    """A prompt that was blocked before anything was generated."""
    return Reply(
        (("", {"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 100}}),)
    )


def cut(*parts: dict[str, Any]) -> Reply:
    """An answer whose connection breaks after its parts."""
    return Reply(tuple(("", chunk(part)) for part in parts), cut=True)


def api_error(status: int, name: str) -> Reply:
    """An error before the stream."""
    return Reply(status=status, body={"error": {"code": status, "status": name, "message": name}})
