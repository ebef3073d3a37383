"""Recall or re-query, in pairs: of the same fact, one question asks what was shown, the other what holds now. The first is answered from
what is stored, the second by a fresh call."""

from evals.graders import recall
from evals.suite import ChatSuite

SUITE = ChatSuite(
    name="recall_or_requery",
    threshold=0.95,
    grade=lambda case, reply, facts: recall.routing(reply, facts, case.expect),
    reached=lambda case, reply, facts: recall.in_block(reply.prompts, facts),
)
