"""The partitions of members with an endpoint, for interactive queries (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.streams_group_heartbeat import (
    EndpointResponse,
    EndpointToPartitions,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.topology.configured_topology import ConfiguredTopology
    from barnabas.coordinator.group.topics_view import TopicsView


def endpoint_partitions(
    group: StreamsGroup,
    configured: ConfiguredTopology,
    topics: TopicsView,
    changed: StreamsMember,
    replaced_id: str | None,
) -> list[EndpointToPartitions]:
    """Return one entry for each member that has an endpoint.

    Args:
        group: the group before the heartbeat.
        configured: its topology with the current topics.
        topics: the topics of the cluster.
        changed: the member of the heartbeat after it. It comes last.
        replaced_id: the static member that `changed` replaces, or None.
    """
    others = (
        member
        for member_id, member in group.members.items()
        if member_id not in (changed.member_id, replaced_id)
    )
    found: list[EndpointToPartitions] = []
    for member in (*others, changed):
        if member.user_endpoint is None:
            continue
        known = group.endpoints.get(member.member_id)
        if known is None:
            known = group.endpoints[member.member_id] = _entry(member, configured, topics)
        found.append(known)
    return found


def _entry(
    member: StreamsMember, configured: ConfiguredTopology, topics: TopicsView
) -> EndpointToPartitions:
    endpoint = member.user_endpoint
    assert endpoint is not None, f"member={member.member_id}"
    tasks = member.assigned
    replicas = {
        each: tasks.standby.get(each, frozenset()) | tasks.warmup.get(each, frozenset())
        for each in (*tasks.standby, *(name for name in tasks.warmup if name not in tasks.standby))
    }
    return EndpointToPartitions(
        user_endpoint=EndpointResponse(host=endpoint.host, port=endpoint.port),
        active_partitions=list(_partitions(tasks.active, configured, topics)),
        standby_partitions=list(_partitions(replicas, configured, topics)),
    )


def _partitions(
    tasks: Mapping[str, Iterable[int]], configured: ConfiguredTopology, topics: TopicsView
) -> Iterator[TopicPartition]:
    """Yield the partitions of source topics that the tasks read."""
    for subtopology_id, indexes in tasks.items():
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            continue
        names = {*subtopology.source_topics, *subtopology.repartition_source_topics}
        for name in sorted(names):
            count = topics.partition_count(name)
            partitions = sorted(index for index in indexes if index < count)
            if partitions:
                yield TopicPartition(topic=name, partitions=partitions)
