"""Declarative pipelines and streaming queries of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.spark.pipeline_runs import listed_bounds, project_of
from barnabas.console.console import console_of
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate
from barnabas.spark.pipelines.checkpoints import flow_statuses, read_checkpoints, read_notes
from barnabas.spark.pipelines.definition import short_key
from barnabas.spark.pipelines.project import ProjectError
from barnabas.spark.pipelines.runs import is_running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.load.metrics import QuerySample
    from barnabas.client.facade import Client
    from barnabas.console.settings import ConsoleSettings
    from barnabas.console.tables import Table
    from barnabas.spark.pipelines.checkpoints import FlowStatus


async def show_pipelines(request: Request) -> Response:
    """Show the pipelines and queries."""
    console = console_of(request)
    directories = console.settings.pipelines
    found = await console.cluster.call(
        lambda client: [_load_pipeline(client, each) for each in directories]
    )
    latest = console.history.latest
    queries = {} if latest is None else latest.queries
    return console.page(
        request,
        "pipelines.html",
        pipelines=[
            {**each, "table": _flow_table(request, each["flows"], f"flows{index}.")}
            for index, each in enumerate(found)
        ],
        queries={
            address: None if each is None else _query_table(request, each, f"queries{index}.")
            for index, (address, each) in enumerate(queries.items())
        },
        waits_for_queries=bool(console.settings.queries),
    )


def _flow_table(request: Request, found: Sequence[FlowStatus], prefix: str) -> Table[FlowStatus]:
    return tabulate(
        request, _FLOWS, found, text=lambda flow: short_key(flow.checkpoint.key), prefix=prefix
    )


def _query_table(
    request: Request, found: Mapping[str, QuerySample], prefix: str
) -> Table[NamedQuery]:
    rows = [NamedQuery(name, each) for name, each in found.items()]
    return tabulate(
        request, _QUERIES, rows, text=lambda row: f"{row.name} {row.state}", prefix=prefix
    )


def _load_pipeline(client: Client, directory: str) -> dict[str, Any]:
    """Return a pipeline from its files, with the lag behind the topics of this cluster."""
    try:
        project = project_of(directory)
    except ProjectError as error:
        return {"name": directory, "state": "", "problem": str(error), "flows": []}
    checkpoints, notes = read_checkpoints(project), read_notes(project.notes)
    statuses = flow_statuses(checkpoints, notes, listed_bounds(client, checkpoints))
    return {
        "name": project.name,
        "problem": "",
        "state": "running" if is_running(project.notes) else notes.last_run.get("result", "new"),
        "flows": statuses,
    }


def _progress(name: str) -> Callable[[FlowStatus], Any]:
    """Return a function that returns a value of the last reported batch; None without one."""
    return lambda flow: flow.progress.get(name)


def _batch(flow: FlowStatus) -> int | None:
    """Return the last batch that was committed; None before the first one."""
    batch = flow.checkpoint.committed_batch
    return batch if batch >= 0 else None


def _unmet(flow: FlowStatus) -> str:
    """Return the expectations that rows did not meet, with the numbers of rows."""
    found = flow.progress.get("expectations", {})
    return ", ".join(f"{name}: {each['failed']} of {each['rows']}" for name, each in found.items())


def total_lag(lag: Mapping[str, int | None]) -> int | None:
    """Return the sum of the known lags behind topics; None if none is known."""
    known = [behind for behind in lag.values() if behind is not None]
    return sum(known) if known else None


_FLOWS: tuple[Column[FlowStatus], ...] = (
    Column("flow", "Flow", lambda flow: short_key(flow.checkpoint.key)),
    Column("batch", "Batch", _batch, numeric=True),
    Column("read", "Rows read in it", _progress("rows_read"), "number"),
    Column("written", "Rows written", _progress("rows_written"), "number"),
    Column("rate", "Rows/s", _progress("rows_per_second"), "rate"),
    Column("seconds", "Duration", _progress("seconds"), numeric=True),
    Column("lag", "Lag", lambda flow: total_lag(flow.lag_by_topic), numeric=True),
    Column("watermark", "Watermark", lambda flow: flow.checkpoint.watermark_ms or -1, "moment"),
    Column("state", "Rows of state", lambda flow: flow.state_rows, "number"),
    Column("unmet", "Expectations not met", _unmet, "text"),
)


class NamedQuery(NamedTuple):
    """A streaming query of a driver."""

    name: str
    sample: QuerySample

    @property
    def state(self) -> str:
        """Whether the query runs, in a word."""
        return "running" if self.sample.is_running else "ended"


_QUERIES: tuple[Column[NamedQuery], ...] = (
    Column("query", "Query", lambda row: row.name, "name"),
    Column("state", "State", lambda row: row.state, "text"),
    Column("rate", "Rows/s", lambda row: row.sample.rows_per_second, "rate"),
    Column("seconds", "Duration", lambda row: row.sample.batch_seconds, numeric=True),
    Column("lag", "Lag", lambda row: total_lag(row.sample.lag), numeric=True),
    Column("rows", "Rows of state", lambda row: row.sample.state_rows, "number"),
    Column("failures", "Failures", lambda row: row.sample.failures, numeric=True),
)


def _has_pipelines(settings: ConsoleSettings) -> bool:
    return bool(settings.pipelines or settings.queries)


NAVIGATION = [
    Entry("Pipelines", "Pipelines", "/pipelines", is_shown=_has_pipelines),
]
ROUTES = [
    Route("/pipelines", show_pipelines),
]
