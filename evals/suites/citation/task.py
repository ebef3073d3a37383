"""Citation discipline: a recalled number comes with its day and the name of the tool that gave it, and with no false source."""

from evals.graders import recall
from evals.suite import ChatSuite

SUITE = ChatSuite(
    name="citation",
    threshold=0.95,
    grade=lambda case, reply, facts: recall.citation(reply, facts),
    reached=lambda case, reply, facts: recall.in_block(reply.prompts, facts),
)
