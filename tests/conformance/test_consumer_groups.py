"""Rebalances, commits and callbacks of a consumer in a group.

The classic protocol runs against Barnabas and Apache Kafka, and that of KIP-848 against Apache
Kafka; `test_consumer_protocol` covers KIP-848 with Barnabas.
"""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pytest

import barnabas
from barnabas import RebalanceListener, TopicPartition
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import BrokerError, ClientError
from barnabas.testing.broker_process import BrokerProcess
from conformance.polling import poll_until, read
from jvm.kafka_process import KafkaProcess
from selection import nightly_unless
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
}


@dataclass
class Group:
    """A broker, and the protocol of its groups."""

    bootstrap: str
    protocol: str

    def consumer(self, group_id: str, **keys: object) -> barnabas.Consumer:
        config: dict[str, object] = {
            "group_id": group_id,
            "group_protocol": self.protocol,
            "auto_offset_reset": "earliest",
            **keys,
        }
        if self.protocol == "classic":
            config.setdefault("heartbeat_interval_ms", 200)
        return barnabas.Consumer(bootstrap_servers=self.bootstrap, **config)


Broker = BrokerProcess | KafkaProcess


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Broker]]:
    """Return a function that starts a broker of a kind on its first call."""
    started: dict[str, Broker] = {}

    def start(kind: str) -> Broker:
        if kind not in started:
            directory = tmp_path_factory.mktemp(kind)
            make = KafkaProcess if kind == "kafka" else BrokerProcess
            started[kind] = make(directory, SETTINGS)
            started[kind].start()
        return started[kind]

    try:
        yield start
    finally:
        for broker in started.values():
            broker.kill()


@pytest.fixture(
    params=nightly_unless(
        lambda kind: kind != "kafka-classic",
        ["barnabas-classic", "kafka-classic", "kafka-consumer"],
    )
)
def group(request: pytest.FixtureRequest, start_broker: Callable[[str], Broker]) -> Group:
    """A group protocol of a broker of each kind."""
    kind, protocol = request.param.split("-")
    return Group(start_broker(kind).bootstrap, protocol)


