"""Members of a consumer group on one broker: their requests, responses and records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.records.classic_groups import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from differential.group_members import GroupMembers, group_records
from differential.response import as_text
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from differential.side import Side

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
# Enough groups to reach each partition of the offsets topic.
PROBES = 12
INTERVAL = "consumer.assignment.interval.ms"
# A config resource of type group, and the operation that sets a config.
_GROUP, _SET = 32, 0
KINDS: dict[int, tuple[Any, Any]] = {
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


class Members(GroupMembers):
    """The members of a consumer group on one broker."""

    def __init__(
        self, side: Side, group: str, topics: dict[str, int], interval_ms: int | None = None
    ) -> None:
        """Create the topics, and wait until the coordinators have them.

        Args:
            side: the broker.
            group: the group id.
            topics: the number of partitions by topic name.
            interval_ms: the minimum time between two assignments; the broker's default if None.
        """
        super().__init__(side, group)
        if interval_ms is not None:
            self._set_interval(interval_ms)
        self._create(topics)

    def change_interval(self, interval_ms: int) -> None:
        """Change the minimum time between two assignments, and wait until it is effective.

        The coordinators get the config before the topic, because the topic is created later.
        """
        self._set_interval(interval_ms)
        self._create({f"{self.group}-after-change": 1})

    def _set_interval(self, interval_ms: int) -> None:
        config = {"name": INTERVAL, "config_operation": _SET, "value": str(interval_ms)}
        resource = {"resource_type": _GROUP, "resource_name": self.group, "configs": [config]}
        response = exchange(
            self.side, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}
        )
        assert not response.responses[0].error_code, response

    def _create(self, topics: dict[str, int]) -> None:
        """Create topics, and wait until the coordinators of all groups assign them."""
        for name, count in topics.items():
            self.create_topic(name, count)
        for number in range(PROBES):
            eventually(partial(self._assigns_all, f"{self.group}-probe-{number}", [*topics]))

    def _assigns_all(self, group: str, topics: list[str]) -> bool:
        """Return whether the coordinator of a group assigns all of the topics."""
        joining = {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": topics,
            "topic_partitions": [],
        }
        joined = exchange(self.side, HEARTBEAT, 1, joining)
        leaving = {"group_id": group, "member_id": "m", "member_epoch": -1}
        exchange(self.side, HEARTBEAT, 1, leaving)
        assignment = joined.assignment
        return assignment is not None and len(assignment.topic_partitions) == len(topics)

    def heartbeat(self, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        owned = fields.pop("owned", {} if epoch == 0 else None)
        if owned is not None:
            fields["topic_partitions"] = [
                {"topic_id": self.ids[name], "partitions": list(indexes)}
                for name, indexes in owned.items()
            ]
        if epoch == 0:
            fields.setdefault("rebalance_timeout_ms", 60_000)
        values = {
            "group_id": self.group,
            "member_id": member,
            "member_epoch": epoch,
            **fields,
        }
        response = exchange(self.side, HEARTBEAT, version, values)
        self.lines.append(f"{member} {epoch} {fields.keys()}: {as_text(response, self.side)}")
        return response

    def describe(self) -> None:
        response = exchange(self.side, DESCRIBE, 1, {"group_ids": [self.group]})
        for group in response.groups:
            group.members.sort(key=lambda each: as_text([each.member_id], self.side))
            for member in group.members:
                member.subscribed_topic_names.sort()
                for assignment in (member.assignment, member.target_assignment):
                    for topic in assignment.topic_partitions:
                        topic.partitions.sort()
        self.lines.append(as_text(response, self.side))


def records(members: Members) -> list[str]:
    """Return the records of the group."""
    return group_records(members, KINDS, _normalize)


def _normalize(value: Any) -> None:
    if isinstance(value, GroupMetadataValue):
        value.members.sort(key=lambda each: each.group_instance_id or "")
    if isinstance(value, ConsumerGroupRegularExpressionValue):
        value.version = int(value.version > 0)
