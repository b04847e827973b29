"""Members of share groups in a coordinator's virtual time."""

from __future__ import annotations

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.protocol.messages.share_consumers import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribedGroup,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from steps import finish
from unit.coordinator.consumers_world import CLIENT, ConsumersWorld

Partitions = dict[str, set[int]]


class SharesWorld(ConsumersWorld):
    """A loaded coordinator, topics, share coordinators, and short calls for requests."""

    def __init__(self, replicas: tuple[int, ...] = (1,), **config: int) -> None:
        super().__init__(replicas, **{"group_share_assignment_interval_ms": 0, **config})

    def share_beat(
        self,
        member: str,
        epoch: int,
        *topics: str,
        group: str = "g",
        rack: str | None = None,
        host: str | None = None,
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=list(topics) or None,
        )
        answers: list[ShareGroupHeartbeatResponse] = []
        client = CLIENT if host is None else ClientIdentity(CLIENT.client_id, host)
        self.coordinator.shares.heartbeat(request, client, answers.append)
        (answer,) = answers
        return answer

    def describe_shares(self, group: str = "g") -> DescribedGroup:
        answers: list[list[DescribedGroup]] = []
        finish(self.coordinator.shares.describe([group], answers.append))
        ((described,),) = answers
        return described

    def offsets(self, group: str = "g", **topics: list[int]) -> dict[str, dict[int, tuple]]:
        """Return (start offset, lag, error) by topic and partition."""
        asked = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
        request = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked or None)
        answers: list[DescribeShareGroupOffsetsResponseGroup] = []
        finish(
            self.coordinator.share_descriptions.describe(
                request, lambda steps: answers.append(finish(steps))
            )
        )
        (answer,) = answers
        assert answer.error_code == 0
        return {
            topic.topic_name: {
                each.partition_index: (each.start_offset, each.lag, each.error_code)
                for each in topic.partitions
            }
            for topic in answer.topics
        }

    def alter(self, group: str = "g", **topics: dict[int, int]) -> AlterShareGroupOffsetsResponse:
        request = AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=offset
                        )
                        for index, offset in offsets.items()
                    ],
                )
                for name, offsets in topics.items()
            ],
        )
        answers: list[AlterShareGroupOffsetsResponse] = []
        finish(
            self.coordinator.share_offsets.alter(
                request, lambda steps: answers.append(finish(steps))
            )
        )
        (answer,) = answers
        return answer

    def forget(self, *topics: str, group: str = "g") -> DeleteShareGroupOffsetsResponse:
        request = DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
        )
        answers: list[DeleteShareGroupOffsetsResponse] = []
        finish(self.coordinator.share_offsets.delete(request, answers.append))
        (answer,) = answers
        return answer

    def start_offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """Return the start offsets that the share coordinators have."""
        return {
            (topic_id.rstrip(b"-").decode(), partition): offset
            for (name, topic_id, partition), (offset, _) in self.share_store.states.items()
            if name == group
        }
