"""Operations on conversations, snapshots and sites, on usage and on everything at once."""

from __future__ import annotations

from common import erasure
from common.customer import conversations as talks
from common.customer import snapshots as stored
from common.customer.api import Answer, Asked, Body, Operations
from common.customer.export import Export, export
from common.customer.pages import Page, PageQuery
from common.customer.usage import Usage, read_usage

operations = Operations()


@operations.add("GET", "/v1/sites", answer=Page[stored.Site], query=PageQuery)
def list_sites(asked: Asked) -> Answer:
    """The customer's sites."""
    return Answer(stored.list_sites(asked.connection, asked.query, user_id=asked.user_id))


@operations.add("GET", "/v1/conversations", answer=Page[talks.Conversation], query=PageQuery)
def list_conversations(asked: Asked) -> Answer:
    """The customer's conversations, the latest begun first."""
    return Answer(talks.list_conversations(asked.connection, asked.query, user_id=asked.user_id))


@operations.add(
    "GET",
    "/v1/conversations/<id>",
    answer=talks.ConversationDetail,
    query=talks.MessagesQuery,
    links={"set_feedback": "/messages/1/id"},
)
def read_conversation(asked: Asked) -> Answer:
    """A conversation with its messages, their sources, routes and what was recalled for them."""
    return Answer(talks.read_conversation(asked.connection, asked.id, asked.query, user_id=asked.user_id))


@operations.add("DELETE", "/v1/conversations/<id>", answer=talks.DeletedConversation)
def delete_conversation(asked: Asked) -> Answer:
    """Delete a conversation with its sessions, snapshots, wrap-ups and waiting events; the answer counts what went."""
    return Answer(talks.delete_conversation(asked.connection, asked.id, user_id=asked.user_id))


@operations.add("POST", "/v1/conversations/<id>/end", answer=talks.EndedConversation)
def end_conversation(asked: Asked) -> Answer:
    """End the conversation's session now, so that its wrap-up is made. Safe to repeat."""
    ended, events = talks.end_conversation(asked.connection, asked.id, user_id=asked.user_id, now=asked.now)
    return Answer(ended, events=events)


@operations.add("GET", "/v1/snapshots", answer=Page[stored.Snapshot], query=stored.SnapshotsQuery)
def list_snapshots(asked: Asked) -> Answer:
    """The stored tool results, newest first, without their rows."""
    return Answer(stored.list_snapshots(asked.connection, asked.query, user_id=asked.user_id))


@operations.add("GET", "/v1/snapshots/<id>", answer=stored.SnapshotDetail)
def read_snapshot(asked: Asked) -> Answer:
    """A stored tool result, whole."""
    return Answer(stored.read_snapshot(asked.connection, asked.id, user_id=asked.user_id))


@operations.add("DELETE", "/v1/snapshots/<id>", answer=None)
def delete_snapshot(asked: Asked) -> Answer:
    """Delete a stored tool result; it is recalled no more from the next turn on."""
    stored.delete_snapshot(asked.connection, asked.id, user_id=asked.user_id)
    return Answer()


class FeedbackBody(Body):
    """A thumb up, a thumb down, or null to take it back."""

    helpful: bool | None


@operations.add("PUT", "/v1/messages/<id>/feedback", answer=talks.Feedback, body=FeedbackBody)
def set_feedback(asked: Asked) -> Answer:
    """Say whether an answer helped."""
    return Answer(
        talks.set_feedback(
            asked.connection, asked.id, asked.body.helpful, user_id=asked.user_id, now=asked.now
        )
    )


@operations.add("GET", "/v1/usage", answer=Usage)
def show_usage(asked: Asked) -> Answer:
    """What the tenant has used of its tier's limits, and when they start anew."""
    return Answer(read_usage(asked.connection, asked.account, now=asked.now))


@operations.add("GET", "/v1/me/export", answer=Export)
def export_everything(asked: Asked) -> Answer:
    """Everything stored about the customer, as one JSON document."""
    name = f"memberintel-{asked.now:%Y-%m-%d}.json"
    return Answer(pieces=export(asked.account, now=asked.now), file_name=name)


@operations.add("DELETE", "/v1/me", answer=erasure.Receipt)
def erase_me(asked: Asked) -> Answer:
    """Erase the customer: everything stored about them, at once and for good. The receipt lists every table with what was deleted and what
    a scan found left afterwards. Tokens from before are refused from now on."""
    return Answer(erasure.erase(asked.connection, asked.user_id, asked.config, asked.now))
