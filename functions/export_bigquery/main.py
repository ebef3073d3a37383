"""Scheduler, daily: loads the closed days into BigQuery."""

from __future__ import annotations

from functools import partial

from flask import Request, Response

from common.http import Call, Endpoints, json_response
from common.jobs import Step, run_job
from common.warehouse import bigquery
from common.warehouse.cutover import check_sinks
from common.warehouse.export import export_steps

endpoints = Endpoints()


@endpoints.route("POST", "/", gate="internal")
@endpoints.route("POST", "/internal/export_bigquery", gate="internal")
def export(call: Call) -> Response:
    """What was loaded of each table; 500 when one failed, 409 while another run is under way. Without a dataset there is no export."""
    if not call.config.bigquery_dataset:
        return json_response(
            {"job": "export_bigquery", "steps": [], "left": [], "note": "The export is off."}
        )
    warehouse = bigquery.warehouse(call.config)
    steps = export_steps(warehouse)
    if call.config.retrieval_sink == "both":
        steps.append(Step("compare_sinks", partial(check_sinks, warehouse=warehouse)))
    report = run_job("export_bigquery", steps, now=call.at(), config=call.config)
    return json_response(report.document(), 500 if report.failed else 200)


def main(request: Request) -> Response:
    """The entry point for functions-framework."""
    return endpoints.answer(request)
