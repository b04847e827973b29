"""The result of a heartbeat of a member of a streams group, and one heartbeat in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIdsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordinator.group.classic.joining import ClientIdentity
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_configs import StreamsConfigs
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_topology import StreamsTopology
    from barnabas.coordinator.group.streams.tasks import MemberTasks
    from barnabas.coordinator.group.streams.topology.configured_topology import (
        ConfiguredInternalTopic,
        ConfiguredTopology,
    )
    from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from barnabas.protocol.records.streams_group_topology import StreamsGroupTopologyValue


class StreamsHeartbeat(msgspec.Struct):
    """The response to a heartbeat, and the topics that the broker creates after it."""

    response: StreamsGroupHeartbeatResponse
    to_create: Mapping[str, ConfiguredInternalTopic] = msgspec.field(default_factory=dict)


class StreamsClient(msgspec.Struct, frozen=True):
    """The client of a heartbeat, and the version of its request."""

    identity: ClientIdentity
    version: int


class GivenTopology(msgspec.Struct, frozen=True):
    """The topologies that are known before the heartbeat."""

    # The topology of the request, as its record has it. None if the request has none.
    value: StreamsGroupTopologyValue | None = None
    # Whether a large topology was configured in slices before, if that was necessary.
    is_prepared: bool = False
    # The topology of the group with the current topics, if it was configured in slices.
    configured: ConfiguredTopology | None = None


NO_TOPOLOGY = GivenTopology()


class UnpreparedTopologyError(Exception):
    """The topology must be configured first, in slices, since it is large."""


class Heartbeating(msgspec.Struct):
    """One heartbeat in progress."""

    request: StreamsGroupHeartbeatRequest
    client: StreamsClient
    group: StreamsGroup
    configs: StreamsConfigs
    reported: MemberTasks | None
    given: GivenTopology
    records: list[CoordinatorRecord]
    statuses: list[Status] = msgspec.field(default_factory=list)
    # The static member that the member of the heartbeat replaces.
    replaced: StreamsMember | None = None

    def note(self, status: StreamsStatus, detail: str) -> None:
        """Add a status to the response."""
        self.note_code(int(status), detail)

    def note_code(self, code: int, detail: str) -> None:
        """Add a status, given by its number, to the response."""
        self.statuses.append(Status(status_code=code, status_detail=detail))


class Assignment(msgspec.Struct, frozen=True):
    """The epochs and the target of a member after a heartbeat."""

    group_epoch: int
    target_epoch: int
    target: MemberTasks


class Prepared(msgspec.Struct, frozen=True):
    """The topology of a group, configured for the current topics."""

    topology: StreamsTopology
    configured: ConfiguredTopology
    metadata_hash: int
    # Whether the hash differs from the stored one.
    has_new_hash: bool


def new_response(
    member: StreamsMember, configs: StreamsConfigs, statuses: list[Status]
) -> StreamsGroupHeartbeatResponse:
    """Return a response with the epoch of the member, and without tasks and endpoints."""
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=configs.heartbeat_interval_ms,
        task_offset_interval_ms=configs.task_offset_interval_ms,
        acceptable_recovery_lag=configs.acceptable_recovery_lag,
        status=statuses,
        endpoint_information_epoch=0,
    )


def task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIdsResponse]:
    """Return tasks as they are in responses."""
    return [
        TaskIdsResponse(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in sorted(tasks.items())
    ]


def failed_streams_heartbeat(
    error: ErrorCode, message: str | None
) -> StreamsGroupHeartbeatResponse:
    """Return the response with an error."""
    return StreamsGroupHeartbeatResponse(
        error_code=error,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
