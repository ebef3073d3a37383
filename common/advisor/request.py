"""What a client may send to start a turn: our own body, or the one that the AI SDK's `useChat` sends by default."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError

from common.conversations import TurnRequest
from common.errors import InvalidFields
from common.shapes import Shape
from common.text import is_blank

MAX_MESSAGE = 8_000  # characters
Id = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _seen(text: str) -> str:
    if is_blank(text):
        raise ValueError("there is nothing to see in this message")
    return text


class _Own(Shape):
    model_config = ConfigDict(extra="forbid")
    message: Annotated[
        str, StringConstraints(strip_whitespace=True, max_length=MAX_MESSAGE), AfterValidator(_seen)
    ]
    conversation_id: uuid.UUID | None = None
    turn_id: Id | None = None
    site_id: uuid.UUID | None = None
    end_session: bool = False
    remember: bool | None = None
    replaces: uuid.UUID | None = None


class _TextPart(Shape):
    type: Literal["text"]
    text: str


class _UserMessage(Shape):
    """A message of the user's. Of its parts those with text count; files and a client's own kinds are not read."""

    id: Id
    parts: list[Any] = Field(default_factory=list)

    def text(self) -> str:
        """The text parts joined. Raises ValidationError for one that has no text."""
        found = [part for part in self.parts if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(_TextPart.model_validate(part).text for part in found).strip()


class _UseChat(Shape):
    """Unknown fields are ignored: clients add their own. Of `messages` only the last of the user's is looked at;
    an answer that `messageId` names makes a repeat of the request for another one recognisable."""

    id: Id
    messages: list[Any] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: Id | None = None
    site_id: uuid.UUID | None = None
    end_session: bool = False
    remember: bool | None = None


def read_turn_request(body: dict[str, Any]) -> TurnRequest:
    """The request in `body`. Raises InvalidFields that names each wrong field."""
    try:
        if "messages" in body:
            return _from_use_chat(_UseChat.model_validate(body))
        own = _Own.model_validate(body)
    except ValidationError as exc:
        errors = [
            {"field": ".".join(map(str, e["loc"])), "error": e["msg"]}
            for e in exc.errors(include_input=False)
        ]
        raise InvalidFields(
            f"{errors[0]['field'] or 'body'}: {errors[0]['error']}", errors=errors[:20]
        ) from None
    return TurnRequest(
        message=own.message,
        turn_id=own.turn_id or str(uuid.uuid4()),
        conversation_id=own.conversation_id,
        site_id=own.site_id,
        remember=own.remember,
        end_session=own.end_session,
        replaces=str(own.replaces) if own.replaces else None,
    )


def _from_use_chat(body: _UseChat) -> TurnRequest:
    theirs = (m for m in reversed(body.messages) if isinstance(m, dict) and m.get("role") == "user")
    asked = next((_UserMessage.model_validate(m) for m in theirs), None)
    text = asked.text() if asked else ""
    if asked is None or is_blank(text):
        raise InvalidFields("messages: there is no message of the user with text in it.")
    if len(text) > MAX_MESSAGE:
        raise InvalidFields(f"messages: a message may have {MAX_MESSAGE} characters.")
    regenerate = body.trigger == "regenerate-message"
    # A message that is sent under its own id is an earlier one, edited, or the last one sent once more.
    resent = body.messageId == asked.id
    return TurnRequest(
        message=text,
        turn_id=f"{asked.id}~{body.messageId}" if regenerate and body.messageId and not resent else asked.id,
        client_id=body.id,
        site_id=body.site_id,
        remember=body.remember,
        end_session=body.end_session,
        regenerate=regenerate,
        replaces=asked.id if regenerate or resent else None,
    )
