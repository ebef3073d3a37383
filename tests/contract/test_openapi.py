"""The OpenAPI document holds: what is described is served, and generated requests are answered as it describes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from common.customer.openapi import document
from common.customer.operations import operations
from tests.contract.generated_requests import SECOND, fill, generate
from tests.e2e.conftest import Running, running  # noqa: F401 - fixture

# After the erasure the other operations would meet only 401: it has a run of its own.
ERASURE = "erase_me"


def test_every_operation_is_in_the_document_with_its_links_leading_somewhere() -> None:
    described = document(operations.table)
    found = {o["operationId"]: o for path in described["paths"].values() for o in path.values()}
    assert set(found) == {operation.name for operation in operations.table}
    links: list[Any] = [
        link for o in found.values() for r in o["responses"].values() for link in r.get("links", {}).values()
    ]
    assert {link["operationId"] for link in links} >= {"read_conversation", "edit_memory", "set_feedback"}
    assert {link["operationId"] for link in links} <= set(found)


def test_a_few_generated_requests_are_answered_as_described(running: Running) -> None:  # noqa: F811
    fill(running, 2)
    printed = generate(running, "--max-examples", "5", "--exclude-operation-id", ERASURE)
    assert re.search(r"Tested: 25\b", printed), printed


@pytest.mark.slow
def test_generated_requests_are_answered_as_described(running: Running) -> None:  # noqa: F811
    fill(running, 20)
    phases = ("--phases", "examples,coverage,fuzzing", "--max-examples", "300")
    printed = generate(running, *phases, "--exclude-operation-id", ERASURE)
    assert re.search(r"Tested: 25\b", printed), printed
    printed = generate(running, *phases, "--include-operation-id", ERASURE, email=SECOND)
    assert re.search(r"Tested: 1\b", printed), printed
