"""Share groups (KIP-932) on one broker: requests, their responses in words, and the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.records.classic_groups import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from differential.group_members import GroupMembers, group_records
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from differential.side import Side

HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
OFFSETS = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
ALTER, DELETE = ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS
# Enough groups to reach each partition of the offsets topic.
PROBES = 12
KINDS: dict[int, tuple[Any, Any]] = {
    2: (GroupMetadataKey, GroupMetadataValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}


class ShareMembers(GroupMembers):
    """The members of a share group on one broker."""

    def __init__(self, side: Side, group: str, topics: Mapping[str, int]) -> None:
        super().__init__(side, group)
        self._probes = [f"{group}-probe-{number}" for number in range(PROBES)]
        for name, count in topics.items():
            self.create_topic(name, count)
        self.await_topics(topics)

    def await_topics(self, topics: Mapping[str, int]) -> None:
        """Wait until all coordinators have these topics with that many partitions."""
        offsets = {name: {count - 1: 0} for name, count in topics.items()}

        def are_known() -> bool:
            responses = [
                exchange(self.side, ALTER, 0, _altered(group, offsets)) for group in self._probes
            ]
            return not any(
                each.error_code
                for response in responses
                for topic in response.responses
                for each in topic.partitions
            )

        eventually(are_known, f"{self.side.name}: topics {topics} are not known")

    def clean(self, *groups: str) -> None:
        super().clean(*self._probes, *groups)

    def heartbeat(self, member: str, epoch: int, *topics: str, **fields: Any) -> Any:
        values = {"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields}
        if topics:
            values["subscribed_topic_names"] = list(topics)
        response = exchange(self.side, HEARTBEAT, 1, values)
        if response.assignment is not None:
            response.assignment.topic_partitions.sort(key=self._place)
        return self.note(response)

    def _place(self, topic: Any) -> list[str]:
        return [name for name, topic_id in self.ids.items() if topic_id == topic.topic_id]

    def await_initialized(self, **topics: int) -> None:
        """Wait until that many partitions of these topics have state."""

        def are_initialized() -> bool:
            requested = {"groups": [{"group_id": self.group, "topics": None}]}
            (group,) = exchange(self.side, OFFSETS, 1, requested).groups
            found = {each.topic_name: len(each.partitions) for each in group.topics}
            return found == topics

        eventually(are_initialized, f"{self.side.name}: {topics} are not initialized")

    def describe(self, *groups: str) -> None:
        response = exchange(self.side, DESCRIBE, 1, {"group_ids": list(groups) or [self.group]})
        for group in response.groups:
            group.members.sort(key=lambda each: each.member_id)
            for member in group.members:
                member.subscribed_topic_names.sort()
                member.assignment.topic_partitions.sort(key=lambda each: each.topic_name)
        self.note(response)

    def offsets(self, topics: Mapping[str, Iterable[int]] | None = None, version: int = 1) -> None:
        """Describe the offsets of topics and partitions; of all topics if `topics` is None."""
        requested = None
        if topics is not None:
            requested = [
                {"topic_name": name, "partitions": list(indexes)}
                for name, indexes in topics.items()
            ]
        groups = [{"group_id": self.group, "topics": requested}]
        response = exchange(self.side, OFFSETS, version, {"groups": groups})
        for group in response.groups:
            group.topics.sort(key=lambda each: each.topic_name)
            for topic in group.topics:
                topic.partitions.sort(key=lambda each: each.partition_index)
        self.note(response)

    def alter(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        response = exchange(self.side, ALTER, 0, _altered(self.group, offsets))
        self.note(response)

    def delete_offsets(self, *topics: str) -> None:
        """Delete the offsets of topics."""
        named = [{"topic_name": name} for name in topics]
        response = exchange(self.side, DELETE, 0, {"group_id": self.group, "topics": named})
        response.responses.sort(key=lambda each: each.topic_name)
        self.note(response)

    def records(self) -> list[str]:
        """Return the records of the group."""
        return group_records(self, KINDS, self._sort)

    def _sort(self, value: Any) -> None:
        for name in (
            "topic_partitions",
            "assigned_partitions",
            "initializing_topics",
            "initialized_topics",
            "deleting_topics",
        ):
            topics = getattr(value, name, None)
            if topics is not None:
                topics.sort(key=self._place)


def _altered(group: str, offsets: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    topics = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "start_offset": offset}
                for index, offset in partitions.items()
            ],
        }
        for name, partitions in offsets.items()
    ]
    return {"group_id": group, "topics": topics}
