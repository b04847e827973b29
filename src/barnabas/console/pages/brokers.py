"""The page of one broker: its configs and its log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.explained_configs import explained_configs
from barnabas.console.web.forms import query_fields

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client

__all__ = ["ROUTES"]

_LARGEST = 20


async def show_broker(request: Request) -> Response:
    """Show a broker."""
    console, query = console_of(request), query_fields(request)
    node = query.number("id")
    found = await console.cluster.call(lambda client: _load(client, node))
    return console.page(request, "broker.html", 200 if found["info"] else 404, node=node, **found)


def _load(client: Client, node: int) -> dict[str, Any]:
    cluster = client.describe_cluster()
    info = next((each for each in (*cluster.brokers, *cluster.fenced) if each.id == node), None)
    is_serving = any(each.id == node for each in cluster.brokers)
    found: dict[str, Any] = {
        "info": info,
        "is_serving": is_serving,
        "configs": [],
        "configs_error": "",
        "directories": [],
        "largest": [],
    }
    if not is_serving:
        return found
    resource = ConfigResource(ResourceType.BROKER, str(node))
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    if isinstance(entries, ClientError):
        found["configs_error"] = str(entries)
    else:
        found["configs"] = explained_configs(entries)
    directories = client.admin.describe_log_dirs([node], once=True)[node]
    if not isinstance(directories, ClientError):
        replicas = [
            (replica.size, tp) for each in directories for tp, replica in each.replicas.items()
        ]
        found["directories"] = directories
        found["largest"] = sorted(replicas, reverse=True)[:_LARGEST]
    return found


ROUTES = [Route("/broker", show_broker)]
