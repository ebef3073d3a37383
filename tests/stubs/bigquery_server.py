"""A server that speaks as much of BigQuery's REST interface as the export uses, and keeps what it is sent.

A load is carried out: rows are read by the schema that came with the job, checked as strictly as the real thing (types, required columns,
the partition's day) and replace their partition. `python -m tests.stubs.bigquery_server` serves one that throws rows away, for benchmarks.
"""

from __future__ import annotations

import csv
import http.server
import io
import json
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

LOCATION = "EU"
_INTERVAL = "bytes=0-{}"


@dataclass
class State:
    """Jobs by id, partitions by (table, day), the columns of each table, and how to misbehave."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    partitions: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    received: dict[str, bytes] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    fail: Callable[[str], str | None] = lambda _job: None
    keep: bool = True

    def loads(self) -> list[dict[str, Any]]:
        """The load jobs, in the order of their coming."""
        return [job for job in self.jobs.values() if "load" in job["configuration"]]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of `table`."""
        return [row for (name, _), rows in sorted(self.partitions.items()) if name == table for row in rows]


class BigQueryServer:
    """The server, in a thread; `state` is what it holds and `url` its address."""

    def __init__(self, port: int = 0) -> None:
        self.state = State()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.state = self.state  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> BigQueryServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        """Serve until the process ends."""
        self._server.serve_forever()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer: two would wait for each other's acknowledgement
    disable_nagle_algorithm = True

    @property
    def state(self) -> State:
        return self.server.state  # type: ignore[attr-defined,no-any-return]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/upload/"):
            assert "uploadType=resumable" in self.path
            upload = uuid.uuid4().hex
            self.state.uploads[upload] = json.loads(body)
            self._answer(200, {}, {"Location": f"http://{self.headers['Host']}/uploads/{upload}"})
        elif self.path.split("?")[0].endswith("/queries"):
            try:
                self._answer(200, self._query(json.loads(body)))
            except ConnectionAbortedError as exc:
                self._answer(403, _error("accessDenied", str(exc)))
        else:
            self._answer(404, _error("notFound", "no such method"))

    def do_PUT(self) -> None:
        upload = self.path.rsplit("/", 1)[-1].split("?")[0]
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.state.counted[upload] = self.state.counted.get(upload, 0) + data.count(b"\n")
        kept = self.state.received[upload] = self.state.received.get(upload, b"") + data * self.state.keep
        if self.headers["Content-Range"].endswith("/*"):
            self._answer(308, {}, {"Range": _INTERVAL.format(len(kept) - 1)})
            return
        job = self.state.uploads.pop(upload)
        job_id = job["jobReference"]["jobId"]
        if job_id in self.state.jobs:
            self._answer(409, _error("duplicate", f"Already Exists: Job {job_id}"))
            return
        self.state.jobs[job_id] = job
        _carry_out(self.state, job, self.state.received.pop(upload), self.state.counted.pop(upload))
        self._answer(200, job)

    def do_GET(self) -> None:
        path = self.path.split("?")[0].split("/")
        if "jobs" in path:
            job = self.state.jobs.get(path[-1])
            found = job is not None and f"location={LOCATION}" in self.path
            self._answer(*((200, job) if found and job else (404, _error("notFound", "no such job"))))
        elif "datasets" in path:
            reference = {"projectId": path[-3], "datasetId": path[-1]}
            self._answer(200, {"datasetReference": reference, "location": LOCATION})
        else:
            self._answer(404, _error("notFound", "no such resource"))

    def _query(self, request: dict[str, Any]) -> dict[str, Any]:
        """Rows by day of the table that the query names, each event once; or an erasure's deletion, and the count after it."""
        table = request["query"].split("`")[1].rsplit(".", 1)[-1]
        if " in unnest(@message_ids)" in request["query"] or " = @user_id" in request["query"]:
            return self._erasure(request, table)
        bounds = {p["name"]: p["parameterValue"]["value"] for p in request["queryParameters"]}
        by_day: dict[str, set[tuple[str, str]]] = {}
        for row in self.state.rows(table):
            day = str(row["created_at"])[:10]
            if bounds["first"] <= day <= bounds["last"]:
                by_day.setdefault(day, set()).add((row["message_id"], str(row["rank"])))
        fields = [{"name": "day", "type": "DATE"}, {"name": "n", "type": "INTEGER"}]
        rows = [{"f": [{"v": day}, {"v": str(len(found))}]} for day, found in by_day.items()]
        reference = {"projectId": "p", "jobId": uuid.uuid4().hex, "location": LOCATION}
        return {
            "jobComplete": True,
            "jobReference": reference,
            "schema": {"fields": fields},
            "rows": rows,
            "totalRows": str(len(rows)),
        }

    def _erasure(self, request: dict[str, Any], table: str) -> dict[str, Any]:
        if reason := self.state.fail(table):
            raise ConnectionAbortedError(reason)
        assert ">= '1970-01-01'" in request["query"], "the tables require a filter on their partition"
        (parameter,) = request["queryParameters"]
        value = parameter["parameterValue"]
        wanted = {v["value"] for v in value.get("arrayValues", [value])}
        column = {"user_id": "user_id", "message_ids": "message_id"}[parameter["name"]]
        found = 0
        for (name, day), rows in self.state.partitions.items():
            if name == table:
                kept = [row for row in rows if row[column] not in wanted]
                found += len(rows) - len(kept)
                if request["query"].startswith("delete"):
                    self.state.partitions[name, day] = kept
        answer = {
            "jobComplete": True,
            "jobReference": {"projectId": "p", "jobId": uuid.uuid4().hex, "location": LOCATION},
        }
        if request["query"].startswith("delete"):
            return {**answer, "numDmlAffectedRows": str(found)}
        fields = [{"name": "n", "type": "INTEGER"}]
        return {
            **answer,
            "schema": {"fields": fields},
            "rows": [{"f": [{"v": str(found)}]}],
            "totalRows": "1",
        }

    def _answer(self, status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def _error(reason: str, message: str) -> dict[str, Any]:
    code = {"duplicate": 409, "notFound": 404}.get(reason, 400)
    return {"error": {"code": code, "message": message, "errors": [{"reason": reason, "message": message}]}}


def _carry_out(state: State, job: dict[str, Any], data: bytes, lines: int) -> None:
    """Load `data` as the job says. The job is done afterwards, in success or with its error."""
    job["status"] = {"state": "DONE"}
    job["jobReference"]["location"] = LOCATION
    load = job["configuration"]["load"]
    table, _, day = load["destinationTable"]["tableId"].partition("$")
    reason = state.fail(job["jobReference"]["jobId"])
    try:
        if reason:
            raise ValueError(reason)
        rows = _read(load, day, data) if state.keep else []
        _extend_schema(state, load, table)
    except ValueError as exc:
        job["status"]["errorResult"] = {"reason": "invalid", "message": str(exc)}
        return
    assert load["writeDisposition"] == "WRITE_TRUNCATE"
    state.partitions[table, day] = rows
    count = len(rows) if state.keep else lines
    job["statistics"] = {"load": {"outputRows": str(count)}}


def _extend_schema(state: State, load: dict[str, Any], table: str) -> None:
    columns = {f["name"]: f["type"] for f in load["schema"]["fields"]}
    known = state.columns.setdefault(table, columns)
    added = columns.keys() - known.keys()
    if (
        any(known[name] != columns[name] for name in known.keys() & columns.keys())
        or known.keys() - columns.keys()
    ):
        raise ValueError(f"Provided Schema does not match Table {table}")
    if added and "ALLOW_FIELD_ADDITION" not in load.get("schemaUpdateOptions", []):
        raise ValueError(f"Provided Schema does not match Table {table}. Cannot add fields")
    known.update(columns)


def _read(load: dict[str, Any], day: str, data: bytes) -> list[dict[str, Any]]:
    fields = load["schema"]["fields"]
    partition = load["timePartitioning"]["field"]
    rows = []
    for line in csv.reader(io.StringIO(data.decode(), newline="")):
        if len(line) != len(fields):
            raise ValueError(f"{len(line)} columns, expected {len(fields)}")
        row = {f["name"]: _value(f, text, load["nullMarker"]) for f, text in zip(fields, line, strict=True)}
        if f"{row[partition]:%Y%m%d}" != day:
            raise ValueError("a row lies outside of the partition")
        rows.append(row)
    return rows


_READ: dict[str, Callable[[str], Any]] = {
    "STRING": str,
    "INTEGER": int,
    "FLOAT": float,
    "NUMERIC": float,
    "BOOLEAN": lambda text: {"t": True, "true": True, "f": False, "false": False}[text],
    "DATE": date.fromisoformat,
    "DATETIME": lambda text: _naive(text),
    "TIMESTAMP": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}


def _naive(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is not None:
        raise ValueError("a DATETIME has no zone")
    return at


def _value(column: dict[str, Any], text: str, null: str) -> Any:
    if text == null:
        if column["mode"] == "REQUIRED":
            raise ValueError(f"{column['name']} is required")
        return None
    try:
        return _READ[column["type"]](text)
    except (KeyError, ValueError) as exc:
        raise ValueError(f"{column['name']}: {text!r} is no {column['type']}") from exc


if __name__ == "__main__":
    thrower = BigQueryServer()
    thrower.state.keep = False
    sys.stdout.write(f"{thrower.url}\n")
    sys.stdout.flush()
    thrower.serve()
