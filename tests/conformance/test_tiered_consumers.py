"""Consumers of several kinds read a tiered topic from its beginning, across both tiers."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer

import barnabas
from barnabas import ShareConsumer
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.record.reader import read_batches
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_packages import python_package
from conformance.client_program import ClientProgram
from conformance.raw_client import RawClient
from conformance.share_groups import SETTINGS, read
from conformance.tiered_topics import (
    EARLIEST_LOCAL,
    SECONDS,
    await_all_copied,
    make_tiered_topic,
    offset_at,
    tier_settings,
    value_of,
)
from jvm.java import java_command
from loop_turns import loop_turns
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = Path(__file__).parent / "programs"
RECORDS = 300
READERS = 200
# The smallest memory for ranges, and more records than fit into it.
CACHE_BYTES = "8388608"
MANY_RECORDS = 16_000
# Records that each of many readers reads.
RECORDS_EACH = 100
# The oldest version with topic names that no client has left behind.
_FETCH_VERSION = 12


class Tiered(NamedTuple):
    """A broker with a topic whose first records are only in the tier."""

    broker: BrokerProcess
    topic: str
    # Timestamp of record 0 in ms. Record n has n ms more.
    start_ms: int

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    settings = tier_settings(tmp_path_factory.mktemp("tier")) | SETTINGS
    settings |= {
        "metrics.listener": "127.0.0.1:0",
        "barnabas.remote.read.cache.max.bytes": CACHE_BYTES,
    }
    directory = tmp_path_factory.mktemp("broker")
    with BrokerProcess(directory, settings) as broker:
        topic = "read-by-many"
        make_tiered_topic(
            broker.bootstrap, topic, local_retention_bytes="1", internal_segment_bytes="50000"
        )
        start_ms = int(time.time() * 1000) - 1_000_000
        produce(broker.bootstrap, topic, RECORDS, start_ms)
        assert await_local_end(broker, topic) > RECORDS // 2
        yield Tiered(broker, topic, start_ms)
        assert "Traceback" not in broker.log()


def produce(bootstrap: str, topic: str, count: int, start_ms: int) -> None:
    """Write numbered records in small batches, whose timestamps ascend by a millisecond."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": "3"})
    for number in range(count):
        producer.produce(topic, value_of(number), partition=0, timestamp=start_ms + number)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def await_local_end(broker: BrokerProcess, topic: str) -> int:
    """Wait until all copied segments are only in the tier; return the last copied offset."""
    last = await_all_copied(broker.bootstrap, topic, broker.data_directory)
    eventually_equal(lambda: offset_at(broker.bootstrap, topic, EARLIEST_LOCAL), last + 1, SECONDS)
    return last


def check_program(client: ClientProgram, tiered: Tiered) -> None:
    """Read everything, then from a time in the tier on."""
    middle = RECORDS // 3
    times = [0, tiered.start_ms + middle, tiered.start_ms + RECORDS - 1]
    everything, found, rest = client.call_all(
        [
            ("consume", {"topic": tiered.topic, "count": RECORDS}),
            ("offsets", {"topic": tiered.topic, "timestamps": times}),
            (
                "consume",
                {
                    "topic": tiered.topic,
                    "count": RECORDS - middle,
                    "timestamp": tiered.start_ms + middle,
                },
            ),
        ]
    )
    assert [each["offset"] for each in everything["records"]] == list(range(RECORDS))
    values = [each["value"].encode() for each in everything["records"]]
    assert values == [value_of(number) for number in range(RECORDS)]
    assert found == {"offsets": [0, middle, RECORDS - 1]}
    assert [each["offset"] for each in rest["records"]] == list(range(middle, RECORDS))


def test_the_java_consumer_reads_both_tiers(tiered: Tiered) -> None:
    source = PROGRAMS / "JavaProgram.java"
    command = java_command("kafka", log_level="ERROR", source=source)
    check_program(ClientProgram([*command, source.stem], tiered.bootstrap), tiered)


def test_kafka_python_reads_both_tiers(tiered: Tiered) -> None:
    command = [sys.executable, str(PROGRAMS / "kafka_python_program.py")]
    codecs = {"PYTHONPATH": str(python_package("codecs"))}
    check_program(ClientProgram(command, tiered.bootstrap, codecs), tiered)


@pytest.mark.parametrize("reset", ["earliest", "by_duration:PT1H"])
def test_a_share_group_reads_both_tiers(tiered: Tiered, reset: str) -> None:
    group = f"share-{reset[:2]}"
    with barnabas.Client(tiered.bootstrap) as client:
        resource = ConfigResource(ResourceType.GROUP, group)
        client.admin.alter_configs(resource, {"share.auto.offset.reset": reset})
    with ShareConsumer(
        tiered.topic,
        bootstrap_servers=tiered.bootstrap,
        group_id=group,
        fetch_max_wait_ms=500,
    ) as consumer:
        records = read(consumer, RECORDS)
    assert sorted({each.offset for each in records}) == list(range(RECORDS))


def read_some(bootstrap: str, topic: str, start: int) -> list[int]:
    """Read some records from an offset on; return their offsets."""
    client = RawClient(bootstrap)
    found: list[int] = []
    try:
        while len(found) < RECORDS_EACH:
            offset = found[-1] + 1 if found else start
            partition = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=100_000
            )
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1_000_000,
                topics=[FetchTopic(topic=topic, partitions=[partition])],
            )
            result = client.ask(request, _FETCH_VERSION).responses[0].partitions[0]
            assert result.error_code == ErrorCode.NONE, ErrorCode.of(result.error_code)
            for header, records in read_batches(bytes(result.records or b"")):
                assert header.next_offset > offset
                found += [each.offset for each in records if each.offset >= offset]
    finally:
        client.close()
    return found[:RECORDS_EACH]


def test_many_readers_do_not_hold_the_loop(tiered: Tiered) -> None:
    broker, topic = tiered.broker, "read-by-200"
    make_tiered_topic(
        broker.bootstrap, topic, local_retention_bytes="1", internal_segment_bytes="4000000"
    )
    produce(broker.bootstrap, topic, MANY_RECORDS, tiered.start_ms)
    last = await_local_end(broker, topic)
    before = loop_turns(broker.metrics_address)
    starts = [number * (last - RECORDS_EACH) // READERS for number in range(READERS)]
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(partial(read_some, broker.bootstrap, topic), starts))
    for start, offsets in zip(starts, found, strict=True):
        assert offsets == list(range(start, start + RECORDS_EACH))
    after = loop_turns(broker.metrics_address)
    print(f"{READERS} readers: longest turn {after.longest_cpu_ms:.1f} ms of CPU")
    assert after.long_cpu_turns == before.long_cpu_turns
