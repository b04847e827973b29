"""Share groups (KIP-932) on one broker: requests, their responses in words, and the records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    read_prefix,
)
from barnabas.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.records.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from barnabas.protocol.records.share_group_metadata import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from barnabas.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from barnabas.protocol.records.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from barnabas.protocol.records.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from differential.answer import words
from differential.internal_records import OFFSETS_TOPIC, stored
from differential.rules import HOUR_MS
from differential.scene import ask
from differential.started import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from differential.side import Side

PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
OFFSETS = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
ALTER, DELETE = ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS
# Groups that reach each partition of the offsets topic.
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


class ShareMembers:
    """The members of a group on one broker, and all responses in words that can be compared."""

    def __init__(self, side: Side, group: str, topics: Mapping[str, int]) -> None:
        self.side = side
        self.group = group
        self.ids: dict[str, bytes] = {}
        self.lines: list[str] = []
        for name, count in topics.items():
            self.create(name, count)
        # Kafka's coordinators learn of a topic after the response that created it.
        self.await_topics(topics)

    def create(self, name: str, count: int) -> None:
        topic = {"name": name, "num_partitions": count, "replication_factor": 1}
        created = ask(
            self.side, ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000}
        ).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        self.ids[name] = created.topic_id
        self.side.remember(f"id of {name}", created.topic_id)

    def await_topics(self, topics: Mapping[str, int]) -> None:
        """Wait until all coordinators know these topics with that many partitions."""
        offsets = {name: {count - 1: 0} for name, count in topics.items()}

        def know() -> bool:
            answers = [
                ask(self.side, ALTER, 0, _altered(f"{self.group}-probe-{number}", offsets))
                for number in range(PROBES)
            ]
            return not any(
                each.error_code
                for answer in answers
                for topic in answer.responses
                for each in topic.partitions
            )

        eventually(know, f"{self.side.name}: topics {topics} are not known")

    def clean(self) -> None:
        """Delete the groups and topics, so that other tests do not see them."""
        probes = [f"{self.group}-probe-{number}" for number in range(PROBES)]
        groups = [self.group, *probes]
        ask(self.side, ApiKey.DELETE_GROUPS, 2, {"groups_names": groups})
        names = {"topic_names": [*self.ids], "timeout_ms": 30_000}
        ask(self.side, ApiKey.DELETE_TOPICS, 5, names)

    def note(self, answer: Any) -> Any:
        """Keep a response for the comparison."""
        self.lines.append(words(answer, self.side))
        return answer

    def do(self, api: ApiKey, version: int, **values: Any) -> Any:
        """Send a request, and keep its response for the comparison."""
        return self.note(ask(self.side, api, version, values))

    def beat(self, member: str, epoch: int, *topics: str, **fields: Any) -> Any:
        values = {"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields}
        if topics:
            values["subscribed_topic_names"] = list(topics)
        answer = ask(self.side, HEARTBEAT, 1, values)
        if answer.assignment is not None:
            answer.assignment.topic_partitions.sort(key=self._place)
        return self.note(answer)

    def _place(self, topic: Any) -> list[str]:
        return [name for name, topic_id in self.ids.items() if topic_id == topic.topic_id]

    def await_initialized(self, **topics: int) -> None:
        """Wait until that many partitions of these topics have state."""

        def are_initialized() -> bool:
            asked = {"groups": [{"group_id": self.group, "topics": None}]}
            (group,) = ask(self.side, OFFSETS, 1, asked).groups
            found = {each.topic_name: len(each.partitions) for each in group.topics}
            return found == topics

        eventually(are_initialized, f"{self.side.name}: {topics} are not initialized")

    def describe(self, *groups: str) -> None:
        answer = ask(self.side, DESCRIBE, 1, {"group_ids": list(groups) or [self.group]})
        for group in answer.groups:
            group.members.sort(key=lambda each: each.member_id)
            for member in group.members:
                member.subscribed_topic_names.sort()
                member.assignment.topic_partitions.sort(key=lambda each: each.topic_name)
        self.note(answer)

    def offsets(self, topics: Mapping[str, Iterable[int]] | None = None, version: int = 1) -> None:
        """Describe the offsets of topics and partitions; of all, if there are none."""
        asked = None
        if topics is not None:
            asked = [
                {"topic_name": name, "partitions": list(indexes)}
                for name, indexes in topics.items()
            ]
        groups = [{"group_id": self.group, "topics": asked}]
        answer = ask(self.side, OFFSETS, version, {"groups": groups})
        for group in answer.groups:
            group.topics.sort(key=lambda each: each.topic_name)
            for topic in group.topics:
                topic.partitions.sort(key=lambda each: each.partition_index)
        self.note(answer)

    def alter(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        answer = ask(self.side, ALTER, 0, _altered(self.group, offsets))
        self.note(answer)

    def forget(self, *topics: str) -> None:
        """Delete the offsets of topics."""
        named = [{"topic_name": name} for name in topics]
        answer = ask(self.side, DELETE, 0, {"group_id": self.group, "topics": named})
        answer.responses.sort(key=lambda each: each.topic_name)
        self.note(answer)

    def delete_group(self) -> None:
        self.do(ApiKey.DELETE_GROUPS, 2, groups_names=[self.group])

    def listed(self, *types: str) -> None:
        answer = ask(self.side, ApiKey.LIST_GROUPS, 5, {"types_filter": list(types)})
        self.lines.append(str([each for each in answer.groups if each.group_id == self.group]))

    def records(self) -> list[str]:
        """The records of the group, key by key, and those of a key in the order of the log.

        Kafka writes the records of one change in the order of a hash table.
        """
        lines: dict[str, list[str]] = {}
        for each in stored(self.side, OFFSETS_TOPIC, PARTITIONS):
            key_class, value_class = KINDS.get(read_prefix(each.key), (None, None))
            if key_class is None:
                continue
            key = decode_coordinator_key(key_class, each.key)
            if getattr(key, "group_id", getattr(key, "group", None)) != self.group:
                continue
            value = None
            if each.value is not None:
                value = decode_coordinator_value(value_class, each.value)
                self._normalize(value)
            lines.setdefault(str(key), []).append(words(value, self.side))
        return [f"{key} {text}" for key, texts in sorted(lines.items()) for text in texts]

    def _normalize(self, value: Any) -> None:
        """Replace values of each broker, and sort lists of Kafka's hash tables."""
        stamp = getattr(value, "assignment_timestamp", 0)
        if abs(stamp - time.time() * 1000) < HOUR_MS:
            value.assignment_timestamp = 1
        if isinstance(value, ShareGroupMetadataValue):
            value.metadata_hash = int(value.metadata_hash != 0)
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
