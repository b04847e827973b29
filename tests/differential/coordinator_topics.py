"""Waits until the coordinator of a group has a topic.

Kafka publishes a new topic to its coordinators after Metadata shows it, and after it has leaders.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_runtime import partition_for
from barnabas.protocol.api_table import ApiKey
from differential.broker_pair import SETTINGS
from differential.scene import exchange

if TYPE_CHECKING:
    from differential.scene import Scene
    from differential.side import Side

_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])


def await_topic(scene: Scene, group: str, topic: str) -> None:
    """Wait until both coordinators of a group assign a topic to another group."""
    shard = partition_for(group, _PARTITIONS)
    names = (f"{group}-other-{number}" for number in itertools.count())
    other = next(each for each in names if partition_for(each, _PARTITIONS) == shard)
    joining = {
        "group_id": other,
        "member_id": "a-member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }

    def is_assigned(side: Side) -> bool:
        response = exchange(side, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
        return response.assignment is not None and bool(response.assignment.topic_partitions)

    scene.until(is_assigned)
