"""`barnabas metadata`: brokers, topics, leaders and replicas, in the format of `kcat -L`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.named_topics import topic_arguments
from barnabas.cli.common.output import ClientOptions, client_options, connected, echo_json
from barnabas.cli.common.printable import echo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.connections.metadata_cache import TopicInfo

EXAMPLES = """\b
Examples:
  barnabas metadata
  barnabas metadata -t flights --json
  barnabas -L -b broker.example:9092

\b
The text and the JSON are those of `kcat -L`, and so scripts for kcat can read them. Other views:
`barnabas brokers list`, `barnabas topics describe`, `barnabas partitions`.
"""


class _Metadata(NamedTuple):
    """The metadata of a cluster, or of some of its topics."""

    cluster: ClusterDescription
    # Empty: all topics.
    names: Sequence[str]
    topics: Mapping[str, TopicInfo]


@click.command(epilog=EXAMPLES)
@topic_arguments("names", required=False)
@client_options
def metadata(names: Sequence[str], options: ClientOptions) -> None:
    """Show the brokers, and the partitions with leaders, replicas and in-sync replicas."""
    with connected(options) as client:
        topics = client.describe_topics(names or None, may_be_new=False)
        found = _Metadata(client.describe_cluster(), names, topics)
    if options.as_json:
        echo_json(_metadata_json(found))
    else:
        _echo_metadata(found)


def _metadata_json(found: _Metadata) -> dict[str, Any]:
    cluster = found.cluster
    return {
        "originating_broker": {"id": -1, "name": cluster.cluster_id},
        "query": {"topic": ",".join(found.names) or "*"},
        "controllerid": cluster.controller_id,
        "brokers": [{"id": each.id, "name": each.address} for each in cluster.brokers],
        "topics": [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": number,
                        "leader": state.leader,
                        "replicas": [{"id": node} for node in state.replicas],
                        "isrs": [{"id": node} for node in state.isr],
                    }
                    for number, state in sorted(topic.partitions.items())
                ],
            }
            for name, topic in sorted(found.topics.items())
        ],
    }


def _echo_metadata(found: _Metadata) -> None:
    cluster = found.cluster
    whose = ", ".join(found.names) or "all topics"
    echo(f"Metadata for {whose} (from cluster {cluster.cluster_id}):")
    echo(f" {len(cluster.brokers)} brokers:")
    for broker in cluster.brokers:
        mark = " (controller)" if broker.id == cluster.controller_id else ""
        echo(f"  broker {broker.id} at {broker.address}{mark}")
    echo(f" {len(found.topics)} topics:")
    for name, topic in sorted(found.topics.items()):
        echo(f'  topic "{name}" with {len(topic.partitions)} partitions:')
        for number, state in sorted(topic.partitions.items()):
            echo(
                f"    partition {number}, leader {state.leader}, "
                f"replicas: {_nodes(state.replicas)}, isrs: {_nodes(state.isr)}"
            )


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))
