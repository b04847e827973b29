"""Declarative pipelines and streaming queries of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.spark.pipeline_runs import listed_bounds, project_of
from barnabas.console.console import console_of
from barnabas.console.navigation import Entry
from barnabas.spark.pipelines.checkpoints import flow_statuses, read_checkpoints, read_notes
from barnabas.spark.pipelines.definition import short_key
from barnabas.spark.pipelines.project import ProjectError
from barnabas.spark.pipelines.runs import is_running

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.settings import ConsoleSettings
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
        pipelines=found,
        queries=queries,
        waits_for_queries=bool(console.settings.queries),
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
        "flows": [_flow(each) for each in statuses],
    }


def _flow(status: FlowStatus) -> dict[str, Any]:
    checkpoint = status.checkpoint
    unmet = status.progress.get("expectations", {})
    return {
        "name": short_key(checkpoint.key),
        "batch": checkpoint.committed_batch if checkpoint.committed_batch >= 0 else None,
        "is_unfinished": status.has_unfinished_batch,
        "rows_read": status.progress.get("rows_read"),
        "rows_written": status.progress.get("rows_written"),
        "rows_per_second": status.progress.get("rows_per_second"),
        "seconds": status.progress.get("seconds"),
        "lag": status.lag_by_topic,
        "lost": sum(status.lost.values()),
        "watermark": checkpoint.watermark_ms or -1,
        "state_rows": status.state_rows,
        "unmet": ", ".join(
            f"{name}: {counts['failed']} of {counts['rows']}" for name, counts in unmet.items()
        ),
    }


def _has_pipelines(settings: ConsoleSettings) -> bool:
    return bool(settings.pipelines or settings.queries)


NAVIGATION = [
    Entry("Pipelines", "Pipelines", "/pipelines", is_shown=_has_pipelines),
]
ROUTES = [
    Route("/pipelines", show_pipelines),
]
