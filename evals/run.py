"""Running suites: each case is asked over HTTP in a world of its own, at a time that stands still, and its answer graded.

The worlds of all cases are made once, in one database; each repeat runs on a fresh copy of it. A result is written down as soon as it is
there, so that a run that broke off goes on where it was. A provider that is overloaded slows a run and fails no case.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from common import log
from common.llm.types import ModelRequest, ProviderError, ProviderOverloaded
from evals import fixture
from evals.case import Called, Reply, Result
from evals.fixture import Ready
from evals.suite import ChatSuite, Job, PlainSuite, Suite
from evals.system import EMPTY, TRACE, HttpError, Seen, System, new_trace

WORLDS = "evals_worlds"
PATIENCE_SECONDS = (5, 15, 45, 120, 300)  # for a provider that has no room now
UNREACHED = "never reached: what it is about was in no request"
Done = Callable[[Result], None]
Asking = Callable[[str, Ready], None]
Worlds = dict[str, list[Ready]]


def build(system: System, suites: Iterable[Suite], *, progress: Callable[[], None] = lambda: None) -> Worlds:
    """Make the worlds of all cases of the suites; returns the cases, ready to be asked, by suite."""
    system.copy(EMPTY, WORLDS)
    ready: Worlds = {}
    with system.database(WORLDS):
        fixture.fill_knowledge_base()
        for suite in suites:
            if isinstance(suite, ChatSuite):
                ready[suite.name] = []
                for case in suite.cases():
                    ready[suite.name].append(fixture.prepare(system, case))
                    progress()
    return ready


def run(
    system: System,
    suites: Iterable[Suite],
    ready: Worlds,
    *,
    repeat: int,
    done: Done,
    skip: frozenset[tuple[str, str]] = frozenset(),
    workers: int = 1,
    asking: Asking = lambda trace, ready: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run each case once, on a fresh copy of the worlds. `asking` hears of each request before it is sent; `skip` names (suite, case)
    whose result of this repeat is known."""
    name = f"{WORLDS}_run"
    system.copy(WORLDS, name)
    with system.database(name):
        jobs = [
            job
            for suite in suites
            for job in _jobs(system, suite, ready, asking, sleep)
            if (suite.name, job.case) not in skip
        ]
        _work(jobs, lambda result: done(replace(result, repeat=repeat)), workers)


def _work(jobs: list[Job], done: Done, workers: int) -> None:
    """Run the jobs, so many at a time. Each result is handed over as soon as it is there; after an exception no further job begins."""
    writing = threading.Lock()

    def work(job: Job) -> None:
        result = job.run()
        with writing:
            done(result)

    if workers == 1:
        for job in jobs:
            work(job)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        for future in [pool.submit(work, job) for job in jobs]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _jobs(
    system: System, suite: Suite, ready: Worlds, asking: Asking, sleep: Callable[[float], None]
) -> Iterator[Job]:
    if isinstance(suite, PlainSuite):
        for job in suite.jobs():
            yield Job(job.case, partial(_counted, system, suite, job, sleep))
    elif isinstance(suite, ChatSuite):
        for one in ready[suite.name]:
            yield Job(one.case.id, partial(ask, system, suite, one, asking=asking, sleep=sleep))


def _counted(system: System, suite: Suite, job: Job, sleep: Callable[[float], None]) -> Result:
    """A job's result with what its calls to a model cost."""
    trace, began = new_trace(), time.monotonic()
    log.set_trace({TRACE: trace})
    for patience in (*PATIENCE_SECONDS, None):
        try:
            result = job.run()
            break
        except ProviderError as exc:
            if patience is None or not isinstance(exc, ProviderOverloaded):
                return Result(suite.name, job.case, 1, False, False, ("no answer",), "", error=str(exc))
            sleep(patience)
    return _costed(result, system.seen.pop(trace, Seen()), began)


