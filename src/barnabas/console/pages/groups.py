"""The groups of every kind, and the page of one group: members, offsets and lag over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.admin.group_lag import group_progress
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.web.forms import query_fields
from barnabas.console.web.paging import paged

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client

__all__ = ["ROUTES"]

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
    found = await console.cluster.call(lambda client: _load(client, name))
    return console.page(
        request,
        "group.html",
        404 if found["is_missing"] else 200,
        name=name,
        lags=list(console.history.group(name)),
        **{**found, "partitions": paged(found["partitions"], query.number("page", 1))},
    )


def _load(client: Client, name: str) -> dict[str, Any]:
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


ROUTES = [Route("/groups", show_groups), Route("/group", show_group)]
