"""All versions of ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.consumer.described_consumers import describe_consumers
from barnabas.coordinator.group.consumer.heartbeats.membership_checks import check_request
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.requests.group_descriptions import describe_groups
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.configs.consumer_config import ConsumerGroupConfig
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.consumer.heartbeats.heartbeating import Heartbeating
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


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
