"""Consumer groups with real clients.

Members join, are killed and return; they may be static or cooperative, and the broker may be
killed. Administrators describe, alter and delete groups. Invariants: every partition has one owner,
every record is read, and committed offsets never decrease.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from conformance.conftest import await_leaders
from conformance.group_members import (
    BRIEF_SESSION_MS,
    SETTINGS,
    ConfluentMember,
    Kcats,
    OffsetWatch,
    assignments,
    await_members,
    committed,
    described,
    group_bootstrap,
    kcats,
)
from group_offsets import commit_offsets, find_committed
from waiting import eventually, eventually_equal

__all__ = ["group_bootstrap", "kcats"]

PARTITIONS = 12
SECONDS = 60
# Options of kcat members that are killed: they expire soon, and never commit unprinted records.
KILLED = {"session_timeout_ms": str(BRIEF_SESSION_MS), "auto_commit_interval_ms": "3600000"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def group_admin(group_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_bootstrap})


@pytest.fixture
def group() -> str:
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def numbers(group_bootstrap: str, group_admin: AdminClient) -> str:
    """A topic with twelve partitions and a hundred numbers in each."""
    return make_numbers(group_bootstrap, group_admin)


def make_numbers(bootstrap: str, admin: AdminClient) -> str:
    name = f"numbers-{os.getpid()}-{next(_numbers)}"
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(SECONDS)
    await_leaders(admin, name, PARTITIONS)
    produce(bootstrap, name, range(100 * PARTITIONS))
    return name


def produce(bootstrap: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(SECONDS) == 0


@pytest.fixture
def make_member(group_bootstrap: str) -> Iterator[Callable[..., ConfluentMember]]:
    made: list[ConfluentMember] = []

    def make(group: str, topic: str, **options: object) -> ConfluentMember:
        made.append(ConfluentMember(group_bootstrap, group, topic, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


def test_every_record_is_read_while_members_die_leave_and_return(
    group_bootstrap: str, group_admin: AdminClient, numbers: str, group: str, kcats: Kcats
) -> None:
    first = kcats.start(group, numbers, **KILLED)
    second, _ = (kcats.start(group, numbers) for _ in range(2))
    await_members(group_admin, group, 3, PARTITIONS)
    watch = OffsetWatch(group_admin, group)
    first.kill()
    await_members(group_admin, group, 2, PARTITIONS)
    produce(group_bootstrap, numbers, range(1200, 2400))
    # At SIGTERM, kcat drops a record that it has not printed, so it leaves when all are read.
    eventually(lambda: set(kcats.all_lines()) == set(map(str, range(2400))), "two thirds")
    second.leave()
    await_members(group_admin, group, 1, PARTITIONS)
    killed = [kcats.start(group, numbers, **KILLED) for _ in range(4)]
    for _ in range(5):
        kcats.start(group, numbers)
    await_members(group_admin, group, 10, PARTITIONS)
    produce(group_bootstrap, numbers, range(2400, 3600))
    for member in killed:
        member.kill()
    kcats.start(group, numbers)
    await_members(group_admin, group, 7, PARTITIONS)
    eventually(lambda: set(kcats.all_lines()) == set(map(str, range(3600))), "all records")
    ends = dict.fromkeys(range(PARTITIONS), 300)
    eventually(lambda: committed(group_admin, group) == ends, "all commits")
    watch.stop()


def test_leaving_members_are_replaced_immediately_and_dead_ones_after_their_session(
    group_admin: AdminClient, numbers: str, group: str, kcats: Kcats
) -> None:
    # Sessions of these members do not expire before this test ends.
    lasting = {"session_timeout_ms": "600000", "max_poll_interval_ms": "600000"}
    leaving = kcats.start(group, numbers, **lasting)
    brief = kcats.start(group, numbers, client_id="brief", **KILLED)
    long = kcats.start(group, numbers, client_id="long", **lasting)
    kcats.start(group, numbers, client_id="staying")
    await_members(group_admin, group, 4, PARTITIONS)
    leaving.leave()
    await_members(group_admin, group, 3, PARTITIONS)
    brief.kill()
    long.kill()

    def members() -> set[str]:
        return {each.client_id for each in described(group_admin, group).members}

    eventually_equal(members, {"long", "staying"})


def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    group_admin: AdminClient, numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    staying = make_member(group, numbers, group_instance_id="a")
    leaving = make_member(group, numbers, group_instance_id="b")
    before = await_members(group_admin, group, 2, PARTITIONS)
    eventually(lambda: len(staying.owned) == len(leaving.owned) == 6, "both have their share")
    owned, events = set(leaving.owned), len(staying.events)
    leaving.close()
    returned = make_member(group, numbers, group_instance_id="b")
    eventually(lambda: returned.owned == owned, "the same partitions")
    assert len(staying.events) == events, "the other member had a rebalance"
    after = assignments(group_admin, group)
    assert after is not None
    assert set(before) != set(after), "the member ids are equal"
    assert sorted(before.values(), key=min) == sorted(after.values(), key=min)


def test_a_second_member_with_the_same_instance_id_fences_the_first(
    numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    first = make_member(group, numbers, group_instance_id="a")
    eventually(lambda: first.owned, "the first has joined")
    second = make_member(group, numbers, group_instance_id="a")
    eventually(lambda: "_FATAL" in first.errors or "FENCED_INSTANCE_ID" in first.errors, "fenced")
    eventually(lambda: len(second.owned) == PARTITIONS, "the second has all")


def test_cooperative_members_revoke_only_moved_partitions(
    group_admin: AdminClient, numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    members = [make_member(group, numbers, **options)]
    eventually(lambda: len(members[0].owned) == PARTITIONS, "the first has all")
    for count in (2, 3):
        members.append(make_member(group, numbers, **options))
        share = PARTITIONS // count
        eventually(
            lambda share=share: all(len(each.owned) == share for each in members), "fair shares"
        )
        await_members(group_admin, group, count, PARTITIONS)
    first = members[0]
    revoked = [number for kind, lost in first.events if kind == "revoked" for number in lost]
    assert len(revoked) == len(set(revoked)) == 8
    assert first.owned == set(range(PARTITIONS)) - set(revoked)
    members.pop().close()
    eventually(lambda: all(len(each.owned) == 6 for each in members), "shares of the one that left")


def test_eager_and_cooperative_members_do_not_mix(
    numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    first = make_member(group, numbers, partition_assignment_strategy="cooperative-sticky")
    eventually(lambda: first.owned, "the first has joined")
    other = make_member(group, numbers, partition_assignment_strategy="range")
    eventually(lambda: "INCONSISTENT_GROUP_PROTOCOL" in other.errors, "refused")
    assert len(first.owned) == PARTITIONS


@pytest.mark.slow
def test_members_survive_a_stop_and_a_kill_of_their_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = make_numbers(broker.bootstrap, admin)
        # Sessions outlive a restart: members must keep their member ids.
        members = Kcats(broker.bootstrap, tmp_path)
        try:
            for _ in range(3):
                members.start("g", topic)
            before = await_members(admin, "g", 3, PARTITIONS)
            watch = OffsetWatch(admin, "g")
            for number, end in enumerate((broker.stop, broker.kill, broker.kill), 1):
                end()
                broker.start()
                produce(broker.bootstrap, topic, range(1200 * number, 1200 * (number + 1)))
            expected = set(map(str, range(4800)))
            eventually(lambda: set(members.all_lines()) == expected, "all records")
            ends = dict.fromkeys(range(PARTITIONS), 400)
            eventually(lambda: committed(admin, "g") == ends, "all commits")
            watch.stop()
            assert await_members(admin, "g", 3, PARTITIONS) == before
        finally:
            members.close()


@pytest.mark.nightly
def test_acknowledged_commits_survive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = make_numbers(broker.bootstrap, admin)
        options = {"group.id": "g", "enable.auto.commit": False, "reconnect.backoff.max.ms": 200}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **options})
        consumer.assign([TopicPartition(topic, 0)])
        for offset in range(1, 31):
            position = TopicPartition(topic, 0, offset, metadata=f"at {offset}")
            commit_offsets(consumer, position)
            if offset % 10 == 0:
                broker.kill()
                broker.start()
                (found,) = find_committed(consumer, TopicPartition(topic, 0))
                assert (found.offset, found.metadata) == (offset, f"at {offset}")
        consumer.close()


# Administrators


def test_groups_are_listed_and_described(
    group_admin: AdminClient, numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    make_member(group, numbers, client_id="somebody", group_instance_id="i")
    await_members(group_admin, group, 1, PARTITIONS)
    found = described(group_admin, group)
    assert (found.partition_assignor, found.is_simple_consumer_group) == ("range", False)
    (member,) = found.members
    assert (member.client_id, member.host) == ("somebody", "/127.0.0.1")
    assert member.group_instance_id == "i"
    for state, is_there in ((ConsumerGroupState.STABLE, True), (ConsumerGroupState.EMPTY, False)):
        listed = group_admin.list_consumer_groups(states={state}).result(SECONDS).valid
        assert (group in {each.group_id for each in listed}) == is_there


def test_a_group_is_deleted_after_its_members_have_left(
    group_admin: AdminClient, numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    member = make_member(group, numbers)
    eventually(lambda: len(set(member.values)) == 100 * PARTITIONS, "all records")
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        group_admin.delete_consumer_groups([group])[group].result(SECONDS)
    member.close()
    group_admin.delete_consumer_groups([group])[group].result(SECONDS)
    with pytest.raises(Exception, match="GROUP_ID_NOT_FOUND"):
        group_admin.delete_consumer_groups([group])[group].result(SECONDS)

    def is_forgotten() -> bool:
        found = committed(group_admin, group)
        return found is not None and set(found.values()) <= {-1001}

    eventually(is_forgotten)


def test_offsets_are_set_by_administrators_once_the_group_is_empty(
    group_admin: AdminClient, numbers: str, group: str, make_member: Callable[..., ConfluentMember]
) -> None:
    member = make_member(group, numbers)
    eventually(lambda: len(set(member.values)) == 100 * PARTITIONS, "all records")
    alteration = ConsumerGroupTopicPartitions(group, [TopicPartition(numbers, 3, 7)])
    refused = group_admin.alter_consumer_group_offsets([alteration])[group].result(SECONDS)
    assert refused.topic_partitions[0].error.name() == "UNKNOWN_MEMBER_ID"
    member.close()
    group_admin.alter_consumer_group_offsets([alteration])[group].result(SECONDS)
    again = make_member(group, numbers)
    after = {str(number).encode() for number in range(7 * PARTITIONS + 3, 100 * PARTITIONS, 12)}
    eventually_equal(lambda: set(again.values), after)


def test_offsets_are_deleted_with_their_topic(
    group_admin: AdminClient, numbers: str, group: str, group_bootstrap: str
) -> None:
    consumer = Consumer({"bootstrap.servers": group_bootstrap, "group.id": group})
    commit_offsets(consumer, TopicPartition(numbers, 0, 5))
    consumer.close()
    eventually_equal(lambda: committed(group_admin, group), {0: 5})
    group_admin.delete_topics([numbers])[numbers].result(SECONDS)
    eventually(lambda: committed(group_admin, group) == {}, "no offsets")
