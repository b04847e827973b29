"""Members of a consumer group on one broker: their requests, responses and records.

Topic ids, hashes and times differ between brokers and are made alike.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    read_prefix,
)
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
from differential.answer import words
from differential.internal_records import OFFSETS_TOPIC, stored
from differential.rules import HOUR_MS
from differential.scene import ask
from differential.started import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from differential.side import Side

PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
# Groups that reach each partition of the offsets topic.
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


class Members:
    """The members of a group on one broker, and all responses in words that can be compared."""

    def __init__(self, side: Side, group: str, topics: dict[str, int]) -> None:
        self.side = side
        self.group = group
        self.ids: dict[str, bytes] = {}
        self.lines: list[str] = []
        for name, count in topics.items():
            self.create(name, count)
        # Kafka's coordinators learn of a topic after the response that created it.
        for number in range(PROBES):
            eventually(partial(self._knows, f"{group}-probe-{number}", [*topics]))

    def create(self, name: str, count: int) -> None:
        topic = {"name": name, "num_partitions": count, "replication_factor": 1}
        created = ask(
            self.side, ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 30_000}
        ).topics[0]
        assert created.error_code == ErrorCode.NONE, created
        self.ids[name] = created.topic_id
        self.side.remember(f"id of {name}", created.topic_id)

    def _knows(self, group: str, topics: list[str]) -> bool:
        """Whether the coordinator of a group assigns all of the topics."""
        joining = {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": topics,
            "topic_partitions": [],
        }
        joined = ask(self.side, HEARTBEAT, 1, joining)
        leaving = {"group_id": group, "member_id": "m", "member_epoch": -1}
        ask(self.side, HEARTBEAT, 1, leaving)
        assignment = joined.assignment
        return assignment is not None and len(assignment.topic_partitions) == len(topics)

    def beat(self, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
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
        answer = ask(self.side, HEARTBEAT, version, values)
        self.lines.append(f"{member} {epoch} {fields.keys()}: {words(answer, self.side)}")
        return answer

    def describe(self) -> None:
        answer = ask(self.side, DESCRIBE, 1, {"group_ids": [self.group]})
        for group in answer.groups:
            group.members.sort(key=lambda each: words([each.member_id], self.side))
            for member in group.members:
                member.subscribed_topic_names.sort()
                for assignment in (member.assignment, member.target_assignment):
                    for topic in assignment.topic_partitions:
                        topic.partitions.sort()
        self.lines.append(words(answer, self.side))

    def listed(self) -> None:
        answer = ask(self.side, ApiKey.LIST_GROUPS, 5, {"types_filter": ["consumer"]})
        self.lines.append(str([each for each in answer.groups if each.group_id == self.group]))


def records(members: Members) -> list[str]:
    """The records of the group, key by key, and those of a key in the order of the log.

    Kafka writes the records of one change in the order of a hash table.
    """
    lines: dict[str, list[str]] = {}
    for each in stored(members.side, OFFSETS_TOPIC, PARTITIONS):
        key_class, value_class = KINDS.get(read_prefix(each.key), (None, None))
        if key_class is None:
            continue
        key = decode_coordinator_key(key_class, each.key)
        if getattr(key, "group_id", getattr(key, "group", None)) != members.group:
            continue
        value = None
        if each.value is not None:
            value = decode_coordinator_value(value_class, each.value)
            normalize(value)
        text = words(value, members.side)
        lines.setdefault(words(key, members.side), []).append(text)
    return [f"{key} {text}" for key, texts in sorted(lines.items()) for text in texts]


def normalize(value: Any) -> None:
    """Replace values that each broker assigns, and sort lists that Kafka keeps in hash tables."""
    now_ms = time.time() * 1000
    for name in ("assignment_timestamp", "timestamp", "current_state_timestamp"):
        stamp = getattr(value, name, 0)
        if abs(stamp - now_ms) < HOUR_MS:
            setattr(value, name, 1)
    if isinstance(value, ConsumerGroupMetadataValue):
        value.metadata_hash = int(value.metadata_hash != 0)
    if isinstance(value, GroupMetadataValue):
        value.members.sort(key=lambda each: each.group_instance_id or "")
    if isinstance(value, ConsumerGroupRegularExpressionValue):
        value.version = int(value.version > 0)
