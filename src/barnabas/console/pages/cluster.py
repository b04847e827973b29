"""The first page: brokers, quorum, features and load of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.admin.quorum import quorum_state
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.log_dirs import LogDirectory
    from barnabas.client.facade import Client

__all__ = ["ROUTES"]


async def show_cluster(request: Request) -> Response:
    """Show the cluster."""
    console = console_of(request)
    found = await console.cluster.call(_load)
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


def _load(client: Client) -> dict[str, Any]:
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


ROUTES = [Route("/", show_cluster)]
