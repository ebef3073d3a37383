"""The OpenAPI document holds: what is described is served, and generated requests are answered as it describes."""

from __future__ import annotations

import functools
import uuid
from typing import Any

import functions_framework
import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from common.customer.openapi import document
from common.customer.operations import operations
from local.app import FUNCTIONS
from tests.functions.conftest import System, issuer, system  # noqa: F401 - fixtures


@functools.cache
def brain() -> Flask:
    """The function, as it is deployed."""
    return functions_framework.create_app("main", str(FUNCTIONS / "brain" / "main.py"))


def served(environ: Any, start_response: Any) -> Any:
    """The same as a WSGI application, made when the first request comes: the test has set the environment by then."""
    return brain()(environ, start_response)


# A cursor, a version or a text of nothing but spaces is of the right type and still refused; query parameters that nobody knows
# are ignored. tests/functions/test_brain_api.py says which bodies are refused.
EXCLUDED = [positive_data_acceptance, negative_data_rejection]

described = schemathesis.openapi.from_dict(document(operations.table))
described.app = served


@pytest.fixture
def existing(system: System) -> dict[str, Any]:  # noqa: F811
    """The id of a real thing for each path with an id in it, so that not every request ends at 404."""
    answer = system.chat("How many active members do I have?").json
    system.deliver_all()
    headers = system.token(system.owner)
    memory = (
        system.client("brain").post("/v1/brain/memories", json={"content": "Likes tea"}, headers=headers).json
    )
    system.database.run(
        """insert into session_logs (id, tenant_id, user_id, session_id, summary, decisions, open_items, new_context,
                                     next_session_note, trigger, model, input_tokens, output_tokens, created_at)
           values (:id, :tenant, :user_id, :session, 's', '[{"text": "t", "message_ids": []}]', '[]', '[]', '', 'quiet', 'm', 1,
                   1, now())""",
        id=(wrap_up := uuid.uuid4()),
        tenant=system.owner.tenant_id,
        user_id=system.owner.user_id,
        session=uuid.UUID(answer["session_id"]),
    )
    return {
        "conversations": answer["conversation_id"],
        "messages": answer["message_id"],
        "snapshots": str(system.database.scalar("select id from message_tool_results limit 1")),
        "session-logs": str(wrap_up),
        "memories": memory["id"],
    }


@pytest.mark.slow
@described.parametrize()
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_generated_requests_are_answered_as_described(
    case: schemathesis.Case,
    system: System,  # noqa: F811
    existing: dict[str, Any],
) -> None:
    headers = system.token(system.owner)
    case.call_and_validate(headers=headers, excluded_checks=EXCLUDED)
    for kind, thing in existing.items():
        if f"/{kind}/{{id}}" in case.path:
            case.path_parameters["id"] = thing
            case.call_and_validate(headers=headers, excluded_checks=EXCLUDED)
