"""A later question about what was shown is answered from the snapshots, with their date."""

from __future__ import annotations

from tests.functions.conftest import System
from tests.functions.site import load_small_site


def test_a_later_question_gets_the_block_and_says_as_of_when(system: System) -> None:
    load_small_site(system.database, system.owner)
    first = system.chat("Please list my plans and tell me what you think of them").json
    assert [call["tool_name"] for call in first["tool_calls"]] == ["query_site_data"], first
    system.deliver_all()
    second = system.chat("What plans did you show me?", conversation_id=first["conversation_id"]).json
    assert second["recalled"]["snapshots"], second
    assert "as of 20" in second["text"].lower()
    assert "query_site_data" in second["text"]
