"""Share groups (KIP-932): responses and records of the same requests on both brokers.

Topic ids, hashes and times differ and are normalized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from differential.internal_records import differing
from differential.scene import batch, exchange, produce
from differential.share_members import ShareMembers
from selection import nightly_unless

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Pair

    Story = Callable[[ShareMembers, str, str], None]

pytestmark = pytest.mark.conformance


def one_member(members: ShareMembers, a: str, _b: str) -> None:
    members.heartbeat("m1", 0, a, rack_id="r1")
    members.await_initialized(**{a: 3})
    members.describe()
    members.heartbeat("m1", 2)
    members.heartbeat("m1", 3)
    members.heartbeat("m1", 2)
    members.heartbeat("m1", 3, a)
    members.heartbeat("m1", 1)
    members.heartbeat("m1", 9)
    members.heartbeat("m2", 3)
    members.heartbeat("m1", 0, a, rack_id="r2")
    members.describe()
    members.listed("share")
    members.listed("SHARE", "classic")
    members.listed("consumer")
    members.heartbeat("m1", -1)
    members.describe()
    members.listed()
    members.heartbeat("m1", -1)
    members.heartbeat("m1", 3)


def several_members(members: ShareMembers, a: str, b: str) -> None:
    # One partition: the choice between several partitions depends on the random id of the topic.
    members.heartbeat("m1", 0, b)
    members.await_initialized(**{b: 1})
    members.heartbeat("m1", 2)
    members.heartbeat("m2", 0, b)
    members.heartbeat("m1", 3)
    members.describe()
    members.heartbeat("m3", 0, a, b)
    members.await_initialized(**{a: 3, b: 1})
    members.heartbeat("m2", 4)
    members.heartbeat("m3", 5)
    members.heartbeat("m1", 4)
    members.describe()
    members.heartbeat("m3", 6, b)
    members.heartbeat("m1", 6)
    members.heartbeat("m2", 6)
    members.heartbeat("m2", -1)
    members.heartbeat("m1", 7, b)
    members.heartbeat("m3", 7)
    members.describe()
    for name in ("m4", "m5", "m6", "m7"):
        members.heartbeat(name, 0, b)
    members.describe()
    for name in ("m1", "m3", "m4", "m5", "m6", "m7"):
        members.heartbeat(name, -1)


def missing_topics(members: ShareMembers, a: str, _b: str) -> None:
    members.heartbeat("m1", 0, "no-such-topic")
    members.heartbeat("m1", 2)
    members.offsets()
    members.heartbeat("m1", 2, "no-such-topic", a)
    members.await_initialized(**{a: 3})
    members.heartbeat("m1", 3)
    members.heartbeat("m1", -1)


def more_partitions(members: ShareMembers, a: str, b: str) -> None:
    members.heartbeat("m1", 0, b)
    members.await_initialized(**{b: 1})
    members.heartbeat("m1", 2)
    more = [{"name": b, "count": 3, "assignments": None}]
    members.do(ApiKey.CREATE_PARTITIONS, 3, topics=more, timeout_ms=30_000)
    members.await_topics({b: 3})
    members.heartbeat("m1", 3)
    members.await_initialized(**{b: 3})
    members.offsets()
    members.heartbeat("m1", 4)
    members.heartbeat("m1", 5, a, b)
    members.await_initialized(**{a: 3, b: 3})
    members.heartbeat("m1", -1)


def refusals(members: ShareMembers, a: str, _b: str) -> None:
    members.heartbeat("", 0, a)
    members.heartbeat(" ", 0, a)
    members.heartbeat("m" * 37, 0, a)
    members.heartbeat("m" * 36, -2, a)
    members.heartbeat("m", 0)
    members.heartbeat("m", 0, a, rack_id="")
    members.heartbeat("m", 0, a, rack_id=" ")
    members.heartbeat("m", -2, a)
    members.heartbeat("m", -3)
    members.heartbeat("m", 3)
    members.heartbeat("m", -1)
    members.do(ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id="", member_id="m", member_epoch=0)
    members.describe()
    members.describe("", "", members.group)
    members.offsets()
    members.offsets({a: [0, 9], "no-such-topic": [0, 1, -1]})
    members.offsets({a: [0, -1]})
    members.offsets({})
    members.delete_offsets(a)
    members.alter({})
    members.alter({"no-such-topic": {0: 1}})
    members.delete_group()
    for api in (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS):
        members.do(api, 0, group_id="", topics=[])
        members.do(api, 0, group_id=members.group, topics=[])
    members.do(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[])
    empty = [{"group_id": "", "topics": None}, {"group_id": "", "topics": []}]
    members.do(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=empty)


def offsets_and_lags(members: ShareMembers, a: str, b: str) -> None:
    for partition in range(2):
        exchange(members.side, ApiKey.PRODUCE, 9, produce(a, batch(*[b"x"] * 5), partition))
    members.alter({a: {0: 2, 1: 9, 3: 1}, "no-such-topic": {0: 1}, b: {}})
    members.await_initialized(**{a: 2})
    members.describe()
    members.listed()
    members.offsets()
    members.offsets(version=0)
    members.offsets({a: [1, 0, 2, 7], b: [0]})
    # Lags beyond 64 bits.
    members.alter({a: {0: -(1 << 63), 1: (1 << 63) - 1}})
    members.offsets()
    members.alter({a: {0: 4, 1: 9, 2: 0}})
    members.await_initialized(**{a: 3})
    members.offsets()
    members.heartbeat("m1", 0, a, b)
    members.await_initialized(**{a: 3, b: 1})
    members.offsets()
    members.alter({a: {0: 0}})
    members.delete_offsets(a)
    members.delete_group()
    members.heartbeat("m1", -1)
    members.alter({a: {0: 1}})
    members.offsets()


def deleted_offsets(members: ShareMembers, a: str, b: str) -> None:
    members.heartbeat("m1", 0, a, b)
    members.await_initialized(**{a: 3, b: 1})
    members.heartbeat("m1", -1)
    members.delete_offsets(a, "no-such-topic")
    members.await_initialized(**{b: 1})
    members.offsets()
    members.delete_offsets(a)
    members.heartbeat("m1", 0, a)
    members.await_initialized(**{a: 3, b: 1})
    members.heartbeat("m1", -1)
    members.delete_offsets(a, b)
    members.offsets({a: [0, 1, 2], b: [0]})


def deleted_group(members: ShareMembers, a: str, _b: str) -> None:
    members.heartbeat("m1", 0, a)
    members.await_initialized(**{a: 3})
    members.delete_group()
    members.do(ApiKey.DESCRIBE_GROUPS, 6, groups=[members.group])
    members.heartbeat("m1", -1)
    members.delete_group()
    members.describe()
    members.offsets({a: [0]})
    members.delete_group()
    members.heartbeat("m1", 0, a)
    members.await_initialized(**{a: 3})
    members.heartbeat("m1", -1)


def other_requests_to_a_share_group(members: ShareMembers, a: str, _b: str) -> None:
    members.heartbeat("m1", 0, a)
    members.await_initialized(**{a: 3})
    group, names = {"group_id": members.group}, {"subscribed_topic_names": [a]}
    joining = {"member_id": "c1", "member_epoch": 0, "rebalance_timeout_ms": 1_000}
    heartbeat = ApiKey.CONSUMER_GROUP_HEARTBEAT
    members.do(heartbeat, 1, **group, **joining, **names, topic_partitions=[])
    members.do(heartbeat, 1, **group, member_id="c1", member_epoch=4)
    members.do(heartbeat, 1, **group, member_id="c1", member_epoch=-1)
    members.do(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[members.group])
    classic = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
    protocols = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    members.do(ApiKey.JOIN_GROUP, 3, **group, **classic, **protocols)
    members.do(ApiKey.HEARTBEAT, 4, **group, generation_id=1, member_id="c1")
    members.do(ApiKey.LEAVE_GROUP, 5, **group, members=[{"member_id": "m1"}])
    synced = {"generation_id": 1, "member_id": "c1", "assignments": []}
    members.do(ApiKey.SYNC_GROUP, 3, **group, **synced)
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topics = [{"name": a, "partitions": partitions}]
    commit = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    members.do(ApiKey.OFFSET_COMMIT, 8, **group, **commit)
    members.do(ApiKey.OFFSET_COMMIT, 9, **group, **commit)
    fetched = [{"group_id": members.group, "topics": None}]
    members.do(ApiKey.OFFSET_FETCH, 9, groups=fetched, require_stable=False)
    deleted = [{"name": a, "partitions": [{"partition_index": 0}]}]
    members.do(ApiKey.OFFSET_DELETE, 0, **group, topics=deleted)
    members.heartbeat("m1", -1)


def share_requests_to_other_groups(members: ShareMembers, a: str, _b: str) -> None:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topics = [{"name": a, "partitions": partitions}]
    commit = {"generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    members.do(ApiKey.OFFSET_COMMIT, 8, group_id=members.group, **commit)
    members.heartbeat("m1", 0, a)
    members.heartbeat("m1", 4)
    members.heartbeat("m1", -1)
    members.describe()
    members.offsets()
    members.alter({a: {0: 4}})
    members.delete_offsets(a)


STORIES = (
    one_member,
    several_members,
    missing_topics,
    more_partitions,
    refusals,
    offsets_and_lags,
    deleted_offsets,
    deleted_group,
    other_requests_to_a_share_group,
    share_requests_to_other_groups,
)


# Kafka requests the state of a partition for 30 s before it responds in these.
SLOW = {refusals, offsets_and_lags}


@pytest.mark.parametrize(
    "story",
    nightly_unless(lambda story: story not in SLOW, STORIES),
    ids=lambda story: story.__name__,
)
def test_responses_and_records_are_those_of_kafka(pair: Pair, story: Story) -> None:
    found = []
    for side in pair.sides():
        side.forget()
        first, second = (f"shared-{story.__name__}-{each}" for each in "ab")
        members = ShareMembers(side, f"share-{story.__name__}", {first: 3, second: 1})
        story(members, first, second)
        found.append([*members.lines, *members.records()])
        members.clean()
    assert found[0]
    assert found[0] == found[1], differing(*found)
