"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.requests.group_requests import describe_groups, failed_description
from barnabas.coordinator.group.streams.configuring import configuring_topology, is_large
from barnabas.coordinator.group.streams.group_epochs import ASSIGNOR
from barnabas.coordinator.group.streams.streams_heartbeat import (
    NO_TOPOLOGY,
    GivenTopology,
    StreamsHeartbeatResult,
    check_streams_heartbeat,
    failed_streams_heartbeat,
)
from barnabas.coordinator.group.streams.task_assignors import task_lists
from barnabas.coordinator.group.streams.task_reconciliation import MemberOffsets
from barnabas.coordinator.group.streams.topology import topology_value
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_collections import (
    JavaTable,
    string_hash,
    string_order,
)
from barnabas.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.streams.configuring import (
        ConfiguredInternalTopic,
        ConfiguredTopology,
    )
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsClient
    from barnabas.coordinator.group.streams.task_reconciliation import StreamsMember
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
    from barnabas.protocol.records import streams_groups
    from barnabas.protocol.records.streams_groups import StreamsGroupTopologyValue


def described(configured: ConfiguredTopology) -> Topology:
    """Return the description of a configured topology."""
    return Topology(
        epoch=configured.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=_sorted(each.source_topics),
                repartition_sink_topics=_sorted(each.repartition_sink_topics),
                state_changelog_topics=_internal(each.changelog_topics.values()),
                repartition_source_topics=_internal(each.repartition_source_topics.values()),
            )
            for subtopology_id, each in (configured.subtopologies or {}).items()
        ],
    )


def described_value(value: streams_groups.StreamsGroupTopologyValue) -> Topology:
    """Return the description of a topology that is not configured."""
    return Topology(
        epoch=value.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=_sorted(each.source_topics),
                repartition_sink_topics=_sorted(each.repartition_sink_topics),
                state_changelog_topics=_declared(each.state_changelog_topics),
                repartition_source_topics=_declared(each.repartition_source_topics),
            )
            for each in sorted(value.subtopologies, key=_id_order)
        ],
    )


def _id_order(subtopology: streams_groups.Subtopology) -> bytes:
    return string_order(subtopology.subtopology_id)


def _name_order(topic: TopicInfo) -> bytes:
    return string_order(topic.name)


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=string_order)


def _internal(topics: Iterable[ConfiguredInternalTopic]) -> list[TopicInfo]:
    found = [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor or 0,
            topic_configs=[
                KeyValue(key=key, value=topic.configs[key])
                for key in JavaTable(string_hash, topic.configs)
            ],
        )
        for topic in topics
    ]
    return sorted(found, key=_name_order)


def _declared(topics: Iterable[streams_groups.TopicInfo]) -> list[TopicInfo]:
    found = [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                KeyValue(key=config.key, value=config.value) for config in topic.topic_configs
            ],
        )
        for topic in topics
    ]
    return sorted(found, key=_name_order)


# Values of `topology_description_status`.
NOT_REQUESTED = 0
NOT_STORED = 1


def describe_streams_group(group: StreamsGroup, *, includes_description: bool) -> DescribedGroup:
    """Return epochs, state, topology and members of a group.

    Args:
        group: the group.
        includes_description: whether the request asks for the description of the topology. Kafka
            has descriptions only with a plugin.
    """
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_described(group, member) for member in group.members.values()],
        topology_description_status=NOT_STORED if includes_description else NOT_REQUESTED,
        assignor_name=ASSIGNOR,
    )


def _topology(group: StreamsGroup) -> Topology | None:
    configured = group.configured
    if configured is not None and configured.is_ready:
        return described(configured)
    return None if group.topology is None else described_value(group.topology.value)


def _described(group: StreamsGroup, member: StreamsMember) -> Member:
    target = group.target_of(member.member_id)
    offsets = group.task_offsets.get(member.member_id, MemberOffsets())
    endpoint = member.user_endpoint
    assigned = member.assigned
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=tag) for key, tag in member.client_tags.items()],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.end_offsets),
        assignment=Assignment(
            active_tasks=task_lists(TaskIds, assigned.active),
            standby_tasks=task_lists(TaskIds, assigned.standby),
            warmup_tasks=task_lists(TaskIds, assigned.warmup),
        ),
        target_assignment=Assignment(
            active_tasks=task_lists(TaskIds, target.active),
            standby_tasks=task_lists(TaskIds, target.standby),
            warmup_tasks=task_lists(TaskIds, target.warmup),
        ),
        is_classic=False,
    )


