"""Compaction keeps the last value of each key, and does not change offsets.

The topics have small segments and a low limit for dirty data. A dynamic config lowers the backoff
of the cleaner.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from barnabas.testing.broker_process import BrokerProcess
from conformance.conftest import SECONDS, await_leaders
from group_offsets import commit_offsets, find_committed
from selection import nightly_unless
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from confluent_kafka import Message

BACKOFF = ("log.cleaner.backoff.ms", "200")
AT_ONCE = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def cleaning(bootstrap: str) -> Iterator[str]:
    """HOST:PORT of a broker whose cleaner runs often."""
    alter_backoff(bootstrap, AlterConfigOpType.SET)
    yield bootstrap
    alter_backoff(bootstrap, AlterConfigOpType.DELETE)


def alter_backoff(bootstrap: str, operation: AlterConfigOpType) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(*BACKOFF, incremental_operation=operation)
    (broker,) = admin.list_topics(timeout=SECONDS).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(SECONDS)


@pytest.fixture
def make(cleaning: str) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": cleaning})

    def make(name: str, **config: str) -> str:
        name = f"compacted-{name}-{os.getpid()}"
        settings = AT_ONCE | {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(SECONDS)
        await_leaders(admin, name, 1)
        return name

    return make


def produce(bootstrap: str, topic: str, pairs: list[tuple[str, str | None]], **config: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def contents(bootstrap: str, topic: str) -> list[Message]:
    """Return all records of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []

        def is_at_end() -> bool:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return True
            return False

        eventually(is_at_end, "the end was never reached")
        return found
    finally:
        consumer.close()


def await_contents(
    bootstrap: str, topic: str, accept: Callable[[list[Message]], bool]
) -> list[Message]:
    """Read until `accept` returns True; before each retry, a record rolls the active segment."""
    found: list[Message] = []

    def is_accepted() -> bool:
        if found:
            produce(bootstrap, topic, [("roll", "")])
        found[:] = contents(bootstrap, topic)
        return accept(found)

    eventually(is_accepted, lambda: [(each.offset(), each.key()) for each in found][:50])
    return found


def without_rolls(messages: list[Message]) -> list[tuple[int, str, str | None]]:
    return [
        (each.offset(), each.key().decode(), each.value() and each.value().decode())
        for each in messages
        if each.key() != b"roll"
    ]


@pytest.mark.parametrize(
    "compression",
    nightly_unless({"none", "zstd"}.__contains__, ["none", "gzip", "snappy", "lz4", "zstd"]),
)
def test_one_record_per_key_is_kept_at_its_offset(
    cleaning: str, make: Callable[..., str], compression: str
) -> None:
    topic = make(f"keys-{compression}")
    pairs = [(f"key-{number % 7}", f"value-{number}") for number in range(700)]
    produce(cleaning, topic, pairs, **{"compression.type": compression})
    found = await_contents(cleaning, topic, lambda found: len(without_rolls(found)) == 7)
    assert without_rolls(found) == [
        (number, f"key-{number % 7}", f"value-{number}") for number in range(693, 700)
    ]


def test_a_tombstone_removes_its_key_and_is_removed_later(
    cleaning: str, make: Callable[..., str]
) -> None:
    topic = make("tombstones")
    produce(cleaning, topic, [("a", "1"), ("b", "1"), ("a", None)])
    found = await_contents(cleaning, topic, lambda found: len(without_rolls(found)) == 1)
    assert without_rolls(found) == [(1, "b", "1")]


def test_an_idempotent_producer_continues_after_compaction(
    cleaning: str, make: Callable[..., str]
) -> None:
    topic = make("idempotent")
    producer = Producer({"bootstrap.servers": cleaning, "enable.idempotence": True})
    for number in range(20):
        producer.produce(topic, str(number), "k", partition=0)
        assert producer.flush(SECONDS) == 0
        time.sleep(0.02)
    found = await_contents(cleaning, topic, lambda found: len(without_rolls(found)) == 1)
    assert without_rolls(found)[0][2] == "19"
    producer.produce(topic, "20", "k", partition=0)
    assert producer.flush(SECONDS) == 0
    assert without_rolls(contents(cleaning, topic))[-1][1:] == ("k", "20")


def test_compact_and_delete_removes_old_segments(cleaning: str, make: Callable[..., str]) -> None:
    topic = make("both", cleanup_policy="compact,delete", retention_ms="1000")
    produce(cleaning, topic, [(f"key-{number}", "v") for number in range(10)])
    consumer = Consumer({"bootstrap.servers": cleaning, "group.id": "watermarks"})
    place = TopicPartition(topic, 0)
    try:
        eventually(lambda: consumer.get_watermark_offsets(place, SECONDS)[0] >= 10)
    finally:
        consumer.close()


