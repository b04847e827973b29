"""The list of topics with their rates, and the page of one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.explained_configs import explained_configs
from barnabas.console.inherited_times import inherited_times, needs_broker
from barnabas.console.web.forms import query_fields
from barnabas.console.web.paging import paged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ROUTES"]


async def show_topics(request: Request) -> Response:
    """Show all topics."""
    console, query = console_of(request), query_fields(request)
    found = await console.cluster.call(lambda client: client.admin.list_topics(internal=True))
    word, internal = query.stripped("filter"), query.has("internal")
    names = [
        name
        for name, topic in found.items()
        if word.lower() in name.lower() and (internal or not topic.is_internal)
    ]
    rates = console.history.rates
    return console.page(
        request,
        "topics.html",
        page=paged(names, query.number("page", 1)),
        filter=word,
        internal=internal,
        hidden=sum(topic.is_internal for topic in found.values()) if not internal else 0,
        rates=rates.topics if rates else {},
        samples=console.history.latest.topics if console.history.latest else {},
    )


async def show_topic(request: Request) -> Response:
    """Show a topic: partitions, configs, rates."""
    console, query = console_of(request), query_fields(request)
    name = query.required("name")
    found = await console.cluster.call(lambda client: _load(client, name))
    rates = console.history.rates
    return console.page(
        request,
        "topic.html",
        name=name,
        rates=rates.topics.get(name) if rates else None,
        records_in=list(console.history.topic(name)),
        **{**found, "partitions": paged(found["partitions"], query.number("page", 1))},
    )


def _load(client: Client, name: str) -> dict[str, Any]:
    snapshots = take_snapshots(client, [name])
    starts = client.admin.list_offsets({each.partition: "earliest" for each in snapshots})
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    is_error = isinstance(entries, ClientError)
    configs = [] if isinstance(entries, ClientError) else entries
    return {
        "partitions": [_partition(each, starts.get(each.partition)) for each in snapshots],
        "state": _state(snapshots),
        "sizes": _sizes(client, snapshots),
        "configs": explained_configs(configs, _inherited(client, configs, snapshots)),
        "configs_error": str(entries) if is_error else "",
    }


def _inherited(
    client: Client, entries: Sequence[ConfigEntry], snapshots: Sequence[PartitionSnapshot]
) -> dict[str, str]:
    """Return the times that the topic would have from its leader; empty if it does not say."""
    leader = next((each.state.leader for each in snapshots if each.state.leader >= 0), None)
    if leader is None or not needs_broker(entries):
        return {}
    resource = ConfigResource(ResourceType.BROKER, str(leader))
    try:
        found = client.admin.describe_configs([resource])[resource]
    except ClientError:
        return {}
    return {} if isinstance(found, ClientError) else inherited_times(found)


def _partition(snapshot: PartitionSnapshot, start: object) -> dict[str, Any]:
    first = getattr(start, "offset", None)
    end = snapshot.high_watermark
    return {
        "number": snapshot.partition.partition,
        "state": snapshot.state,
        "marks": snapshot.marks,
        "start": first,
        "end": end if isinstance(end, int) else None,
        "records": end - first if isinstance(end, int) and first is not None else None,
        "lags": {node: snapshot.lag_of(node) for node in snapshot.out_of_sync},
    }


def _state(snapshots: Sequence[PartitionSnapshot]) -> dict[str, Any]:
    return {
        "count": len(snapshots),
        "replicas": max((len(each.state.replicas) for each in snapshots), default=0),
        "min_isr": next((each.min_isr for each in snapshots), None),
        "is_internal": any(each.is_internal for each in snapshots),
        "unwell": sum(bool(set(each.marks) - {"moving", "not-preferred"}) for each in snapshots),
    }


def _sizes(client: Client, snapshots: Sequence[PartitionSnapshot]) -> dict[int, int]:
    """Return the bytes of the largest replica by partition; empty if brokers do not say."""
    nodes = {node for each in snapshots for node in each.state.isr}
    wanted: dict[TopicPartition, int] = {each.partition: -1 for each in snapshots}
    for directories in client.admin.describe_log_dirs(sorted(nodes), once=True).values():
        for directory in () if isinstance(directories, ClientError) else directories:
            for tp, replica in directory.replicas.items():
                if tp in wanted:
                    wanted[tp] = max(wanted[tp], replica.size)
    return {tp.partition: size for tp, size in wanted.items() if size >= 0}


ROUTES = [Route("/topics", show_topics), Route("/topic", show_topic)]
