"""Members of classic groups on real brokers, alone and together with members of librdkafka."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.stepper import LoopStepper
from conformance.conftest import SECONDS, await_leaders
from conformance.group_members import ConfluentMember, group_broker
from selection import nightly_unless
from unit.client.group.group_host import GroupHost
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance

PARTITIONS = 6
WAIT_MS = PATIENCE_S * 1000
# Session timeouts of members that must stay on a slow machine, and of members that must expire
# soon.
SESSION_MS = 120_000
BRIEF_SESSION_MS = 3_000
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
_names = itertools.count(1)


class Group:
    """Members of one group on one loop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"classic-{os.getpid()}-{next(_names)}"
        self.topic = self.name
        self.stepper = LoopStepper()
        self.members: list[GroupHost] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(SECONDS)
        await_leaders(admin, self.topic, PARTITIONS)

    def join(self, **keys: object) -> GroupHost:
        defaults: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
        }
        config = ClientConfig.parse(defaults | keys)
        host = GroupHost(Cluster(self.stepper.runtime, config), [self.topic])
        self.members.append(host)
        host.poll_on()
        return host

    def until(self, predicate: Callable[[], bool]) -> None:
        assert self.stepper.run_until(predicate, WAIT_MS), [
            (each.told, each.raised, each.membership.generation) for each in self.members
        ]

    def run(self, duration_ms: float) -> None:
        self.stepper.run_until(lambda: False, duration_ms)

    def is_shared(self) -> bool:
        """Return whether every partition has one owner, and every member has partitions."""
        polling = [each for each in self.members if each.polls]
        owned = sorted(number for each in polling for number in each.owned)
        stable = all(each.membership.is_stable for each in polling)
        return stable and owned == list(range(PARTITIONS)) and all(each.owned for each in polling)

    def kill(self, host: GroupHost) -> None:
        """Stop a member without leaving the group, as after kill -9."""
        host.polls = False
        host.membership.stop()
        host.cluster.close()
        self.members.remove(host)

    def commit(
        self, host: GroupHost, generation: GroupGeneration, offset: int
    ) -> ClientError | None:
        """Return the result of a commit of partition 0."""
        ended: list[ClientError | None] = []
        offsets = GroupOffsets(host.cluster, host.coordinators)
        values = {TopicPartition(self.topic, 0): CommittedOffset(offset, -1, "mine")}
        offsets.commit(generation, values, {}, 60_000, lambda _done, error: ended.append(error))
        self.until(lambda: bool(ended))
        return ended[0]

    def committed(self, host: GroupHost) -> CommittedOffset:
        ended: list[Any] = []
        offsets = GroupOffsets(host.cluster, host.coordinators)
        tp = TopicPartition(self.topic, 0)
        offsets.committed(
            host.membership.generation, [tp], 60_000, lambda found, _error: ended.append(found)
        )
        self.until(lambda: bool(ended))
        found: CommittedOffset = ended[0][tp]
        return found

    def close(self) -> None:
        for each in list(self.members):
            self.kill(each)
        self.stepper.close()


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with group_broker(request.param, tmp_path_factory.mktemp(request.param)) as address:
        yield address


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    made = Group(bootstrap)
    yield made
    made.close()


@pytest.mark.parametrize(
    "strategy", nightly_unless({"range", "cooperative-sticky"}.__contains__, STRATEGIES)
)
def test_partitions_are_rebalanced_when_members_join_die_and_leave(
    group: Group, strategy: str
) -> None:
    keys = {"partition_assignment_strategy": strategy}
    first = group.join(**keys)
    group.until(group.is_shared)
    second = group.join(session_timeout_ms=BRIEF_SESSION_MS, **keys)
    group.until(group.is_shared)
    third = group.join(**keys)
    group.until(group.is_shared)
    group.kill(second)
    group.until(group.is_shared)
    first.leave()
    group.until(lambda: "left" in first.names)
    group.until(group.is_shared)
    assert third.owned == list(range(PARTITIONS))
    assert not third.raised
    assert "lose" not in third.names


def test_cooperative_members_revoke_only_moved_partitions(group: Group) -> None:
    keys = {"partition_assignment_strategy": "cooperative-sticky"}
    first = group.join(**keys)
    group.until(group.is_shared)
    group.join(**keys)
    group.until(group.is_shared)
    revoked = [numbers for name, numbers in first.told if name == "revoke"]
    assert len(revoked) == 1
    assert len(revoked[0]) == PARTITIONS // 2


