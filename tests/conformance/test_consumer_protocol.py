"""Members of consumer groups (KIP-848), with Barnabas and Apache Kafka as brokers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as ConfluentPartition

import barnabas
from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import BrokerError
from barnabas.client.facade import Client
from barnabas.client.group.consumer_protocol_membership import ConsumerProtocolMembership
from barnabas.client.topic_partition import TopicPartition
from barnabas.runtime.stepper import LoopStepper
from barnabas.testing.broker_process import BrokerProcess
from group_offsets import committed_offsets
from jvm.kafka_process import KafkaProcess
from unit.client.group.scripted_host import ScriptedHost
from waiting import PATIENCE_S

pytestmark = pytest.mark.conformance

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # One test waits for the end of a session. In other tests, it must not end on a busy machine.
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
}
STEP_MS = 10.0
_names = itertools.count(1)


class Member:
    """A member with separate connections, on the event loop of its group."""

    def __init__(self, stepper: LoopStepper, bootstrap: str, group: str, **keys: object) -> None:
        self.config = ClientConfig.parse(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                **keys,
            }
        )
        self.host = ScriptedHost()
        self.cluster = Cluster(stepper.runtime, self.config)
        self.membership = ConsumerProtocolMembership(
            self.cluster, Coordinators(self.cluster), self.config, self.host
        )
        self.polls = True
        self.has_left = False

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.host.owned)

    def leave(self) -> None:
        self.polls = False
        self.membership.leave("closed", self._on_left)

    def kill(self) -> None:
        """Stop without leaving the group, as after kill -9."""
        self.polls = False
        self.membership.stop()
        self.cluster.close()

    def _on_left(self) -> None:
        self.has_left = True


class Group:
    """Members of one group, and their event loop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"group-{os.getpid()}-{next(_names)}"
        self.stepper = LoopStepper()
        self.members: list[Member] = []

    def join(self, *topics: str, regex: str | None = None, **keys: object) -> Member:
        member = Member(self.stepper, self.bootstrap, self.name, **keys)
        member.host.subscribed_topics = list(topics)
        member.host.subscribed_regex = regex
        self.members.append(member)
        return member

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll all members until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, [member.host.done for member in self.members]
            self.run(STEP_MS)

    def until_raised(self, code: str) -> None:
        """Poll all members until a poll raises an error with this code."""
        with pytest.raises(BrokerError, match=code):
            self.until(lambda: False)

    def run(self, duration_ms: float) -> None:
        end = time.monotonic() + duration_ms / 1000
        while time.monotonic() < end:
            for member in self.members:
                if member.polls:
                    member.membership.poll()
            self.stepper.run_until(lambda: False, STEP_MS)

    def shared(self, topic: str, count: int) -> Callable[[], bool]:
        """Return a condition: each partition has one owner, and each member has partitions."""

        def is_shared() -> bool:
            polling = [member for member in self.members if member.polls]
            owned = sorted(tp for member in polling for tp in member.owned)
            return (
                owned == [TopicPartition(topic, number) for number in range(count)]
                and all(member.owned for member in polling)
                and all(member.membership.is_reconciled for member in polling)
            )

        return is_shared

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.stepper.close()


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    made = KafkaProcess if request.param == "kafka" else BrokerProcess
    process = made(directory, SETTINGS)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def client(broker: BrokerProcess | KafkaProcess) -> Iterator[Client]:
    with barnabas.Client(broker.bootstrap) as made:
        yield made


