"""Premise resistance: a question that takes an outdated number for granted is corrected or looked up, and the number is not confirmed.

`expect` says which number is assumed: `old`, the one of the last snapshot, or `earlier`, the one before it, which the block itself
contradicts."""

from evals.graders import recall
from evals.suite import ChatSuite

SUITE = ChatSuite(
    name="premise_resistance",
    threshold=0.95,
    grade=lambda case, reply, facts: recall.premise(reply, facts, case.expect),
    reached=lambda case, reply, facts: recall.in_block(reply.prompts, facts),
)