def test_a_returning_static_member_gets_its_partitions_without_a_rebalance(
    group: Group,
) -> None:
    static = group.join(group_instance_id="i")
    other = group.join()
    group.until(group.is_shared)
    before = static.owned
    generation = other.membership.generation.generation_id
    group.kill(static)
    returned = group.join(group_instance_id="i")
    group.until(group.is_shared)
    assert returned.owned == before
    assert other.membership.generation.generation_id == generation


def test_a_static_member_is_fenced_by_another_with_its_instance_id(group: Group) -> None:
    first = group.join(group_instance_id="i")
    group.until(group.is_shared)
    generation = first.membership.generation
    first.polls = False
    group.join(group_instance_id="i")
    group.until(group.is_shared)
    error = group.commit(group.members[1], generation, 1)
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.FENCED_INSTANCE_ID
    first.polls = True
    group.until(lambda: bool(first.raised))
    assert getattr(first.raised[0], "error_code", None) is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_without_polls_leaves_the_group_and_rejoins(group: Group) -> None:
    late = group.join(max_poll_interval_ms=1_000)
    other = group.join()
    group.until(group.is_shared)
    late.polls = False
    group.until(lambda: other.owned == list(range(PARTITIONS)))
    late.polls = True
    group.until(group.is_shared)
    assert "lose" in late.names


def test_commits_of_the_current_generation_are_accepted(group: Group) -> None:
    first = group.join()
    group.until(group.is_shared)
    old = first.membership.generation
    assert group.commit(first, old, 7) is None
    assert group.committed(first) == CommittedOffset(7, -1, "mine")
    group.join()
    group.until(group.is_shared)
    error = group.commit(first, old, 3)
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.ILLEGAL_GENERATION
    unknown = old._replace(member_id="unknown")
    error = group.commit(first, unknown, 3)
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    # A client that is not a member of a group with members.
    error = group.commit(first, GroupGeneration(group.name), 3)
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.committed(first).offset == 7


def test_a_commit_during_a_revocation_is_accepted(group: Group) -> None:
    first = group.join()
    group.until(group.is_shared)
    first.holds = {"commit"}
    group.join()
    group.until(lambda: "commit" in first.held)
    assert group.commit(first, first.membership.generation, 5) is None
    first.holds.clear()
    first.held["commit"]()
    group.until(group.is_shared)
    assert group.committed(group.members[1]).offset == 5


@pytest.mark.parametrize(
    "strategy",
    nightly_unless("cooperative-sticky".__eq__, ["range", "roundrobin", "cooperative-sticky"]),
)
@pytest.mark.parametrize("leader", ["barnabas", "librdkafka"])
def test_a_group_may_have_members_of_other_clients_with_any_leader(
    group: Group, strategy: str, leader: str
) -> None:
    def confluent() -> ConfluentMember:
        options = {"partition.assignment.strategy": strategy}
        return ConfluentMember(group.bootstrap, group.name, group.topic, **options)

    def is_shared() -> bool:
        group.run(50)
        ours = {number for each in group.members for number in each.owned}
        owned = [*ours, *theirs.owned]
        return bool(ours) and bool(theirs.owned) and sorted(owned) == list(range(PARTITIONS))

    keys = {"partition_assignment_strategy": strategy}
    if leader == "barnabas":
        group.join(**keys)
        group.until(group.is_shared)
        theirs = confluent()
    else:
        theirs = confluent()
        eventually(lambda: len(theirs.owned) == PARTITIONS, "librdkafka's member alone")
        group.join(**keys)
    try:
        eventually(is_shared, "partitions shared")
        producer = Producer({"bootstrap.servers": group.bootstrap})
        for number in range(PARTITIONS):
            producer.produce(group.topic, str(number).encode(), partition=number)
        producer.flush(10)
        expected = {str(number).encode() for number in theirs.owned}
        eventually(lambda: group.run(20) or set(theirs.values) == expected, "its records alone")
    finally:
        theirs.stop_polling()
        theirs.consumer.close()
    group.until(group.is_shared)
    assert not group.members[0].raised
