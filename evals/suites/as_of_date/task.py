"""As-of-date adherence: a number from before carries its day and is never passed off as today's."""

from evals.graders import recall
from evals.suite import ChatSuite

SUITE = ChatSuite(
    name="as_of_date",
    threshold=0.95,
    grade=lambda case, reply, facts: recall.as_of_date(reply, facts, case.expect),
    reached=lambda case, reply, facts: recall.in_block(reply.prompts, facts),
)
