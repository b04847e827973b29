"""MirrorMaker 2 from Apache Kafka 4.4 to Barnabas; source and target are compared.

The comparison covers topics with their configs and partitions, records, offsets of groups, and
heartbeats. MirrorMaker stores its state in topics of the target.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from group_offsets import commit_offsets, find_committed
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from jvm.topics import topic_configs
from waiting import eventually, eventually_equal

TOPIC = "flights"
MIRROR = f"source.{TOPIC}"
# The topic in which MirrorMaker stores its progress.
OFFSETS = "mm2-offsets.source.internal"
PARTITIONS = 3
COUNT = 120
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS = {
    "retention.ms": "123456789",
    "segment.bytes": "2000000",
    "max.message.bytes": "654321",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.9",
}
GROUP = "readers"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
}

# Timeouts for operations that hang.
TIMEOUT_S = 90.0
START_S = 180.0
BEGAN = int(time.time() * 1000) - 1_000_000

Records = dict[int, list[tuple[Any, ...]]]


@pytest.fixture
def source(reference_broker: KafkaProcess) -> str:
    """An Apache Kafka."""
    return reference_broker.bootstrap


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


def properties(source: str, target: str) -> dict[str, str]:
    keys = {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": TOPIC,
        "groups": GROUP,
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        # The offsets of all records are stored, so that those of groups are translated exactly.
        "offset.lag.max": "0",
        "target.offset.flush.interval.ms": "500",
        # The next mirror waits for the end of the session of a killed mirror.
        "target.session.timeout.ms": "4000",
        "target.heartbeat.interval.ms": "1000",
        "replication.factor": "1",
    }
    for topic in ("checkpoints", "heartbeats", "offset-syncs"):
        keys[f"{topic}.topic.replication.factor"] = "1"
    for topic in ("config", "offset", "status"):
        keys[f"{topic}.storage.replication.factor"] = "1"
    for what in ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets"):
        keys[f"{what}.interval.seconds"] = "1"
    for what in ("checkpoints", "heartbeats"):
        keys[f"emit.{what}.interval.seconds"] = "1"
    return keys


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIGS)])
    made[TOPIC].result(TIMEOUT_S)


def fill(bootstrap: str, first: int) -> None:
    """Produce records with every compression, null values, headers and times."""
    numbers = itertools.count(first)
    for compression in COMPRESSIONS:
        keys = {"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 5}
        # Transaction markers have offsets in the source, but not in the mirror.
        transactional = compression == "lz4"
        if transactional:
            keys["transactional.id"] = f"mirrored-{first}"
        producer = Producer(keys)
        if transactional:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
        for number in itertools.islice(numbers, COUNT // len(COMPRESSIONS)):
            producer.produce(
                TOPIC,
                None if number % 7 == 3 else f"value {number} " + "x" * 100,
                f"key {number}",
                partition=number % PARTITIONS,
                timestamp=BEGAN + number,
                headers=[("trace", f"{number}".encode()), ("empty", None)] if number % 2 else None,
            )
        if transactional:
            producer.commit_transaction(TIMEOUT_S)
        assert producer.flush(TIMEOUT_S) == 0


def reader(bootstrap: str, **more: object) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    return Consumer({**settings, **more})


def messages(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[int, list[Message]]:
    """Return all records by partition."""
    consumer = reader(bootstrap, **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: dict[int, list[Message]] = {each: [] for each in range(partitions)}
    left = set(found)
    while left:
        for each in consumer.consume(500, 0.2):
            if each.error() is not None:
                assert each.error().code() == KafkaError._PARTITION_EOF, each.error()
                left.discard(each.partition())
                continue
            found[each.partition()].append(each)
    consumer.close()
    return found


def read(bootstrap: str, topic: str) -> Records:
    """Return all records by partition, without their offsets."""
    return {
        partition: [(each.key(), each.value(), each.timestamp(), each.headers()) for each in some]
        for partition, some in messages(bootstrap, topic).items()
    }


def read_all(bootstrap: str, count: int) -> Records:
    """Wait until the source has that many visible records: markers follow the commit response."""

    def found() -> Records | None:
        records = read(bootstrap, TOPIC)
        return records if sum(map(len, records.values())) == count else None

    return eventually(found, f"{count} records cannot be read")


def commit(bootstrap: str, offsets: dict[int, int]) -> None:
    consumer = reader(bootstrap)
    commit_offsets(
        consumer, *(TopicPartition(TOPIC, each, offset) for each, offset in offsets.items())
    )
    consumer.close()


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = reader(bootstrap)
    places = find_committed(consumer, *(TopicPartition(topic, each) for each in range(PARTITIONS)))
    consumer.close()
    return {partition_offset.partition: partition_offset.offset for partition_offset in places}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = reader(bootstrap)
    found = {
        each: consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S)[1]
        for each in range(PARTITIONS)
    }
    consumer.close()
    return found


def mirrored_to(bootstrap: str) -> dict[int, int]:
    """Return the offsets from which MirrorMaker would continue, by partition of the source."""
    found = {}
    kept = messages(bootstrap, OFFSETS, topics(bootstrap)[OFFSETS])
    for each in itertools.chain(*kept.values()):
        connector, partition_offset = json.loads(each.key())
        if (connector, partition_offset.get("topic")) == ("MirrorSourceConnector", TOPIC):
            found[partition_offset["partition"]] = json.loads(each.value())["offset"] + 1
    return found


def topics(bootstrap: str) -> dict[str, int]:
    """Return all topics with the number of their partitions."""
    listed = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in listed.items()}


def is_filled(bootstrap: str, topic: str) -> bool:
    if topic not in topics(bootstrap):
        return False
    consumer = reader(bootstrap)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    consumer.close()
    return high > low


@pytest.mark.nightly
def test_configs_records_and_groups_of_a_kafka_are_mirrored(
    source: str, target: BrokerProcess, tmp_path: Path
) -> None:
    make_topic(source)
    fill(source, 0)
    file = tmp_path / "mirror.properties"
    lines = properties(source, target.bootstrap).items()
    file.write_text("".join(f"{key}={value}\n" for key, value in lines))
    command = java_command("kafka-connect", log_level="INFO")
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
    mirror = target.bootstrap

    with JavaApplication(command, tmp_path / "mirror.log") as process:
        eventually_equal(lambda: topics(mirror).get(MIRROR), PARTITIONS, START_S)
        sent = read_all(source, COUNT)
        eventually_equal(lambda: read(mirror, MIRROR), sent)
        # The end offsets differ because of the transaction markers.
        assert all(ends(source, TOPIC)[each] > ends(mirror, MIRROR)[each] for each in sent)
        commit(source, ends(source, TOPIC))
        eventually_equal(lambda: committed(mirror, MIRROR), ends(mirror, MIRROR))
        ours, theirs = topic_configs(mirror, MIRROR), topic_configs(source, TOPIC)
        assert {key: ours[key] for key in CONFIGS} == CONFIGS
        assert {key for key, value in theirs.items() if ours.get(key, value) != value} == set()
        # MirrorMaker's topics for configs, offsets and status.
        for topic in ("mm2-configs", "mm2-offsets", "mm2-status"):
            policy = topic_configs(mirror, f"{topic}.source.internal")["cleanup.policy"]
            assert policy == "compact"
        for topic in ("heartbeats", "source.checkpoints.internal"):
            eventually(lambda name=topic: is_filled(mirror, name))
        last = {partition: some[-1].offset() for partition, some in messages(source, TOPIC).items()}
        eventually_equal(lambda: mirrored_to(mirror), {each: last[each] + 1 for each in last})
        assert process.terminate() in {0, 143}

    # After a restart of both, MirrorMaker continues with the new records.
    target.restart()
    fill(source, COUNT)
    with JavaApplication(command, tmp_path / "mirror.log"):
        sent = read_all(source, 2 * COUNT)
        eventually_equal(lambda: read(mirror, MIRROR), sent)


def values(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    """Return the committed values of a topic by partition."""
    return {
        partition: [each.value() for each in some]
        for partition, some in messages(bootstrap, topic).items()
    }


@pytest.mark.nightly
def test_a_kafka_is_mirrored_exactly_once_despite_kills(source: str, tmp_path: Path) -> None:
    topic, mirror = "once", "source.once"
    admin = AdminClient({"bootstrap.servers": source})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": source})
    numbers = itertools.count()

    def send(count: int) -> None:
        for number in itertools.islice(numbers, count):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def mirrored() -> int:
        if mirror not in topics(target.bootstrap):
            return 0
        return sum(map(len, values(target.bootstrap, mirror).values()))

    with broker_under_test(tmp_path / "target", SETTINGS) as target:
        keys = {
            **properties(source, target.bootstrap),
            "topics": topic,
            "target.exactly.once.source.support": "enabled",
            # The transactions of a killed mirror must not outlast the test.
            "target.producer.transaction.timeout.ms": "10000",
        }
        file = tmp_path / "mirror.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        command = java_command("kafka-connect", log_level="INFO")
        command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        send(300)
        with JavaApplication(command, tmp_path / "mirror.log"):
            eventually(lambda: mirrored() > 0, "no record is mirrored", START_S)
            send(300)
            # The mirror is killed while it copies.
        with JavaApplication(command, tmp_path / "mirror.log"):
            send(300)
            eventually(lambda: mirrored() >= 700, "the mirror does not continue", START_S)
            target.kill()
            target.start()
        # A task that lost its producer must be restarted, here with the whole mirror.
        with JavaApplication(command, tmp_path / "mirror.log"):
            send(300)
            expected = {
                each: [b"%d" % n for n in range(each, 1200, PARTITIONS)] for each in range(3)
            }
            eventually(lambda: mirrored() >= 1200, "the mirror is not complete", START_S)
            assert values(target.bootstrap, mirror) == expected
