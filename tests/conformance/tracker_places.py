"""Fixtures for tests of issue reports: each kind of broker with each of its group protocols."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import barnabas
from barnabas.client.consumer.assignment.subscription import RebalanceListener
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.facade import Client
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
)
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess
from conformance import polling
from conformance.raw_client import RawClient
from jvm.kafka_process import QUICK_FENCING, KafkaProcess
from selection import nightly_unless
from storms.campaign import SETTINGS

# Limit for calls that must not wait. It is much shorter than sessions and timeouts of members.
PROMPT_S = 20.0
# Long sessions: no test waits for their end, and a busy machine must not end one.
SESSIONS = {"group.consumer.session.timeout.ms": "45000"}
numbers = itertools.count(1)


class Place(NamedTuple):
    """A broker, and a group protocol."""

    broker: BrokerProcess | KafkaProcess
    protocol: str

    def consumer(self, group: str | None = None, **keys: Any) -> barnabas.Consumer:
        return barnabas.Consumer(**self.keys(group, **keys))

    def keys(self, group: str | None = None, **keys: Any) -> dict[str, Any]:
        defaults: dict[str, Any] = {
            "bootstrap_servers": self.broker.bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "reconnect_backoff_max_ms": 200,
        }
        if group is not None:
            defaults |= {"group_id": group, "group_protocol": self.protocol}
            if self.protocol == "classic":
                defaults |= {"heartbeat_interval_ms": 200}
        return defaults | keys

    def write(self, topic: str, *values: str, partition: int = 0) -> None:
        with barnabas.Client(self.broker.bootstrap) as client, client.producer() as producer:
            for value in values:
                producer.send(topic, value.encode(), partition=partition)

    def make_topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        name = name or f"topic-{os.getpid()}-{next(numbers)}"
        with barnabas.Client(self.broker.bootstrap) as client:
            client.create_topic(name, partitions=partitions, replication_factor=1, configs=config)
        return name

    def make_written_topic(self, partitions: int, records: int) -> str:
        """Create a topic whose values are "PARTITION-OFFSET"."""
        topic = self.make_topic(partitions)
        for partition in range(partitions):
            self.write(topic, *(f"{partition}-{n}" for n in range(records)), partition=partition)
        return topic


class RecordingListener(RebalanceListener):
    """Records its calls, and runs actions of the test in them."""

    def __init__(self, **actions: Callable[[Collection[TopicPartition]], object]) -> None:
        self.seen: list[tuple[str, list[TopicPartition]]] = []
        self._actions = actions

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, name: str, partitions: Collection[TopicPartition]) -> None:
        self.seen.append((name, sorted(partitions)))
        action = self._actions.get(name)
        if action is not None:
            action(partitions)


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], BrokerProcess | KafkaProcess]]:
    """Brokers that start on first use; a test may kill and restart them."""
    made: dict[str, BrokerProcess | KafkaProcess] = {}

    def get(kind: str) -> BrokerProcess | KafkaProcess:
        if kind not in made:
            directory: Path = tmp_path_factory.mktemp(kind)
            if kind == "kafka":
                settings = SETTINGS | SESSIONS | QUICK_FENCING
                made[kind] = KafkaProcess(directory, settings)
            else:
                made[kind] = BrokerProcess(directory, SETTINGS)
            made[kind].start()
        return made[kind]

    yield get
    for process in made.values():
        process.kill()


@pytest.fixture(params=["barnabas", "kafka"])
def place(request: pytest.FixtureRequest, brokers: Callable[[str], Any]) -> Place:
    """Each kind of broker."""
    return Place(brokers(request.param), "classic")


@pytest.fixture(
    params=nightly_unless(
        "barnabas classic".__eq__,
        ["barnabas classic", "kafka classic", "kafka consumer"],
    )
)
def group_place(request: pytest.FixtureRequest, brokers: Callable[[str], Any]) -> Place:
    """Each kind of broker, with each of its group protocols."""
    kind, protocol = request.param.split()
    return Place(brokers(kind), protocol)


@pytest.fixture
def group() -> str:
    return f"group-{os.getpid()}-{next(numbers)}"


def read(count: int, *consumers: barnabas.Consumer) -> list[str]:
    """Poll in turn until `count` records have arrived, and return their values."""
    values: list[str] = []
    poll_until(lambda: len(values) >= count, *consumers, values=values)
    return values


def read_until(last: str, *consumers: barnabas.Consumer) -> list[str]:
    """Poll in turn until this value has arrived; return all values, which may repeat."""
    values: list[str] = []
    poll_until(lambda: last in values, *consumers, values=values)
    return values


def poll_until(
    condition: Callable[[], object], *consumers: barnabas.Consumer, values: list[str] | None = None
) -> None:
    """Poll in turn until the condition holds; add the values of all records to `values`."""
    kept = [] if values is None else values
    polling.poll_until(
        condition, *consumers, take=lambda record: kept.append(record.value.decode())
    )


def commits(consumer: barnabas.Consumer, values: list[str]) -> bool:
    """Commit, and return whether there were offsets and the group accepted them."""
    try:
        consumer.commit()
    except BrokerError as error:
        is_late = isinstance(error, CommitFailedError)
        if is_late or error.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        raise
    return bool(values)


def read_and_commit(consumer: barnabas.Consumer) -> list[str]:
    """Poll until records have arrived and their commit succeeds; return their values."""
    values: list[str] = []
    poll_until(lambda: commits(consumer, values), consumer, values=values)
    return values


def poll_until_raised(consumer: barnabas.Consumer, raised: list[BaseException]) -> None:
    try:
        while True:
            consumer.poll(5)
    except ClientError as error:
        raised.append(error)


def offset_of(client: Client, group: str, tp: TopicPartition) -> int:
    found = client.committed(group).get(tp)
    return found.offset if found is not None else -1


def remove_silently(place: Place, metadata: GroupGeneration) -> None:
    """Remove a member from its group without a notice to the member."""
    raw = RawClient(place.broker.bootstrap)
    request: Message
    if place.protocol == "classic":
        identity = MemberIdentity(member_id=metadata.member_id)
        request = LeaveGroupRequest(group_id=metadata.group_id, members=[identity])
    else:
        request = ConsumerGroupHeartbeatRequest(
            group_id=metadata.group_id, member_id=metadata.member_id, member_epoch=-1
        )
    response: Any = raw.ask(request, 4 if place.protocol == "classic" else 1)
    assert response.error_code == 0, response
    raw.close()
