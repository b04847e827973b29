"""Members of a streams group (KIP-1071) on one broker: their requests, responses and records."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.runtime.coordinator_runtime import partition_for
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.classic_groups import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.records.streams_group_current_member_assignment import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from barnabas.protocol.records.streams_groups import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from differential.group_members import PARTITIONS, GroupMembers, group_records
from differential.response import as_text
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from differential.side import Side

HEARTBEAT, DESCRIBE = ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE
DESCRIPTION = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
KINDS: dict[int, tuple[Any, Any]] = {
    2: (GroupMetadataKey, GroupMetadataValue),
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
# Errors that a waiting member ignores: Kafka unloads its groups briefly after a lack of processor
# time.
RETRIABLE = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# Ends of the names of the internal topics of `counting`.
INTERNAL = ("words-repartition", "counts-changelog")


def stateless(*topics: str, epoch: int = 0) -> dict[str, Any]:
    """Return a topology that reads topics and keeps no state."""
    return {"epoch": epoch, "subtopologies": [{"subtopology_id": "0", "source_topics": topics}]}


def counting(group: str, *topics: str, epoch: int = 0, partitions: int = 0) -> dict[str, Any]:
    """Return the topology of a word count: a repartition topic, and a store with its changelog."""
    repartition = f"{group}-words-repartition"
    by_key = {
        "name": repartition,
        "partitions": partitions,
        "replication_factor": 1,
        "topic_configs": [
            {"key": "cleanup.policy", "value": "delete"},
            {"key": "retention.ms", "value": "-1"},
        ],
    }
    changelog = {
        "name": f"{group}-counts-changelog",
        "partitions": 0,
        "replication_factor": 1,
        "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
    }
    first = {"subtopology_id": "0", "source_topics": topics}
    second = {"subtopology_id": "1", "repartition_source_topics": [by_key]}
    return {
        "epoch": epoch,
        "subtopologies": [
            {**first, "repartition_sink_topics": [repartition]},
            {**second, "state_changelog_topics": [changelog]},
        ],
    }


class StreamsMembers(GroupMembers):
    """The members of a streams group on one broker."""

    def __init__(self, side: Side, group: str, topics: Mapping[str, int]) -> None:
        super().__init__(side, group)
        # Whether the number of records and epochs is the same in each run.
        self.has_records = True
        # The epoch of each member, from its last response.
        self.epochs: dict[str, int] = {}
        for name, count in topics.items():
            self.create_topic(name, count)
        self._await_known(topics)

    def create_internal_topics(self, count: int) -> None:
        """Create the topics of `counting` before a member joins, so that epochs are the same."""
        names = [f"{self.group}-{each}" for each in INTERNAL]
        for name in names:
            self.create_topic(name, count)
        self._await_known(dict.fromkeys(names, count))

    def create(self, name: str, count: int) -> None:
        """Create a topic, and wait until the group's coordinator has it."""
        self.create_topic(name, count)
        self._await_known({name: count})

    def _await_known(self, topics: Mapping[str, int]) -> None:
        """Wait until another group of the same coordinator gets all partitions of the topics."""
        shard = partition_for(self.group, PARTITIONS)
        names = (f"{self.group}-probe-{number}" for number in itertools.count())
        group = next(each for each in names if partition_for(each, PARTITIONS) == shard)
        member = {"group_id": group, "member_id": "m"}
        joining = {**_joining(stateless(*topics)), **member, "member_epoch": 0}

        def are_known() -> bool:
            response = exchange(self.side, HEARTBEAT, 0, joining)
            exchange(self.side, HEARTBEAT, 0, {**member, "member_epoch": -1})
            found = response.active_tasks or []
            return sum(len(each.partitions) for each in found) == max(topics.values())

        eventually(are_known, f"{self.side.name}: {topics} are not known")
        exchange(self.side, ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})

    def heartbeat(self, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        """Send a heartbeat, and keep its response for the comparison."""
        response = self._heartbeat(member, epoch, version, fields)
        self.lines.append(f"{member} {epoch} {[*fields]}: {as_text(response, self.side)}")
        return response

    def _heartbeat(self, member: str, epoch: int, version: int, fields: dict[str, Any]) -> Any:
        values = {"group_id": self.group, "member_id": member, "member_epoch": epoch}
        response = exchange(self.side, HEARTBEAT, version, {**values, **fields})
        if response.error_code == ErrorCode.NONE:
            self.epochs[member] = response.member_epoch
        for name in ("active_tasks", "standby_tasks", "warmup_tasks"):
            for tasks in getattr(response, name) or ():
                tasks.partitions.sort()
        for endpoint in response.partitions_by_user_endpoint or ():
            for topics in (endpoint.active_partitions, endpoint.standby_partitions):
                topics.sort(key=lambda each: each.topic)
        return response

    def join(self, member: str, topology: dict[str, Any] | None, **fields: Any) -> Any:
        """Send the first heartbeat of a member."""
        return self.heartbeat(member, 0, **{**_joining(topology), **fields})

    def heartbeat_uncompared(self, member: str, **fields: Any) -> Any:
        """Send a heartbeat with the member's epoch, without comparing the response."""
        return self._heartbeat(member, self.epochs[member], 1, fields)

    def await_topics(self, member: str, **fields: Any) -> None:
        """Wait until the heartbeats of a member have no status, because all its topics exist."""

        def ready() -> bool:
            response = self.heartbeat_uncompared(member, **fields)
            assert response.error_code in RETRIABLE, response
            return not response.error_code and not response.status

        eventually(ready, f"{self.side.name}: topics of {self.group} are missing")

    def await_tasks(self, member: str, **fields: Any) -> None:
        """Send heartbeats until a response contains active tasks."""

        def has_tasks() -> bool:
            response = self.heartbeat_uncompared(member, **fields)
            assert response.error_code in RETRIABLE, response
            return bool(response.active_tasks)

        eventually(has_tasks, f"{self.side.name}: {member} gets no tasks")

    def describe(self, *groups: str, version: int = 1, **fields: Any) -> None:
        values = {"group_ids": list(groups) or [self.group], **fields}
        response = exchange(self.side, DESCRIBE, version, values)
        for group in response.groups:
            sort_members(group)
        self.note(response)

    def set_group_configs(self, **configs: str) -> None:
        """Set configs of the group, with "_" for ".", and wait until the coordinator has them.

        The coordinator gets the configs before the topic, because the topic is created later.
        """
        changes = [
            {"name": name.replace("_", "."), "value": value, "config_operation": 0}
            for name, value in configs.items()
        ]
        resource = {"resource_type": 32, "resource_name": self.group, "configs": changes}
        self.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
        self.create(f"{self.group}-after-change-{len(self.ids)}", 1)

    def records(self) -> list[str]:
        """Return the records of the group, or an empty list if their number differs in each run."""
        return group_records(self, KINDS, _sort) if self.has_records else []


def _joining(topology: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "rebalance_timeout_ms": 60_000,
        "topology": topology,
        "process_id": "process",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "client_tags": [],
    }


def tasks(**partitions: list[int]) -> list[dict[str, Any]]:
    """Return tasks as values of a request; `s0=[1]` is partition 1 of the subtopology "0"."""
    return [
        {"subtopology_id": name.removeprefix("s"), "partitions": indexes}
        for name, indexes in partitions.items()
    ]


def sort_members(group: Any) -> None:
    """Sort the members of a described group, and their tasks."""
    group.members.sort(key=lambda each: each.member_id)
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            _sort_tasks(assignment)


def _sort_tasks(holder: Any) -> None:
    for name in [each.name for each in holder.__fields__]:
        if "_tasks" not in name:
            continue
        for each in getattr(holder, name):
            epochs = getattr(each, "assignment_epochs", None)
            if epochs:
                both = sorted(zip(each.partitions, epochs, strict=True))
                each.partitions = [index for index, _ in both]
                each.assignment_epochs = [epoch for _, epoch in both]
            else:
                each.partitions.sort()
        getattr(holder, name).sort(key=lambda each: each.subtopology_id)


def _sort(value: Any) -> None:
    if isinstance(value, StreamsGroupMetadataValue):
        (value.last_assignment_configs or []).sort(key=lambda each: each.key)
    if hasattr(value, "active_tasks"):
        _sort_tasks(value)