@pytest.fixture
def topic(group: Group) -> str:
    """A topic of four partitions with ten records each."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(group.bootstrap) as client:
        client.create_topic(name, partitions=4, replication_factor=1)
    write(group, name, 0, 10)
    return name


def write(group: Group, topic: str, start: int, stop: int) -> None:
    with barnabas.Client(group.bootstrap) as client, client.producer() as producer:
        for number in range(start, stop):
            for partition in range(4):
                producer.send(topic, b"%d-%d" % (partition, number), partition=partition)


def until(condition: Callable[[], object], *consumers: barnabas.Consumer) -> list[bytes]:
    """Poll in turn until the condition holds, and return the values of all records."""
    seen: list[bytes] = []
    poll_until(condition, *consumers, take=lambda record: seen.append(record.value))
    return seen


def everything(start: int, stop: int) -> list[bytes]:
    return sorted(b"%d-%d" % (p, number) for p in range(4) for number in range(start, stop))


class RebalanceRecorder(RebalanceListener):
    """Records rebalance callbacks; the first assignment may be empty."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.lines: list[str] = []

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        assert set(revoked) <= self.owned
        self.owned -= set(revoked)
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert not self.owned & set(assigned)
        self.owned |= set(assigned)
        self._note("assigned", assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.owned -= set(lost)
        self._note("lost", lost)

    def _note(self, line: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.lines.append(line)


def test_members_share_the_partitions_and_read_each_record_once(group: Group, topic: str) -> None:
    first_recorder, second_recorder = RebalanceRecorder(), RebalanceRecorder()
    with group.consumer("sharing-" + topic) as first:
        first.subscribe([topic], first_recorder)
        seen = read(40, first)
        assert len(first_recorder.owned) == 4
        with group.consumer("sharing-" + topic) as second:
            second.subscribe([topic], second_recorder)
            seen += until(
                lambda: len(first_recorder.owned) == 2 and len(second_recorder.owned) == 2,
                first,
                second,
            )
            assert first.assignment() == first_recorder.owned
            assert not first_recorder.owned & second_recorder.owned
            write(group, topic, 10, 20)
            # The end of this test checks for duplicates.
            seen += read(80 - len(seen), first, second)
        assert second_recorder.owned == set()
        assert second_recorder.lines[-1] == "revoked"
        seen += until(lambda: len(first_recorder.owned) == 4, first)
        assert sorted(seen) == sorted(everything(0, 20))
    assert first_recorder.lines[-1] == "revoked"


def test_read_records_are_committed_on_close(group: Group, topic: str) -> None:
    with group.consumer("closing-" + topic, max_poll_records=15) as consumer:
        consumer.subscribe([topic])
        seen = read(15, consumer)
        assert len(seen) < 30
    with group.consumer("closing-" + topic) as consumer:
        consumer.subscribe([topic])
        seen += read(40 - len(seen), consumer)
        assert not consumer.poll(0.3)
    assert sorted(seen) == everything(0, 10)


def test_offsets_are_committed_periodically(group: Group, topic: str) -> None:
    partitions = [TopicPartition(topic, number) for number in range(4)]
    with group.consumer("auto-" + topic, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        read(40, consumer)

        def committed() -> bool:
            found = consumer.committed(partitions)
            return all(at is not None and at.offset == 10 for at in found.values())

        until(committed, consumer)


def test_the_next_member_starts_at_manually_committed_offsets(group: Group, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    outcomes: list[tuple[int, ClientError | None]] = []
    with group.consumer("own-" + topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        read(40, consumer)
        consumer.commit({first: 3})
        for offset in (4, 5, 6):
            consumer.commit_async(
                {second: offset},
                lambda offsets, error: outcomes.append((offsets[second].offset, error)),
            )
        until(lambda: len(outcomes) == 3, consumer)
        assert outcomes == [(4, None), (5, None), (6, None)]
        found = consumer.committed([first, second, (topic, 2)])
        assert [at and at.offset for at in found.values()] == [3, 6, None]
    with group.consumer("own-" + topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        assert len(read(31, consumer)) == 7 + 4 + 10 + 10
        consumer.commit({first: barnabas.CommittedOffset(7, metadata="why")})
        assert consumer.committed([first])[first] == barnabas.CommittedOffset(7, metadata="why")


def test_iteration_commits_record_by_record(group: Group, topic: str) -> None:
    with group.consumer("loop-" + topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        for count, record in enumerate(consumer, 1):
            consumer.commit()
            at = consumer.committed([(record.topic, record.partition)])
            assert [found and found.offset for found in at.values()] == [record.offset + 1]
            if count == 13:
                break
    with group.consumer("loop-" + topic) as consumer:
        consumer.subscribe([topic])
        assert len(read(27, consumer)) == 27


def test_a_member_stays_alive_between_polls(group: Group, topic: str) -> None:
    keys = {"session_timeout_ms": 1_000} if group.protocol == "classic" else {}
    with group.consumer("away-" + topic, enable_auto_commit=False, **keys) as consumer:
        consumer.subscribe([topic])
        away = threading.Event()

        def stays_a_member() -> bool:
            until(lambda: len(consumer.assignment()) == 4, consumer)
            before = consumer.group_metadata()
            # Only the background thread sends heartbeats in this time.
            away.wait(2.5)
            consumer.poll(0.3)
            try:
                consumer.commit()
            except CommitFailedError:
                return False
            return consumer.group_metadata() == before

        # On a busy machine the background thread may also pause for longer than the session.
        eventually(stays_a_member)


def test_a_member_that_polls_too_seldom_leaves_the_group_and_gets_an_error(
    group: Group, topic: str
) -> None:
    recorder = RebalanceRecorder()
    with group.consumer(
        "late-" + topic, max_poll_interval_ms=1_000, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic], recorder)
        read(40, consumer)
        eventually(lambda: consumer.group_metadata().generation_id < 0, "it is still a member")
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            consumer.commit()
        seen: set[bytes] = set()

        def has_read_all_again() -> bool:
            seen.update(read(1, consumer))
            return seen == set(everything(0, 10))

        # On a slow machine, polls may be late again.
        eventually(has_read_all_again, lambda: seen)
        assert "lost" in recorder.lines


def test_a_pattern_finds_topics_created_later(group: Group) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(group.bootstrap) as client:
        client.create_topic(f"{prefix}-a", partitions=1, replication_factor=1)
        with group.consumer(prefix, metadata_max_age_ms=300) as consumer:
            consumer.subscribe(re.compile(f"{prefix}-.*"))
            until(lambda: consumer.subscription() == {f"{prefix}-a"}, consumer)
            until(lambda: len(consumer.assignment()) == 1, consumer)
            client.create_topic(f"{prefix}-b", partitions=1, replication_factor=1)
            client.create_topic(f"no-{prefix}-c", partitions=1, replication_factor=1)
            until(lambda: len(consumer.assignment()) == 2, consumer)
            assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}


def test_a_listener_may_seek_and_its_exception_is_raised_by_poll(group: Group, topic: str) -> None:
    class Seeking(RebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            for tp in assigned:
                consumer.seek(tp, 8)

    class Raising(RebalanceListener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            raise RuntimeError("not today")

    with group.consumer("seeking-" + topic) as consumer:
        consumer.subscribe([topic], Seeking())
        assert sorted(read(8, consumer)) == everything(8, 10)
    with group.consumer("raising-" + topic) as consumer:
        consumer.subscribe([topic], Raising())
        with pytest.raises(RuntimeError, match="not today"):
            read(1, consumer)


def test_an_invalid_topic_is_reported_and_a_missing_one_is_awaited(
    group: Group,
) -> None:
    name = f"later-{uuid.uuid4().hex[:8]}"
    with group.consumer(name) as consumer:
        consumer.subscribe(["no/topic"])
        with pytest.raises(BrokerError, match="no/topic"):
            read(1, consumer)
        consumer.subscribe([name])
        assert not consumer.poll(0.2)
        with barnabas.Client(group.bootstrap) as client:
            client.create_topic(name, partitions=4, replication_factor=1)
        write(group, name, 0, 1)
        assert sorted(read(4, consumer)) == everything(0, 1)


def test_unsubscribing_leaves_and_other_topics_may_follow(group: Group, topic: str) -> None:
    recorder = RebalanceRecorder()
    other = topic + "-other"
    with barnabas.Client(group.bootstrap) as client:
        client.create_topic(other, partitions=4, replication_factor=1)
    write(group, other, 90, 92)
    with group.consumer("moving-" + topic) as consumer:
        consumer.subscribe([topic], recorder)
        read(40, consumer)
        # As with Kafka's consumer, unsubscribing commits nothing by itself.
        consumer.commit()
        consumer.unsubscribe()
        assert recorder.lines == ["assigned", "revoked"]
        assert consumer.assignment() == set()
        consumer.subscribe([topic])
        write(group, topic, 10, 11)
        assert sorted(read(4, consumer)) == everything(10, 11)
        consumer.subscribe([other])
        assert sorted(read(8, consumer)) == everything(90, 92)
        assert {tp.topic for tp in consumer.assignment()} == {other}


def test_the_asyncio_consumer_awaits_its_listener(group: Group, topic: str) -> None:
    lines: list[str] = []

    async def main() -> list[bytes]:
        class Committing(RebalanceListener):
            async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
                # A call for no partitions may still run when the consumer is closed.
                if assigned:
                    found = await consumer.committed(assigned)
                    lines.append(f"assigned {len(found)}")

            async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
                await consumer.commit()
                if revoked:
                    lines.append(f"revoked {len(revoked)}")

        async with barnabas.aio.Consumer(
            bootstrap_servers=group.bootstrap,
            group_id="aio-" + topic,
            group_protocol=group.protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([topic], Committing())
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 25:
                    break
        return seen

    seen = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert lines == ["assigned 4", "revoked 4"]
    with group.consumer("aio-" + topic) as consumer:
        consumer.subscribe([topic])
        seen += read(15, consumer)
    assert sorted(seen) == everything(0, 10)