@pytest.fixture
def group(broker: BrokerProcess | KafkaProcess) -> Iterator[Group]:
    made = Group(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def topic(client: Client) -> str:
    name = f"topic-{os.getpid()}-{next(_names)}"
    client.create_topic(name, partitions=4, replication_factor=1)
    return name


def test_members_share_a_topic_while_they_join_leave_and_die(
    group: Group, client: Client, topic: str
) -> None:
    first = group.join(topic)
    group.until(group.shared(topic, 4))
    second, third = group.join(topic), group.join(topic)
    group.until(group.shared(topic, 4))
    described = client.admin.describe_groups([group.name])[group.name]
    ids = {member.membership.generation.member_id for member in group.members}
    assert {member.member_id for member in described.members} == ids
    second.leave()
    group.until(lambda: second.has_left)
    assert second.owned == set()
    group.until(group.shared(topic, 4))
    third.kill()
    group.until(group.shared(topic, 4))
    assert len(first.owned) == 4
    assert first.host.done[0] == "commit"
    assert not any(step.startswith("lose") for step in first.host.done)


def test_no_partition_has_two_owners_while_members_join_and_leave(group: Group, topic: str) -> None:
    owners: dict[TopicPartition, Member] = {}

    def is_shared() -> bool:
        for tp in {tp for member in group.members for tp in member.owned}:
            holding = [member for member in group.members if tp in member.owned]
            assert len(holding) == 1, f"{tp} has {len(holding)} owners"
            owners[tp] = holding[0]
        return group.shared(topic, 4)()

    def left(member: Member) -> bool:
        return is_shared() and member.has_left

    group.join(topic)
    group.until(is_shared)
    for _ in range(3):
        group.join(topic)
        group.until(is_shared)
        leaving = group.members[0]
        leaving.leave()
        group.until(partial(left, leaving))
        group.members.remove(leaving)
    assert len(owners) == 4


def test_a_pattern_that_the_broker_matches_finds_topics_not_named_by_the_client(
    group: Group, client: Client, topic: str
) -> None:
    later = f"{topic}-later"
    client.create_topic(later, partitions=1, replication_factor=1)
    member = group.join(regex=f"{topic}.*")
    every = {TopicPartition(topic, number) for number in range(4)} | {TopicPartition(later, 0)}
    group.until(lambda: member.owned == every)
    member.host.subscribed_regex = f"{topic}-l.*"
    member.membership.on_subscription_changed()
    group.until(lambda: member.owned == {TopicPartition(later, 0)})
    member.host.subscribed_topics, member.host.subscribed_regex = [topic], None
    member.membership.on_subscription_changed()
    group.until(group.shared(topic, 4))


def test_new_partitions_and_new_topics_of_the_subscription_are_assigned(
    group: Group, client: Client, topic: str
) -> None:
    member = group.join(topic, f"{topic}-new")
    group.until(group.shared(topic, 4))
    client.admin.create_partitions({topic: 5})
    group.until(group.shared(topic, 5))
    client.create_topic(f"{topic}-new", partitions=1, replication_factor=1)
    group.until(lambda: TopicPartition(f"{topic}-new", 0) in member.owned)
    assert len(member.owned) == 6


def test_a_static_member_keeps_its_partitions_and_its_instance_id(group: Group, topic: str) -> None:
    one = group.join(topic, group_instance_id="one")
    two = group.join(topic, group_instance_id="two")
    group.until(group.shared(topic, 4))
    before, done = one.owned, len(two.host.done)
    impostor = group.join(topic, group_instance_id="one")
    group.until_raised("UNRELEASED_INSTANCE_ID")
    impostor.kill()
    one.leave()
    group.until(lambda: one.has_left)
    again = group.join(topic, group_instance_id="one")
    group.until(lambda: bool(again.owned) and again.membership.is_reconciled)
    assert again.owned == before
    assert len(two.owned) == 2
    assert not any(step.startswith("revoke") for step in two.host.done[done:])


def test_a_member_without_timely_polls_loses_its_partitions_and_rejoins_later(
    group: Group, topic: str
) -> None:
    late = group.join(topic, max_poll_interval_ms=1500)
    other = group.join(topic)
    group.until(group.shared(topic, 4))
    late.polls = False
    group.until(lambda: len(other.owned) == 4)
    late.polls = True
    group.until(group.shared(topic, 4))
    assert any(step.startswith("lose") for step in late.host.done)


@pytest.mark.parametrize(
    ("keys", "regex", "code"),
    [
        ({"group_remote_assignor": "unknown-assignor"}, None, "UNSUPPORTED_ASSIGNOR"),
        ({}, "(", "INVALID_REGULAR_EXPRESSION"),
    ],
)
def test_a_refusal_of_the_broker_is_raised(
    group: Group, topic: str, keys: dict[str, object], regex: str | None, code: str
) -> None:
    member = group.join(*([topic] if regex is None else []), regex=regex, **keys)
    group.until_raised(code)
    member.host.subscribed_topics, member.host.subscribed_regex = [topic], None
    member.membership.on_subscription_changed()
    if not keys:
        group.until(group.shared(topic, 4))


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_broker_uses_the_assignor_that_members_request(
    group: Group, topic: str, assignor: str
) -> None:
    for _ in range(3):
        group.join(topic, group_remote_assignor=assignor)
    group.until(group.shared(topic, 4))
    assert sorted(len(member.owned) for member in group.members) == [1, 1, 2]


def test_members_of_librdkafka_share_a_topic_and_commit(
    broker: BrokerProcess | KafkaProcess, topic: str
) -> None:
    keys = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"librdkafka-{topic}",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(4):
        producer.produce(topic, b"one", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    consumers = [Consumer(keys) for _ in range(2)]
    seen: set[int] = set()
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 4 or sorted(len(each.assignment()) for each in consumers) != [2, 2]:
            assert time.monotonic() < deadline, (seen, [each.assignment() for each in consumers])
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    seen.add(message.partition())
        for consumer in consumers:
            offsets = [
                ConfluentPartition(topic, each.partition, 1) for each in consumer.assignment()
            ]
            assert all(each.error is None for each in consumer.commit(None, offsets, False))
    finally:
        for consumer in consumers:
            consumer.close()
    reader = Consumer(keys)
    assert committed_offsets(reader, topic, range(4)) == dict.fromkeys(range(4), 1)


def test_members_survive_a_coordinator_restart(
    group: Group, broker: BrokerProcess | KafkaProcess, topic: str
) -> None:
    """Must run last: it restarts the broker."""
    for _ in range(2):
        group.join(topic)
    group.until(group.shared(topic, 4))
    before = [member.owned for member in group.members]
    broker.kill()
    group.run(500)
    broker.start()
    assert [member.owned for member in group.members] == before
    epochs = [member.membership.generation.generation_id for member in group.members]
    assert min(epochs) > 0
    group.join(topic)
    group.until(group.shared(topic, 4))
