"""Groups of every kind, and pipelines of Spark: lag, rates and state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.admin.group_lag import group_progress
from barnabas.cli.spark.pipeline_runs import listed_bounds, project_of
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
from barnabas.console.rendering import paged
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


_MEMBERS_MAX = 100


async def show_groups(request: Request) -> Response:
    """Show all groups."""
    console, query = console_of(request), query_fields(request)
    found = await console.cluster.call(lambda client: client.admin.list_groups())
    word = query.stripped("filter").lower()
    listed = [group for group in found if word in group.group_id.lower()]
    rates = console.history.rates
    return console.page(
        request,
        "groups.html",
        page=paged(listed, query.number("page", 1)),
        filter=query.stripped("filter"),
        samples=console.history.latest.groups if console.history.latest else {},
        growth=rates.lag_growth if rates else {},
    )


async def show_group(request: Request) -> Response:
    """Show a group."""
    console, query = console_of(request), query_fields(request)
    name = query.required("id")
    found = await console.cluster.call(lambda client: _load_group(client, name))
    return console.page(
        request,
        "group.html",
        404 if found["is_missing"] else 200,
        name=name,
        lags=list(console.history.group(name)),
        **{**found, "partitions": paged(found["partitions"], query.number("page", 1))},
    )


def _load_group(client: Client, name: str) -> dict[str, Any]:
    progress = group_progress(client, [name])[name]
    if isinstance(progress, ClientError):
        raise progress
    group = progress.description
    partitions = [
        {
            "partition": each.partition,
            "offset": each.offset,
            "end": each.end,
            "lag": each.lag,
            "member": each.member.member_id if each.member else "",
            "metadata": each.metadata,
        }
        for each in progress.partitions
    ]
    return {
        "group": group,
        "coordinator": progress.coordinator,
        "streams": progress.streams,
        "members": group.members[:_MEMBERS_MAX],
        "partitions": partitions,
        "lag": progress.lag,
        "is_missing": group.state == "Dead" and not partitions,
    }


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
    Entry("Groups", "Groups", "/groups", ("/group",)),
    Entry("Pipelines", "Pipelines", "/pipelines", is_shown=_has_pipelines),
]
ROUTES = [
    Route("/groups", show_groups),
    Route("/group", show_group),
    Route("/pipelines", show_pipelines),
]