def _costed(result: Result, seen: Seen, began: float) -> Result:
    used = seen.usage
    return replace(
        result,
        models=tuple(dict.fromkeys(seen.models)),
        cost_usd=float(seen.cost_usd),
        input_tokens=used.input_tokens + used.cache_read_tokens + used.cache_write_tokens,
        output_tokens=used.output_tokens,
        seconds=round(time.monotonic() - began, 3),
    )


def ask(
    system: System,
    suite: ChatSuite,
    ready: Ready,
    *,
    asking: Asking = lambda trace, ready: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """The result of one case, asked now."""
    before = remembered(system, ready) if suite.watches else ()
    trace, turn, began = (
        "",
        new_trace(),
        time.monotonic(),
    )  # the same turn when it is asked again, as a client does
    with _planted(ready.case.data.get("article", "")):
        for patience in (*PATIENCE_SECONDS, None):
            trace = new_trace()
            asking(trace, ready)
            body = {"turn_id": turn} | (
                {"conversation_id": ready.conversation_id} if ready.conversation_id else {}
            )
            try:
                answer = system.chat(ready.email, ready.ask, trace, **body)
                break
            except HttpError as exc:
                if exc.status != 503 or patience is None:
                    return _failed(ready, str(exc))
                sleep(patience)
    seen = system.seen.pop(trace)
    if answer["status"] != "complete":
        return _failed(ready, f"the answer broke off: {answer['status']}")
    after = remembered(system, ready) if suite.watches else ()
    reply = Reply(
        text=answer["text"],
        calls=tuple(_called(call) for call in answer["tool_calls"]),
        route=answer["route"]["name"],
        recalled=tuple(answer["recalled"]["snapshots"]),
        prompts=tuple(map(text_of, seen.requests)),
        sql=tuple(seen.sql),
        changed=tuple(text for text in after if text not in before),
    )
    return _costed(_graded(suite, ready, reply), seen, began)


_planting = threading.Lock()


@contextlib.contextmanager
def _planted(article: str) -> Iterator[None]:
    """The knowledge base with this article, if there is one, which nobody else has in it at that time."""
    if not article:
        yield
        return
    with _planting:
        fixture.fill_knowledge_base(article)
        yield
        fixture.fill_knowledge_base()


def _graded(suite: ChatSuite, ready: Ready, reply: Reply) -> Result:
    verdict = suite.grade(ready.case, reply, ready.facts)
    reached = suite.reached(ready.case, reply, ready.facts)
    faults = verdict.faults if reached else (UNREACHED, *verdict.faults)
    return Result(suite.name, ready.case.id, 1, verdict.passed and reached, reached, faults, reply.text)


def _failed(ready: Ready, error: str) -> Result:
    return Result(ready.case.suite, ready.case.id, 1, False, False, ("no answer",), "", error=error)


def _called(call: dict[str, Any]) -> Called:
    return Called(call["tool_name"], call["input"], call["output"], call["is_error"])


def text_of(request: ModelRequest) -> str:
    """All that a request tells its model, as text."""
    parts = [section.text for section in request.system]
    for message in request.messages:
        parts += [message.text, *(result.content for result in message.results)]
    return "\n\n".join(part for part in parts if part)


def remembered(system: System, ready: Ready) -> tuple[str, ...]:
    """What the customer would see of what is remembered of them: memories and documents."""
    token = system.issuer.customer_token(ready.email)
    memories = system.request("GET", "/v1/brain/memories?limit=100", token)["items"]
    documents = system.request("GET", "/v1/brain/documents", token)["items"]
    return tuple(item["content"] for item in [*memories, *documents])


def write_down(path: Path) -> Done:
    """Append each result to the file `path`."""

    def done(result: Result) -> None:
        # A line of its own also after one that was cut off, and in ASCII: an answer may hold what else ends a line.
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
            start = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(start + json.dumps(asdict(result)).encode() + b"\n")

    return done


def read_back(path: Path) -> Iterator[Result]:
    """The results in the file `path`; of a line that was cut off nothing is taken."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            result = Result(**{**row, "faults": tuple(row["faults"]), "models": tuple(row["models"])})
        except (KeyError, TypeError, ValueError):
            continue
        yield result
