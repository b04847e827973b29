"""Stories of the offsets of streams groups, and of requests for groups of other types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.scene import exchange
from differential.streams_members import stateless

if TYPE_CHECKING:
    from differential.streams_members import StreamsMembers


def _commit(members: StreamsMembers, topic: str, member: str, epoch: int, version: int) -> None:
    partitions = [{"partition_index": 0, "committed_offset": 4, "committed_metadata": "note"}]
    topics = [{"name": topic, "topic_id": members.side.topic_id(topic), "partitions": partitions}]
    sender = {"generation_id_or_member_epoch": epoch, "member_id": member}
    members.do(ApiKey.OFFSET_COMMIT, version, group_id=members.group, **sender, topics=topics)


def _fetch(members: StreamsMembers, member: str | None, epoch: int, **group: Any) -> None:
    one = {"group_id": members.group, "member_id": member, "member_epoch": epoch, "topics": None}
    members.do(ApiKey.OFFSET_FETCH, 9, groups=[{**one, **group}], require_stable=False)


def offsets(members: StreamsMembers, a: str, _b: str) -> None:
    _fetch(members, None, -1)
    members.join("m1", stateless(a))
    for version in (8, 9, 10):
        _commit(members, a, "m1", 2, version)
        _commit(members, a, "m1", 1, version)
        _commit(members, a, "m1", 3, version)
        _commit(members, a, "m2", 2, version)
        _commit(members, a, "", -1, version)
    _fetch(members, "m1", 2)
    _fetch(members, "m1", 1)
    _fetch(members, "m2", 2)
    _fetch(members, None, -1)
    _fetch(members, None, -1, topics=[{"name": a, "partition_indexes": [0, 1]}])
    deleted = [{"name": a, "partitions": [{"partition_index": 0}]}]
    members.do(ApiKey.OFFSET_DELETE, 0, group_id=members.group, topics=deleted)
    members.heartbeat("m1", -1)
    _commit(members, a, "m1", 2, 9)
    _commit(members, a, "", -1, 9)
    members.do(ApiKey.OFFSET_DELETE, 0, group_id=members.group, topics=deleted)
    members.do(ApiKey.DELETE_GROUPS, 2, groups_names=[members.group])
    _fetch(members, None, -1)


def transactional_offsets(members: StreamsMembers, a: str, _b: str) -> None:
    transactional_id = f"{members.group}-id"
    started = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    made = exchange(members.side, ApiKey.INIT_PRODUCER_ID, 4, started)
    producer = {
        "transactional_id": transactional_id,
        "producer_id": made.producer_id,
        "producer_epoch": made.producer_epoch,
    }
    members.join("m1", stateless(a))
    members.do(ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer, group_id=members.group)
    partitions = [{"partition_index": 0, "committed_offset": 4, "committed_metadata": "note"}]
    topics = [{"name": a, "partitions": partitions}]
    for member, epoch in (("m1", 2), ("m1", 1), ("m1", 3), ("m2", 2), ("", -1)):
        sender = {"member_id": member, "generation_id_or_member_epoch": epoch}
        group = {"group_id": members.group, "topics": topics}
        members.do(ApiKey.TXN_OFFSET_COMMIT, 3, **producer, **sender, **group)
    stable = {"groups": [{"group_id": members.group, "topics": None}], "require_stable": True}
    members.do(ApiKey.OFFSET_FETCH, 9, **stable)
    members.do(ApiKey.END_TXN, 3, **producer, committed=True)
    members.heartbeat("m1", -1)


def requests_of_other_groups(members: StreamsMembers, a: str, _b: str) -> None:
    members.join("m1", stateless(a))
    group, names = {"group_id": members.group}, {"subscribed_topic_names": [a]}
    joining = {"member_id": "c1", "member_epoch": 0, "rebalance_timeout_ms": 1_000}
    heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
    members.do(heartbeat, 1, **group, **joining, **names, topic_partitions=[])
    members.do(heartbeat, 1, **group, member_id="c1", member_epoch=4)
    members.do(heartbeat, 1, **group, member_id="c1", member_epoch=-1)
    members.do(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[members.group])
    share = {"member_id": "s1", "member_epoch": 0}
    members.do(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **group, **share, **names)
    members.do(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[members.group])
    classic = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
    protocols = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    members.do(ApiKey.JOIN_GROUP, 3, **group, **classic, **protocols)
    members.do(ApiKey.HEARTBEAT, 4, **group, generation_id=1, member_id="c1")
    members.do(ApiKey.LEAVE_GROUP, 5, **group, members=[{"member_id": "m1"}])
    synced = {"generation_id": 1, "member_id": "c1", "assignments": []}
    members.do(ApiKey.SYNC_GROUP, 3, **group, **synced)
    members.do(ApiKey.DESCRIBE_GROUPS, 6, groups=[members.group])
    members.heartbeat("m1", -1)
    # A group of another type replaces an empty streams group.
    members.do(heartbeat, 1, **group, **joining, **names, topic_partitions=[])
    members.do(heartbeat, 1, **group, member_id="c1", member_epoch=-1)
    members.listed()


def requests_to_other_groups(members: StreamsMembers, a: str, _b: str) -> None:
    _commit(members, a, "", -1, 8)
    members.heartbeat("m1", 4)
    members.heartbeat("m1", -1)
    members.describe()
    members.join("m1", stateless(a))
    members.describe()
    members.listed()
    members.heartbeat("m1", -1)
    shared = f"{members.group}-consumers"
    joining = {"group_id": shared, "member_id": "c1", "member_epoch": 0}
    names = {"subscribed_topic_names": [a], "rebalance_timeout_ms": 1_000, "topic_partitions": []}
    members.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **joining, **names)
    members.do(ApiKey.STREAMS_GROUP_DESCRIBE, 1, group_ids=[shared])
    sender = {"group_id": shared, "member_id": "m1"}
    members.do(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, **sender, member_epoch=3)
    members.do(ApiKey.STREAMS_GROUP_HEARTBEAT, 1, **sender, member_epoch=-1)
    leaving = {"group_id": shared, "member_id": "c1", "member_epoch": -1}
    members.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **leaving)


OFFSETS = (
    offsets,
    transactional_offsets,
    requests_of_other_groups,
    requests_to_other_groups,
)