def _offsets(offsets: Mapping[str, Mapping[int, int]]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=each, partition=index, offset=offset)
        for each, partitions in sorted(offsets.items())
        for index, offset in sorted(partitions.items())
    ]


class StreamsRequests:
    """Requests for streams groups."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], topics: TopicsView) -> None:
        self._runtime = runtime
        self._topics = topics

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: StreamsClient,
        on_done: Callable[[StreamsHeartbeatResult], None],
        in_slices: Callable[[Generator[None, None, None]], None],
    ) -> None:
        """Handle StreamsGroupHeartbeat, versions 0 to 1.

        Args:
            request: the request.
            client: its client.
            on_done: gets the response and the topics to create when its records are committed.
            in_slices: runs steps that take longer than one turn of the loop.
        """
        try:
            check_streams_heartbeat(request)
        except RefusalError as error:
            on_done(StreamsHeartbeatResult(failed_streams_heartbeat(error.error, error.message)))
            return

        topology = request.topology
        if topology is not None and is_large(topology):
            in_slices(self._heartbeat_in_steps(request, client, on_done))
            return
        given = NO_TOPOLOGY if topology is None else GivenTopology(topology_value(topology))

        def respond(found: StreamsHeartbeatResult | None, error: ErrorCode) -> None:
            if found is None and error is ErrorCode.NONE:
                # The topology of the group is large, and must be configured before.
                in_slices(self._heartbeat_in_steps(request, client, on_done))
            else:
                on_done(_result(found, error))

        self._runtime.write_jointly(
            request.group_id, lambda shard: shard.streams.heartbeat(request, client, given), respond
        )

    def _heartbeat_in_steps(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: StreamsClient,
        on_done: Callable[[StreamsHeartbeatResult], None],
    ) -> Generator[None, None, None]:
        """Configure the topology of the group, then do the heartbeat. Yields."""
        value = None
        if request.topology is not None:
            yield
            value = topology_value(request.topology)
            yield
        try:
            configured = yield from self._configured(request.group_id, value)
        except RefusalError as error:
            on_done(StreamsHeartbeatResult(failed_streams_heartbeat(error.error, error.message)))
            return
        given = GivenTopology(value, is_prepared=True, configured=configured)
        self._runtime.write_jointly(
            request.group_id,
            lambda shard: shard.streams.heartbeat(request, client, given),
            lambda found, error: on_done(_result(found, error)),
        )

    def _configured(
        self, group_id: str, given: StreamsGroupTopologyValue | None
    ) -> Generator[None, None, ConfiguredTopology | None]:
        """Return the configured topology if it is large. Yields. Raises RefusalError."""
        found = self._runtime.read(
            group_id, lambda shard: shard.streams.epochs.large_topology(group_id, given)
        )
        if not isinstance(found, tuple):
            return None
        value, metadata_hash = found
        configured = yield from configuring_topology(
            value, self._topics.partition_count, metadata_hash
        )
        return configured

    def describe(
        self,
        group_ids: list[str],
        on_done: Callable[[list[DescribedGroup]], None],
        *,
        includes_description: bool,
    ) -> Generator[None, None, None]:
        """Describe streams groups (versions 0 to 1), as `describe_groups`.

        Args:
            group_ids: the groups.
            on_done: gets the descriptions.
            includes_description: whether the request asks for descriptions of topologies.
        """

        def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
            group = shard.streams_groups.groups.require(group_id)
            return describe_streams_group(group, includes_description=includes_description)

        return describe_groups(self._runtime, group_ids, describe, failed_streams_group, on_done)


def _result(found: StreamsHeartbeatResult | None, error: ErrorCode) -> StreamsHeartbeatResult:
    """Return the result of a write, or its error for the client."""
    if found is not None:
        return found
    return StreamsHeartbeatResult(failed_streams_heartbeat(client_error(error), None))


failed_streams_group = partial(failed_description, DescribedGroup)
