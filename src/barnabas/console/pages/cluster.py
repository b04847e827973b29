"""The first page, the page of one broker, and the active reassignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.admin.quorum import quorum_state
from barnabas.cli.partitions.moving import moves_with_progress
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.topics import explained_configs
from barnabas.console.rendering import paged

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.log_dirs import LogDirectory
    from barnabas.client.facade import Client


async def show_cluster(request: Request) -> Response:
    """Show the cluster."""
    console = console_of(request)
    found = await console.cluster.call(_load_cluster)
    history = console.history
    return console.page(
        request,
        "cluster.html",
        **found,
        sample=history.latest,
        rates=history.rates,
        records_in=list(history.records_in),
        has_metrics=bool(console.settings.metrics),
    )


def _load_cluster(client: Client) -> dict[str, Any]:
    cluster = client.describe_cluster()
    quorum = quorum_state(client)
    directories = client.admin.describe_log_dirs([each.id for each in cluster.brokers], once=True)
    try:
        features = client.admin.describe_versions().finalized_features
    except ClientError:
        features = {}
    return {
        "cluster": cluster,
        "quorum": quorum.description,
        "is_quorum_lost": quorum.is_lost,
        "disks": {node: _disk(found) for node, found in directories.items()},
        "features": features,
    }


def _disk(found: list[LogDirectory] | ClientError) -> dict[str, Any]:
    """Return the sums over the log directories of a broker (bytes)."""
    if isinstance(found, ClientError):
        return {"error": str(found)}
    return {
        "error": "; ".join(f"{each.path}: {each.error}" for each in found if each.error),
        "replicas": sum(len(each.replicas) for each in found),
        "used": sum(replica.size for each in found for replica in each.replicas.values()),
        "free": sum(max(0, each.usable_bytes) for each in found),
        "knows_free": all(each.usable_bytes >= 0 for each in found if not each.error),
    }


_LARGEST = 20


async def show_broker(request: Request) -> Response:
    """Show a broker."""
    console, query = console_of(request), query_fields(request)
    node = query.number("id")
    found = await console.cluster.call(lambda client: _load_broker(client, node))
    return console.page(request, "broker.html", 200 if found["info"] else 404, node=node, **found)


def _load_broker(client: Client, node: int) -> dict[str, Any]:
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


async def show_reassignments(request: Request) -> Response:
    """Show the reassignments."""
    console, query = console_of(request), query_fields(request)
    rows = await console.cluster.call(_load_reassignments)
    page = paged(rows, query.number("page", 1))
    return console.page(request, "reassignments.html", page=page, topic=query.stripped("topic"))


def _load_reassignments(client: Client) -> list[dict[str, Any]]:
    return [
        {"partition": shown.partition, "move": move, "progress": progress}
        for shown, move, progress in moves_with_progress(client, ())
    ]


NAVIGATION = [
    Entry("Cluster", "Overview", "/", ("/broker",)),
    Entry("Cluster", "Reassignments", "/reassignments"),
]
ROUTES = [
    Route("/", show_cluster),
    Route("/broker", show_broker),
    Route("/reassignments", show_reassignments),
]
