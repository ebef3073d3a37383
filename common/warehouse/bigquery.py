"""BigQuery as we use it: load a day into its partition, count a table's rows by day. The only module that imports its client."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from datetime import date
from typing import IO, TYPE_CHECKING, Any, Protocol, Self, cast

from common import log
from common.config import Settings
from common.errors import AppError, ConfigError, Unavailable
from common.warehouse.schemas import STREAM_TABLE, TABLES, Table

if TYPE_CHECKING:
    from google.cloud import bigquery

MAX_ATTEMPTS = 3
LOAD_SECONDS = 600.0
DELETE_BATCH = 10_000


class LoadFailed(AppError):
    """BigQuery refused to load a day. The job's error is in the log."""

    type = "load-failed"


class Rows(Protocol):
    """The rows of a day as a CSV file to read once; `rows` is their number after that."""

    rows: int

    def read(self, size: int = -1, /) -> bytes: ...
    def tell(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Warehouse:
    """A dataset. `client` is made by the caller, who knows where it is."""

    def __init__(self, client: bigquery.Client, dataset: str) -> None:
        self._client = client
        self._dataset = dataset

    @functools.cached_property
    def _location(self) -> str:
        # Without it a job is only found again in the US and the EU.
        return str(self._client.get_dataset(self._dataset).location)

    def load_day(
        self, table: Table, day: date, run_day: date, open_rows: Callable[[], Rows]
    ) -> tuple[int, str]:
        """Replace the partition of `day` with the CSV of `open_rows` by one load job. Returns its number of rows and its id.

        The id follows from the day, the run's day and the attempt, so that a repeat finds the job of a run that crashed instead of
        making another. A job that failed has used up its id: the next attempt takes the next one. Raises LoadFailed after the last.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            job_id = f"{self._dataset.replace('.', '-')}-{table.name}-{day:%Y%m%d}-{run_day:%Y%m%d}-{attempt}"
            job, sent = self._start(table, day, job_id, open_rows)
            if self._finished(job):
                loaded = int(job.output_rows or 0)
                if sent not in (None, loaded):
                    raise LoadFailed(table=table.name, day=day.isoformat(), sent=sent, loaded=loaded)
                return loaded, job_id
            log.write(
                "load job failed", severity="ERROR", job=job_id, reason=job.error_result.get("reason", "")
            )
        raise LoadFailed(table=table.name, day=day.isoformat())

    def _start(
        self, table: Table, day: date, job_id: str, open_rows: Callable[[], Rows]
    ) -> tuple[bigquery.LoadJob, int | None]:
        """A new job and how many rows it was sent, or the job that has this id already."""
        from google.api_core.exceptions import Conflict

        try:
            with open_rows() as rows:
                job = self._client.load_table_from_file(
                    cast(IO[bytes], rows),
                    f"{self._dataset}.{table.name}${day:%Y%m%d}",
                    job_id=job_id,
                    location=self._location,
                    job_config=load_config(table),
                )
                return job, rows.rows
        except Conflict:
            return cast("bigquery.LoadJob", self._client.get_job(job_id, location=self._location)), None

    def _finished(self, job: bigquery.LoadJob) -> bool:
        """Wait for `job`; whether it succeeded. What is no failure of the job is raised."""
        from google.api_core.exceptions import GoogleAPICallError

        try:
            job.result(timeout=LOAD_SECONDS)
        except GoogleAPICallError:
            if not job.error_result:
                raise
            return False
        return True

    def rows_by_day(self, table: str, key: str, first: date, last: date) -> dict[date, int]:
        """How many different `key`s `table` has for each day by `created_at`; the subscription that fills it may write a row twice."""
        from google.cloud import bigquery

        sql = f"""
            select date(created_at) as day, count(distinct {key}) as n from `{self._dataset}.{table}`
            where created_at >= datetime(@first) and created_at < datetime_add(datetime(@last), interval 1 day)
            group by day
        """
        config = bigquery.QueryJobConfig(
            query_parameters=[
                bigquery.ScalarQueryParameter("first", "DATE", first),
                bigquery.ScalarQueryParameter("last", "DATE", last),
            ]
        )
        rows = self._client.query_and_wait(sql, job_config=config, location=self._location)
        return {row["day"]: int(row["n"]) for row in rows}

    def delete_user(self, user_id: uuid.UUID, message_ids: Sequence[uuid.UUID]) -> dict[str, tuple[int, int]]:
        """Delete the user's rows from every table that names users, and those of their messages from the streamed one. Returns, by table,
        how many rows were deleted and how many are left. Raises Unavailable."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.cloud import bigquery

        user = bigquery.ScalarQueryParameter("user_id", "STRING", str(user_id))
        work: list[tuple[str, str, Any]] = [
            (t.name, f"{t.partition} >= '1970-01-01' and user_id = @user_id", user)
            for t in TABLES
            if any(c.name == "user_id" for c in t.columns)
        ]
        for at in range(0, len(message_ids), DELETE_BATCH):
            ids = [str(message_id) for message_id in message_ids[at : at + DELETE_BATCH]]
            parameter = bigquery.ArrayQueryParameter("message_ids", "STRING", ids)
            condition = "created_at >= '1970-01-01' and message_id in unnest(@message_ids)"
            work.append((STREAM_TABLE, condition, parameter))
        told: dict[str, tuple[int, int]] = {}
        try:
            for table, condition, parameter in work:
                deleted = self._query(f"delete from `{self._dataset}.{table}` where {condition}", parameter)
                found = self._query(
                    f"select count(*) as n from `{self._dataset}.{table}` where {condition}", parameter
                )
                before = told.get(table, (0, 0))
                told[table] = (
                    before[0] + (deleted.num_dml_affected_rows or 0),
                    before[1] + next(iter(found))["n"],
                )
        except GoogleAPICallError as exc:
            raise Unavailable("The copy in BigQuery cannot be changed right now.") from exc
        return told

    def _query(self, sql: str, parameter: Any) -> Any:
        from google.cloud import bigquery

        config = bigquery.QueryJobConfig(query_parameters=[parameter])
        return self._client.query_and_wait(sql, job_config=config, location=self._location)


def load_config(table: Table) -> bigquery.LoadJobConfig:
    """How a day of `table` is loaded: the schema is ours, never guessed; a column that is new here is added there."""
    from google.cloud import bigquery

    return bigquery.LoadJobConfig(
        source_format=bigquery.SourceFormat.CSV,
        null_marker=NULL,
        schema=[bigquery.SchemaField(c.name, c.type, mode=c.mode) for c in table.columns],
        write_disposition=bigquery.WriteDisposition.WRITE_TRUNCATE,
        schema_update_options=[bigquery.SchemaUpdateOption.ALLOW_FIELD_ADDITION],
        time_partitioning=bigquery.TimePartitioning(field=table.partition),
        clustering_fields=list(table.clustering),
    )


# No text of ours looks like it, and an empty text stays one.
NULL = r"\N"


@functools.cache
def _warehouse(dataset: str) -> Warehouse:
    from google.cloud import bigquery

    project, _, name = dataset.partition(".")
    if not (project and name):
        raise ConfigError("MEMBERINTEL_BIGQUERY_DATASET reads `project.dataset`.")
    return Warehouse(bigquery.Client(project=project), dataset)


def warehouse(config: Settings) -> Warehouse:
    """This process's warehouse, made on first use. Raises ConfigError where the settings name none."""
    return _warehouse(config.bigquery_dataset)