def test_a_record_without_a_key_is_refused(cleaning: str, make: Callable[..., str]) -> None:
    topic = make("keyless")
    producer = Producer({"bootstrap.servers": cleaning, "message.timeout.ms": SECONDS * 1000})
    errors = []
    producer.produce(topic, "v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(2 * SECONDS) == 0
    assert [error.name() for error in errors] == ["INVALID_RECORD"]


def test_a_policy_that_does_not_exist_is_refused(cleaning: str) -> None:
    admin = AdminClient({"bootstrap.servers": cleaning})
    new = NewTopic("compacted-shredded", 1, 1, config={"cleanup.policy": "shred"})
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        admin.create_topics([new])["compacted-shredded"].result(SECONDS)


def test_a_kill_while_logs_are_compacted_loses_no_last_value(tmp_path: Path) -> None:
    if os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP"):
        pytest.skip("kills the broker that it starts itself")
    settings = {"log.cleaner.backoff.ms": "20", "log.cleaner.io.buffer.size": "8192"}
    with BrokerProcess(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = AT_ONCE | {"segment.ms": "20"}
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(SECONDS)
        for life in range(3):
            pairs = [(f"key-{number % 50}", f"{life}-{number}") for number in range(5000)]
            for first in range(0, 5000, 500):
                produce(broker.bootstrap, "t", pairs[first : first + 500])
            broker.kill()
            broker.start()
            last = {each.key(): each.value() for each in contents(broker.bootstrap, "t")}
            assert last == {key.encode(): value.encode() for key, value in pairs[-50:]}
        found = await_contents(broker.bootstrap, "t", lambda found: len(without_rolls(found)) == 50)
        assert {key: value for _, key, value in without_rolls(found)} == dict(pairs[-50:])


def test_kafkas_own_tool_reads_a_cleaned_log(
    tmp_path: Path, kafka_tools: Callable[..., CompletedProcess[str]]
) -> None:
    settings = {"log.cleaner.backoff.ms": "50", "log.index.interval.bytes": "512"}
    with BrokerProcess(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = AT_ONCE | {"delete.retention.ms": "3600000"}
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(SECONDS)
        for compression in ("none", "zstd", "gzip"):
            pairs = [(f"{compression}-{number % 100}", f"v{number}") for number in range(1000)]
            options = {"compression.type": compression, "batch.num.messages": "20"}
            produce(broker.bootstrap, "t", pairs, **options, **{"enable.idempotence": "true"})
        produce(broker.bootstrap, "t", [("zstd-1", None), ("gone", None)])
        found = await_contents(
            broker.bootstrap, "t", lambda found: len(without_rolls(found)) == 301
        )
        broker.stop()
        directory = broker.data_directory / "t-0"
    offsets, horizons = [], 0
    for log in sorted(directory.glob("*.log")):
        files = ",".join(str(log.with_suffix(end)) for end in (".log", ".index", ".timeindex"))
        dumped = kafka_tools("DumpLogSegments", "--deep-iteration", "--files", files)
        assert dumped.returncode == 0, dumped.stderr
        for sign in ("isvalid: false", "Mismatches", "Error", "Found timestamp", "corrupt"):
            assert sign not in dumped.stdout, dumped.stdout[-2000:]
        horizons += len(re.findall(r"deleteHorizonMs: OptionalLong\[", dumped.stdout))
        offsets += [int(each) for each in re.findall(r"\| offset: (\d+)", dumped.stdout)]
    # The cleaner may have removed further rolls after they were read.
    kept = {offset for offset, _, _ in without_rolls(found)}
    assert kept <= set(offsets) <= {each.offset() for each in found}
    assert offsets == sorted(set(offsets))
    assert horizons


def test_committed_offsets_are_compacted_and_survive_a_kill(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "50", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})

        def commit(first: int, end: int) -> None:
            for offset in range(first, end):
                commit_offsets(consumer, TopicPartition("t", 0, offset))

        commit(0, 100)
        alter_topic(admin, "__consumer_offsets", AT_ONCE)
        directory = broker.data_directory / "__consumer_offsets-0"
        end = 100

        def is_small() -> bool:
            nonlocal end
            # Commits that are faster than the cleaner would hide its effect.
            time.sleep(0.1)
            commit(end, end + 1)
            end += 1
            return size_of_logs(directory) <= 4000

        eventually(is_small)
        consumer.close()
        checkpoint = broker.data_directory / "cleaner-offset-checkpoint"
        eventually(
            lambda: checkpoint.exists() and "__consumer_offsets 0 " in checkpoint.read_text(),
            "a cleaned log is followed by its checkpoint",
        )
        broker.kill()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        (committed,) = find_committed(consumer, TopicPartition("t", 0))
        consumer.close()
        assert committed.offset == end - 1
        assert "__consumer_offsets 0 " in checkpoint.read_text()


def size_of_logs(directory: Path) -> int:
    """Return the bytes of all segments; the cleaner may delete segments meanwhile."""
    total = 0
    for log in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += log.stat().st_size
    return total


def alter_topic(admin: AdminClient, topic: str, configs: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(SECONDS)
