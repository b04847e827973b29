"""The kinds of groups: the records that their replay knows, and those that remove a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.consumer import consumer_records
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_records import CONSUMER_REPLAYS
from barnabas.coordinator.group.group_map import GroupMap
from barnabas.coordinator.group.share import share_records
from barnabas.coordinator.group.share.share_group import ShareGroup
from barnabas.coordinator.group.share.share_records import share_replays
from barnabas.coordinator.group.streams import streams_records
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.group.streams.streams_records import STREAMS_REPLAYS

if TYPE_CHECKING:
    from barnabas.coordinator.group.group_base import Group, GroupMemory
    from barnabas.coordinator.group.group_map import Replays
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.runtime.clock import Clock


def new_group_map(clock: Clock, memory: GroupMemory) -> GroupMap:
    """Return a map without groups that knows the records of all kinds."""
    replays: Replays = {
        ConsumerGroup: CONSUMER_REPLAYS,
        ShareGroup: share_replays(clock),
        StreamsGroup: STREAMS_REPLAYS,
    }
    return GroupMap(clock, memory, replays)


def tombstones_of(group: Group) -> list[CoordinatorRecord]:
    """Return the records that remove a group without members, in Kafka's order."""
    match group:
        case ClassicGroup():
            return [group_tombstone(group.group_id)]
        case ConsumerGroup():
            return consumer_records.group_tombstones(group)
        case ShareGroup():
            return share_records.group_tombstones(group)
        case StreamsGroup():
            return streams_records.group_tombstones(group)
        case _:
            raise TypeError(f"group {group.group_id} is a {group.kind} group")
