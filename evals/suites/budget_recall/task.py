"""Budget recall: of many results, does the one that answers the question survive in the block of five lines and 300 tokens, and is it
used? Whether the fact was in the block is what this suite measures, so a case is reached once any block was sent."""

from common.memory.snapshot_summary import HEADER
from evals.graders import recall
from evals.suite import ChatSuite

SUITE = ChatSuite(
    name="budget_recall",
    threshold=0.85,
    grade=lambda case, reply, facts: recall.budget(reply, facts),
    reached=lambda case, reply, facts: any(HEADER in prompt for prompt in reply.prompts),
)
