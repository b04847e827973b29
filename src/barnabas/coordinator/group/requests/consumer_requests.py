"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import NOTHING
from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.consumer.heartbeats import check_request
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.requests.group_requests import describe_groups
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.configs.kind_configs import ConsumerGroupConfig
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
    from barnabas.coordinator.group.consumer.heartbeats import Heartbeating
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatResponse


# The types of members, by the protocol that they use.
_CLASSIC, _CONSUMER = 0, 1


def describe_consumers(
    group: ConsumerGroup, topics: TopicsView, default_assignor: str
) -> DescribedGroup:
    """Return epochs, state and members of a group."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> Member:
    owned: dict[bytes, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, set()).update(indexes)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING), topics),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicsView) -> Assignment:
    """Return the partitions of existing topics."""
    found = []
    for topic_id, indexes in sorted(partitions.items()):
        name = topics.topic_name(topic_id)
        if name is not None:
            found.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Assignment(topic_partitions=found)


class ConsumerRequests:
    """Requests for consumer groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: TopicsView,
        settings: GroupTypeSettings[ConsumerGroupConfig],
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._settings = settings

    def heartbeat(
        self,
        heartbeat: Heartbeating,
        version: int,
        on_done: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """Handle ConsumerGroupHeartbeat, versions 0 and 1.

        Args:
            heartbeat: the request and its client.
            version: the version of the request.
            on_done: gets the response when its records are committed.
        """

        def respond(found: ConsumerGroupHeartbeatResponse | None, error: ErrorCode) -> None:
            if found is None:
                found = failed_heartbeat(client_error(error), None)
            on_done(found)

        try:
            check_request(heartbeat.request, version, self._settings.config)
        except RefusalError as error:
            on_done(failed_heartbeat(error.error, error.message))
            return
        self._runtime.write_jointly(
            heartbeat.request.group_id,
            lambda shard: shard.consumers.heartbeat(heartbeat),
            respond,
        )

    def describe(
        self, group_ids: list[str], on_done: Callable[[list[DescribedGroup]], None]
    ) -> Generator[None, None, None]:
        """Describe consumer groups (versions 0 and 1), as `describe_groups`."""
        default_assignor = self._settings.config.assignors[0]

        def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
            group = shard.consumer_groups.groups.require(group_id)
            return describe_consumers(group, self._topics, default_assignor)

        return describe_groups(self._runtime, group_ids, describe, failed_group, on_done)


def failed_group(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    """Return the description of a group with an error."""
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
