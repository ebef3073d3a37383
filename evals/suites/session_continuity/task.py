"""Session continuity: a later session refers to the earlier wrap-up; who has no memory stored is told so, and nothing is invented."""

from evals.case import Case, Facts, Reply
from evals.graders import memory
from evals.suite import ChatSuite


def reached(case: Case, reply: Reply, facts: Facts) -> bool:
    """The wrap-up or the memory with all that is to be told was in the request; where there is none, a request left without any."""
    if case.expect == "nothing":
        marks = ('<data name="wrap_ups">', '<data name="memory">')
        return bool(reply.prompts) and not any(mark in prompt for prompt in reply.prompts for mark in marks)
    return any(
        all(any(form in prompt.casefold() for form in term.casefold().split("|")) for term in facts.told)
        for prompt in reply.prompts
    )


SUITE = ChatSuite(
    name="session_continuity",
    threshold=0.95,
    grade=lambda case, reply, facts: memory.continuity(reply, facts, case.expect),
    reached=reached,
)
