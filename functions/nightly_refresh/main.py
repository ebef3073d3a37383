"""Scheduler, daily: counts how the knowledge base fared, refreshes HEARTBEATs, purges what is past its time, assesses the triggers."""

from __future__ import annotations

from flask import Request, Response

from common.http import Call, Endpoints, json_response
from common.jobs import Step, run_job
from common.knowledge.performance import roll_up_log
from common.memory.heartbeat import refresh_heartbeats
from common.retention import (
    expire_reservations,
    purge_retrieval_events,
    purge_snapshots,
    purge_turns_and_job_runs,
    purge_wrap_ups,
)
from common.warehouse.triggers import assess_triggers

# In this order: what is counted may be purged, and the triggers look at what this night made.
STEPS = (
    Step("roll_up", roll_up_log),
    Step("refresh_heartbeats", refresh_heartbeats),
    Step("purge_retrieval_events", purge_retrieval_events),
    Step("purge_snapshots", purge_snapshots),
    Step("purge_wrap_ups", purge_wrap_ups),
    Step("purge_turns_and_job_runs", purge_turns_and_job_runs),
    Step("expire_reservations", expire_reservations),
    Step("assess_triggers", assess_triggers),
)

endpoints = Endpoints()


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/nightly_refresh", gate="internal")
def refresh(call: Call) -> Response:
    """What each step did; 500 when one failed, so that Scheduler tries again; 409 while another run is under way."""
    report = run_job("nightly_refresh", STEPS, now=call.at(), config=call.config)
    return json_response(report.document(), 500 if report.failed else 200)


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)
