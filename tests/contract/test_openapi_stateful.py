"""Chains of generated requests along the links of the OpenAPI document: what one answered is what the next asks for."""

from __future__ import annotations

import pytest

from tests.contract.generated_requests import fill, generate
from tests.e2e.conftest import Running, running  # noqa: F401 - fixture


@pytest.mark.slow
def test_chains_of_requests_are_answered_as_described(running: Running) -> None:  # noqa: F811
    fill(running, 20)
    options = ("--phases", "stateful", "--max-examples", "300", "--exclude-operation-id", "erase_me")
    assert "✅ Stateful" in generate(running, *options)
