"""Scheduled jobs: a list of steps, one run at a time, each step reported by name in the response, the log and `job_runs`.

A step that fails leaves the others done. A run that is killed anywhere may be run again: every step is safe to repeat.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Engine

from common import log
from common.config import Settings
from common.db import engine, transaction, unavailable_when_gone
from common.errors import AppError, Conflict
from common.text import to_json

# Cloud Run stops a job after 1500 s; what has not begun by then is left for the next run.
TIME_LIMIT_SECONDS = 1380.0

Outcome = Literal["done", "left", "failed"]


class StepFailed(AppError):
    """A part of the step failed; the rest of it is done."""

    type = "step-failed"


@dataclass(frozen=True)
class Run:
    """A run of a job: the moment it works for, and whether its time is over. A step asks `must_stop` between its batches."""

    job: str
    now: datetime
    config: Settings
    source: Engine
    must_stop: Callable[[], bool]


@dataclass(frozen=True)
class Step:
    """A part of a job. `work` commits what it does and returns what it counted; `left` among it says that there is more to do."""

    name: str
    work: Callable[[Run], dict[str, Any]]


@dataclass
class Report:
    """What became of a run."""

    job: str
    now: datetime
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any step failed."""
        return any(step["outcome"] == "failed" for step in self.steps)

    def document(self) -> dict[str, Any]:
        """The report as JSON: the steps in order, and the names of those with work left."""
        left = [step["step"] for step in self.steps if step["outcome"] == "left"]
        return {"job": self.job, "now": self.now.isoformat(), "steps": self.steps, "left": left}


def run_job(
    job: str,
    steps: Sequence[Step],
    *,
    now: datetime,
    config: Settings,
    source: Engine | None = None,
    seconds: float = TIME_LIMIT_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> Report:
    """Run `steps` in order and report each. Raises Conflict while another run of `job` is under way."""
    source = source or engine("sweep")
    began = monotonic()
    run = Run(job, now, config, source, must_stop=lambda: monotonic() - began >= seconds)
    report = Report(job, now)
    with _alone(job, source):
        for step in steps:
            started = monotonic()
            outcome, details = _carry_out(step, run)
            took = round(monotonic() - started, 3)
            report.steps.append({"step": step.name, "outcome": outcome, "seconds": took, **details})
            severity = {"done": "INFO", "left": "WARNING", "failed": "ERROR"}[outcome]
            log.write(
                f"{job}: {step.name} {outcome}", severity=severity, step=step.name, seconds=took, **details
            )
            _record(run, step.name, outcome, {"seconds": took, **details}, started - began)
    return report


def _carry_out(step: Step, run: Run) -> tuple[Outcome, dict[str, Any]]:
    if run.must_stop():
        return "left", {"left": True}
    try:
        details = step.work(run)
    except Exception as exc:  # the edge of a step: the others are still to be done
        log.write_exception(f"{run.job}: {step.name} failed", exc)
        counted = exc.extra if isinstance(exc, AppError) else {}
        return "failed", {"error": type(exc).__name__, **counted}
    return ("left" if details.get("left") else "done"), details


def _record(run: Run, step: str, outcome: Outcome, details: dict[str, Any], after: float) -> None:
    started_at = run.now + timedelta(seconds=after)
    with transaction("sweep", source=run.source) as connection:
        connection.execute(
            sa.text("""
                insert into job_runs (job, step, outcome, details, started_at, finished_at)
                values (:job, :step, :outcome, cast(:details as jsonb), :started_at, :finished_at)
            """),
            {
                "job": run.job,
                "step": step,
                "outcome": outcome,
                "details": to_json(details),
                "started_at": started_at,
                "finished_at": started_at + timedelta(seconds=details["seconds"]),
            },
        )


@contextlib.contextmanager
def _alone(job: str, source: Engine) -> Iterator[None]:
    """Hold the lock of `job`, which goes with its connection: a killed run leaves none behind. Raises Conflict."""
    # Outside a transaction, so that neither the server's limit for idle ones nor a snapshot held all night gets in the way.
    with source.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with unavailable_when_gone(connection):
            locked = connection.scalar(
                sa.text("select pg_try_advisory_lock(hashtext(:job))"), {"job": f"job:{job}"}
            )
        if not locked:
            raise Conflict(f"Another run of {job} is under way.")
        try:
            yield
        finally:
            try:
                connection.execute(
                    sa.text("select pg_advisory_unlock(hashtext(:job))"), {"job": f"job:{job}"}
                )
            except BaseException:
                connection.invalidate()  # back in the pool it would keep the lock
                raise
