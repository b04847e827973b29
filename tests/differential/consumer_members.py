"""Members of a consumer group on one broker: their requests, responses and records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from barnabas.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from barnabas.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from barnabas.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from differential.group_members import GroupMembers, group_records
from differential.response import as_text
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from differential.side import Side

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
# Enough groups to reach each partition of the offsets topic.
PROBES = 12
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

    def __init__(self, side: Side, group: str, topics: dict[str, int]) -> None:
        super().__init__(side, group)
        for name, count in topics.items():
            self.create_topic(name, count)
        for number in range(PROBES):
            eventually(partial(self._assigns_all, f"{group}-probe-{number}", [*topics]))

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
