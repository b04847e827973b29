"""Tiered topics for tests: settings of brokers, numbered records, and what is stored where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from conformance.raw_client import RawClient
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
# Special timestamps of ListOffsets, and a version that knows all of them.
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5
_LIST_OFFSETS_VERSION = 10
_LATEST = -1
RECORD_BYTES = 1_000
# About ten records.
SEGMENT_BYTES = "10000"
_RECORDS_PER_BATCH = "3"


def tier_settings(tier: Path, replicas: int = 1) -> dict[str, str]:
    """Return broker keys for a tier in a directory, with short intervals."""
    metadata = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "barnabas.remote.storage": f"file://{tier}",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "100",
        "remote.fetch.max.wait.ms": "5000",
        f"{metadata}.num.partitions": "3",
        f"{metadata}.replication.factor": str(replicas),
        f"{metadata}.min.isr": str(min(replicas, 2)),
    }


def make_tiered_topic(
    bootstrap: str, name: str, replicas: int = 1, partitions: int = 1, **config: str
) -> None:
    """Create a tiered topic with small segments; its partitions have leaders at the return."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    given = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": SEGMENT_BYTES,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    topic = NewTopic(name, partitions, replicas, config=given)
    admin.create_topics([topic], request_timeout=SECONDS)[name].result(SECONDS)

    def has_leaders() -> bool:
        found = admin.list_topics(name, timeout=SECONDS).topics[name].partitions
        return len(found) == partitions and all(each.leader >= 0 for each in found.values())

    eventually(has_leaders, f"{name} has no leaders")


def alter(bootstrap: str, topic: str, **config: str) -> None:
    """Set configs of a topic."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def value_of(number: int) -> bytes:
    """Return the value of a record; it has its number and fills the record."""
    return b"%d:" % number + b"." * RECORD_BYTES


def produce(bootstrap: str, topic: str, numbers: range, **settings: object) -> None:
    """Write numbered records to partition 0, acknowledged by all in-sync replicas."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": _RECORDS_PER_BATCH,
            "message.timeout.ms": 120_000,
            **settings,
        }
    )
    failed: list[KafkaError] = []
    for number in numbers:
        producer.produce(
            topic,
            value_of(number),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(2 * SECONDS) == 0
    assert not failed, failed


def consume(
    bootstrap: str, topic: str, start: int, count: int, **settings: object
) -> list[tuple[int, int]]:
    """Return offset and number of the first `count` records from an offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers-of-tiers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[tuple[int, int]] = []

    def has_all() -> bool:
        for message in consumer.consume(500, 0.2):
            error = message.error()
            assert error is None, error
            value = message.value()
            assert value is not None
            found.append((message.offset(), int(value.partition(b":")[0])))
        return len(found) >= count

    try:
        eventually(has_all, lambda: f"{len(found)} of {count} records were read: {found[-3:]}")
    finally:
        consumer.close()
    return found[:count]


def list_offset(bootstrap: str, topic: str, timestamp: int) -> ListOffsetsPartitionResponse:
    """Return the answer of ListOffsets for partition 0, from the broker at the address."""
    client = RawClient(bootstrap.partition(",")[0])
    try:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
            timeout_ms=30_000,
        )
        (found,) = client.ask(request, _LIST_OFFSETS_VERSION).topics
        return found.partitions[0]
    finally:
        client.close()


def offset_at(bootstrap: str, topic: str, timestamp: int) -> int:
    """Return the offset at a special timestamp. There must be no error."""
    found = list_offset(bootstrap, topic, timestamp)
    assert found.error_code == ErrorCode.NONE, ErrorCode.of(found.error_code)
    return found.offset


def end_of(bootstrap: str, topic: str) -> int:
    """Return the end of partition 0."""
    return offset_at(bootstrap, topic, _LATEST)


def stored_objects(tier: Path, topic: str) -> list[str]:
    """Return the names of a topic's files in the tier, sorted."""
    return sorted(
        path.name
        for each in tier.glob(f"*/{topic}-*")
        for path in each.rglob("*")
        if path.is_file()
    )


def stored_bases(tier: Path, topic: str) -> list[int]:
    """Return the base offsets of a topic's stored segments, sorted."""
    names = stored_objects(tier, topic)
    return sorted(int(name.partition("-")[0]) for name in names if name.endswith(".log"))


def local_bases(data_directory: Path, topic: str) -> list[int]:
    """Return the base offsets of the local segments of partition 0, sorted."""
    directory = data_directory / f"{topic}-0"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def await_all_copied(bootstrap: str, topic: str, data_directory: Path) -> int:
    """Wait until all closed segments of partition 0 are copied; return the last copied offset."""

    def is_copied() -> bool:
        active = local_bases(data_directory, topic)[-1]
        return offset_at(bootstrap, topic, LATEST_TIERED) == active - 1

    eventually(is_copied, "not all closed segments were copied")
    return offset_at(bootstrap, topic, LATEST_TIERED)
