"""Active reassignments and how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.partitions.moving import moves_with_progress
from barnabas.console.console import console_of
from barnabas.console.web.forms import query_fields
from barnabas.console.web.paging import paged

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client

__all__ = ["ROUTES"]


async def show_reassignments(request: Request) -> Response:
    """Show the reassignments."""
    console, query = console_of(request), query_fields(request)
    rows = await console.cluster.call(_load)
    page = paged(rows, query.number("page", 1))
    return console.page(request, "reassignments.html", page=page, topic=query.stripped("topic"))


def _load(client: Client) -> list[dict[str, Any]]:
    return [
        {"partition": shown.partition, "move": move, "progress": progress}
        for shown, move, progress in moves_with_progress(client, ())
    ]


ROUTES = [Route("/reassignments", show_reassignments)]
