"""Consumer groups (KIP-848): responses and records of the same heartbeats on both brokers.

Kafka's hashes of topics are compared with those that Barnabas computes from Kafka's topic ids.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.group.topics import hash_group, hash_topic
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    read_prefix,
)
from barnabas.protocol.records.consumer_groups import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from differential.broker_pair import started_pair
from differential.consumer_members import HEARTBEAT, Members, records
from differential.conversion_stories import CONVERSIONS, Mixed
from differential.group_members import PARTITIONS
from differential.internal_records import OFFSETS_TOPIC, differing, stored
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.scene import Pair

pytestmark = pytest.mark.conformance

# Longer than the interval between two assignments.
INTERVAL_S = 1.1


def one_member(members: Members, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.describe()
    members.heartbeat("m1", 2)
    members.heartbeat("m1", 2, owned={topic: [0, 1, 2, 3]})
    members.heartbeat("m1", 1)
    members.heartbeat("m1", 9)
    members.heartbeat("m2", 2)
    members.listed("consumer")
    members.heartbeat("m1", -1)
    members.describe()
    members.listed("consumer")
    members.heartbeat("m1", -1)


def partitions_move(members: Members, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], rack_id="r", server_assignor="range")
    time.sleep(INTERVAL_S)
    members.heartbeat("m2", 0, subscribed_topic_names=[topic])
    members.heartbeat("m1", 2)
    members.heartbeat("m2", 3)
    members.describe()
    members.heartbeat("m1", 2, owned={topic: [0, 1]})
    members.heartbeat("m1", 2, owned={topic: [0, 1]})
    members.heartbeat("m2", 3)
    members.describe()
    time.sleep(INTERVAL_S)
    members.heartbeat("m1", 3, subscribed_topic_names=[], owned={topic: [0, 1]})
    members.heartbeat("m2", 3, owned={topic: [2, 3]})
    members.heartbeat("m1", 3, owned={})
    members.heartbeat("m1", 4)
    members.heartbeat("m2", 4)
    members.describe()


def static_members(members: Members, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], instance_id="i")
    members.heartbeat("m2", 0, subscribed_topic_names=[topic], instance_id="i")
    members.heartbeat("m1", -2, instance_id="i")
    members.describe()
    members.heartbeat("m1", 2, instance_id="i")
    members.heartbeat("m2", 0, subscribed_topic_names=[topic], instance_id="i")
    members.heartbeat("m1", 2, instance_id="i")
    members.heartbeat("m3", 2, instance_id="unknown")
    members.heartbeat("m2", -2)
    leave = {"group_id": members.group, "members": [{"member_id": "", "group_instance_id": "i"}]}
    members.lines.append(str(exchange(members.side, ApiKey.LEAVE_GROUP, 5, leave)))
    members.describe()


def refusals(members: Members, topic: str) -> None:
    names = [topic]
    members.heartbeat("", 0, subscribed_topic_names=names)
    members.heartbeat("m", 0, subscribed_topic_names=names, rebalance_timeout_ms=-1)
    members.heartbeat("m", 0, subscribed_topic_names=names, owned={topic: [0]})
    members.heartbeat("m", 0)
    members.heartbeat("m", 0, subscribed_topic_names=names, instance_id="")
    members.heartbeat("m", 0, subscribed_topic_names=names, rack_id="")
    members.heartbeat("m", 0, subscribed_topic_names=names, server_assignor="no-such-assignor")
    members.heartbeat("m", -2)
    members.heartbeat("m", -3)
    members.heartbeat("m", 3)
    members.heartbeat("m", -1)
    members.describe()


def expressions(members: Members, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_regex=f"{topic}.*")

    def is_assigned() -> bool:
        response = exchange(
            members.side,
            HEARTBEAT,
            1,
            {"group_id": members.group, "member_id": "m1", "member_epoch": 1},
        )
        return response.member_epoch == 2

    eventually(is_assigned)
    # The next assignment is due only after the end of the story.
    members.change_interval(15_000)
    members.describe()
    members.heartbeat("m1", 2, subscribed_topic_regex="", subscribed_topic_names=[topic])
    members.describe()
    members.heartbeat("m1", -1)


def deleted_group(members: Members, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    delete = {"groups_names": [members.group]}
    members.lines.append(str(exchange(members.side, ApiKey.DELETE_GROUPS, 2, delete)))
    described = exchange(members.side, ApiKey.DESCRIBE_GROUPS, 6, {"groups": [members.group]})
    members.lines.append(str(described))
    members.heartbeat("m1", -1)
    members.lines.append(str(exchange(members.side, ApiKey.DELETE_GROUPS, 2, delete)))
    members.describe()


STORIES = (
    one_member,
    partitions_move,
    static_members,
    refusals,
    expressions,
    deleted_group,
    *CONVERSIONS,
)


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Start separate brokers, because consumer groups leave topics and groups behind."""
    with started_pair(tmp_path_factory.mktemp("groups")) as made:
        yield made


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_responses_and_records_are_those_of_kafka(pair: Pair, story: Callable[..., None]) -> None:
    found = []
    for side in pair.sides():
        side.forget()
        topic = f"records-{story.__name__}"
        kind = Mixed if story in CONVERSIONS else Members
        members = kind(side, f"group-{story.__name__}", {topic: 4})
        story(members, topic)
        found.append([*members.lines, *records(members)])
    assert found[0]
    assert found[0] == found[1], differing(*found)


def test_kafka_s_hash_of_topics_is_ours(pair: Pair) -> None:
    side = pair.kafka
    side.forget()
    topics = {"hash-of-one": 1, "hash-of-some": 3, "hash-of-many": 70}
    members = Members(side, "group-of-hashes", topics)
    members.heartbeat("m1", 0, subscribed_topic_names=[*topics, "hash-of-none"])
    stored_hashes = [
        decode_coordinator_value(ConsumerGroupMetadataValue, each.value).metadata_hash
        for each in stored(side, OFFSETS_TOPIC, PARTITIONS)
        if read_prefix(each.key) == ConsumerGroupMetadataKey.__record_type__
        and decode_coordinator_key(ConsumerGroupMetadataKey, each.key).group_id == members.group
        and each.value is not None
    ]
    ours = hash_group(
        {name: hash_topic(name, members.ids[name], [[]] * count) for name, count in topics.items()}
    )
    assert stored_hashes == [ours]
