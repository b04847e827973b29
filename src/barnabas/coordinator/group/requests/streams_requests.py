"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.requests.group_descriptions import describe_groups
from barnabas.coordinator.group.streams.described_streams import describe_streams_group
from barnabas.coordinator.group.streams.heartbeat_checks import check_streams_heartbeat
from barnabas.coordinator.group.streams.streams_heartbeat import (
    NO_TOPOLOGY,
    GivenTopology,
    StreamsHeartbeat,
    failed_streams_heartbeat,
)
from barnabas.coordinator.group.streams.topology.configuring import configuring_topology, is_large
from barnabas.coordinator.group.streams.topology.topology_record import topology_value
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import DescribedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsClient
    from barnabas.coordinator.group.streams.topology.configured_topology import ConfiguredTopology
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from barnabas.protocol.records.streams_group_topology import StreamsGroupTopologyValue


class StreamsRequests:
    """Requests for streams groups."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], topics: TopicsView) -> None:
        self._runtime = runtime
        self._topics = topics

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: StreamsClient,
        on_done: Callable[[StreamsHeartbeat], None],
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
            on_done(StreamsHeartbeat(failed_streams_heartbeat(error.error, error.message)))
            return

        topology = request.topology
        if topology is not None and is_large(topology):
            in_slices(self._heartbeat_in_steps(request, client, on_done))
            return
        given = NO_TOPOLOGY if topology is None else GivenTopology(topology_value(topology))

        def respond(found: StreamsHeartbeat | None, error: ErrorCode) -> None:
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
        on_done: Callable[[StreamsHeartbeat], None],
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
            on_done(StreamsHeartbeat(failed_streams_heartbeat(error.error, error.message)))
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
            group_id, lambda shard: shard.streams.large_topology(group_id, given)
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


def _result(found: StreamsHeartbeat | None, error: ErrorCode) -> StreamsHeartbeat:
    """Return the result of a write, or its error for the client."""
    if found is not None:
        return found
    return StreamsHeartbeat(failed_streams_heartbeat(client_error(error), None))


def failed_streams_group(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    """Return the description of a group with an error."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )
