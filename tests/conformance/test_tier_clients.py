"""Clients read a topic whose beginning is in the remote tier, and whose end is on the disk.

Its records are those of four transactions, two of them aborted, among records without one. An
aborted transaction begins in the tier and ends on the disk. `test_tiered_consumers.py` has share
groups and many readers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_END, Consumer, Message, Producer, TopicPartition

import barnabas
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_packages import node_package, python_package
from conformance.client_program import ClientProgram
from conformance.kcat_command import kcat
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
from jvm.maven import need
from selection import nightly_unless
from waiting import eventually, eventually_equal

PROGRAMS = Path(__file__).parent / "programs"
UNCOMMITTED, COMMITTED = "read_uncommitted", "read_committed"
MINUTE_MS = 60_000
# Offset and number of a record.
Read = tuple[int, int]
# An offset, or None for the first position of the consumer, and how many records are read there.
Visit = tuple[int | None, int]


class Tiered(NamedTuple):
    """A broker, a topic, and what is in the topic."""

    broker: BrokerProcess
    topic: str
    # Timestamp of record 0 in ms. Record n has n ms more.
    start_ms: int
    # All records, and those of transactions that were not aborted.
    records: dict[str, list[Read]]
    # Records below this offset are only in the tier.
    local_start: int

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def visits(self, isolation: str) -> list[Visit]:
        """Return offsets in both tiers, back and forth, with numbers of records to read there."""
        third = self.local_start // 3
        wanted: list[Visit] = [
            (None, len(self.records[isolation])),
            (third, 20),
            (self.local_start - 1, 3),
            (0, 5),
            (self.local_start, 3),
            (2 * third, 30),
            (third, 1),
        ]
        return [(start, len(self.expected(isolation, (start, count)))) for start, count in wanted]

    def expected(self, isolation: str, visit: Visit) -> list[Read]:
        start, count = visit
        found = [each for each in self.records[isolation] if each[0] >= (start or 0)]
        return found[:count]


class Filler:
    """Writes numbered records, and notes which of them are committed."""

    def __init__(self, bootstrap: str, topic: str, start_ms: int) -> None:
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "batch.num.messages": "3",
            "enable.idempotence": True,
        }
        self._topic, self._start_ms = topic, start_ms
        self._plain = self.producer()
        self._aborted: set[int] = set()
        self._found: list[Read] = []

    def producer(self, **more: str) -> Producer:
        return Producer({**self._options, **more})

    def begun(self, name: str) -> Producer:
        made = self.producer(**{"transactional.id": f"{self._topic}-{name}"})
        made.init_transactions(SECONDS)
        made.begin_transaction()
        return made

    def write(self, count: int, producer: Producer | None = None, *, aborts: bool = False) -> None:
        """Append records, which have offsets when this returns."""
        used = producer or self._plain
        first = len(self._found)
        offsets: list[int] = []

        def note(error: object, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

        for number in range(first, first + count):
            at = self._start_ms + number
            used.produce(self._topic, value_of(number), partition=0, timestamp=at, on_delivery=note)
            used.poll(0)
        assert used.flush(SECONDS) == 0
        assert len(offsets) == count
        numbers = range(first, first + count)
        self._found += zip(sorted(offsets), numbers, strict=True)
        if aborts:
            self._aborted.update(numbers)

    def records(self) -> dict[str, list[Read]]:
        kept = [each for each in self._found if each[1] not in self._aborted]
        return {UNCOMMITTED: self._found, COMMITTED: kept}


def fill(filler: Filler) -> None:
    """Write records with four transactions; the last one ends at the end of the log."""
    long = filler.begun("long")
    filler.write(3, long, aborts=True)
    filler.write(30)
    short = filler.begun("short")
    filler.write(3, short, aborts=True)
    short.abort_transaction(SECONDS)
    filler.write(30)
    committed = filler.begun("committed")
    filler.write(3, committed)
    filler.write(30)
    committed.commit_transaction(SECONDS)
    filler.write(3, long, aborts=True)
    filler.write(30)
    long.abort_transaction(SECONDS)
    filler.write(60)
    last = filler.begun("last")
    filler.write(3, last, aborts=True)
    filler.write(24)
    last.abort_transaction(SECONDS)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    settings = tier_settings(tmp_path_factory.mktemp("tier"))
    settings["transaction.state.log.num.partitions"] = "2"
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        topic = "read-by-clients"
        make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
        # Markers of transactions have the time of the broker, which is before that of all records.
        start_ms = int(time.time() * 1000) + 1_000_000
        filler = Filler(broker.bootstrap, topic, start_ms)
        fill(filler)
        local_start = await_local_start(broker, topic)
        records = filler.records()
        assert records[COMMITTED][-1][0] >= local_start > records[COMMITTED][-40][0]
        yield Tiered(broker, topic, start_ms, records, local_start)
        assert "Traceback" not in broker.log()


def await_local_start(broker: BrokerProcess, topic: str) -> int:
    """Wait until all copied segments are only in the tier; return the first local offset."""
    start = await_all_copied(broker.bootstrap, topic, broker.data_directory) + 1
    eventually_equal(lambda: offset_at(broker.bootstrap, topic, EARLIEST_LOCAL), start, SECONDS)
    return start


def java() -> tuple[list[str], dict[str, str]]:
    source = PROGRAMS / "JavaProgram.java"
    return [*java_command("kafka", log_level="ERROR", source=source), source.stem], {}


def python(name: str, *packages: str) -> tuple[list[str], dict[str, str]]:
    path = os.pathsep.join(str(python_package(each)) for each in packages)
    environment = {"PYTHONPATH": path} if path else {}
    return [sys.executable, str(PROGRAMS / f"{name}_program.py")], environment


def kafkajs() -> tuple[list[str], dict[str, str]]:
    modules = node_package("kafkajs") / "node_modules"
    environment = {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return ["node", str(PROGRAMS / "kafkajs_program.js")], environment


CLIENTS: dict[str, Callable[[], tuple[list[str], dict[str, str]]]] = {
    "librdkafka": lambda: python("librdkafka"),
    "java": java,
    "kafka-python": lambda: python("kafka_python", "codecs"),
    "aiokafka": lambda: python("aiokafka"),
    "kafkajs": kafkajs,
}
# Those of `make check`.
CHOSEN = {"librdkafka"}


@pytest.mark.parametrize("name", nightly_unless(CHOSEN.__contains__, CLIENTS))
def test_a_client_reads_both_tiers_back_and_forth(tiered: Tiered, name: str) -> None:
    command, environment = CLIENTS[name]()
    client = ClientProgram(command, tiered.bootstrap, environment)
    levels = [UNCOMMITTED, COMMITTED]
    visits = {each: tiered.visits(each) for each in levels}
    numbers = [0, tiered.local_start // 3, tiered.records[UNCOMMITTED][-1][1]]
    times = [tiered.start_ms + number for number in numbers]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("visit", {"topic": tiered.topic, "isolation": each, "visits": visits[each]})
        for each in levels
    ]
    calls.append(("offsets", {"topic": tiered.topic, "timestamps": times}))
    *found, by_time = client.call_all(calls)
    for isolation, result in zip(levels, found, strict=True):
        for visit, read in zip(visits[isolation], result["visits"], strict=True):
            assert [tuple(each) for each in read] == tiered.expected(isolation, visit), visit
    offsets = {number: offset for offset, number in tiered.records[UNCOMMITTED]}
    assert by_time == {"offsets": [offsets[number] for number in numbers]}


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_our_client_reads_both_tiers_back_and_forth(tiered: Tiered, isolation: str) -> None:
    place = barnabas.TopicPartition(tiered.topic, 0)
    consumer = barnabas.Consumer(
        bootstrap_servers=tiered.bootstrap,
        isolation_level=isolation,
        auto_offset_reset="earliest",
    )
    with consumer:
        consumer.assign([place])
        for visit in tiered.visits(isolation):
            start, count = visit
            if start is not None:
                consumer.seek(place, start)
            assert read_ours(consumer, count) == tiered.expected(isolation, visit), visit
        offset, number = tiered.records[isolation][7]
        found = consumer.offsets_for_times({place: tiered.start_ms + number})[place]
        assert found is not None
        assert found.offset == offset


def read_ours(consumer: barnabas.Consumer, count: int) -> list[Read]:
    """Read exactly so many records with our client."""
    found: list[Read] = []

    def has_all() -> bool:
        polled = consumer.poll(0.5, max_records=count - len(found))
        found.extend((each.offset, number_of(each.value)) for each in polled)
        return len(found) == count

    eventually(has_all, lambda: f"{len(found)} of {count} records were read: {found[-3:]}")
    return found


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.partition(b":")[0])


# Versions of brokers that kcat assumes: it then fetches with version 11, 2, or 1. Brokers convert
# batches to the formats of versions 2 and 1.
FALLBACKS = {
    "today": [],
    "0.10.0": ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.10.0"],
    "0.9.0": ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("version", FALLBACKS)
def test_kcat_reads_both_tiers_with_old_versions(tiered: Tiered, version: str) -> None:
    need("kcat")
    # The old formats have no markers of transactions: a fetch that begins at one returns no record.
    topic = f"read-by-kcat-{version}"
    make_tiered_topic(tiered.bootstrap, topic, local_retention_bytes="1")
    filler = Filler(tiered.bootstrap, topic, tiered.start_ms)
    filler.write(150)
    local_start = await_local_start(tiered.broker, topic)
    wanted = filler.records()[UNCOMMITTED]
    words = ["-C", "-t", topic, "-q", "-f", "%o %s\n", *FALLBACKS[version]]
    for start in ("beginning", str(local_start - 1)):
        expected = wanted if start == "beginning" else [
            each for each in wanted if each[0] >= int(start)
        ]  # fmt: skip
        lines = kcat(tiered.bootstrap, *words, "-o", start, "-c", str(len(expected))).splitlines()
        found = [line.split(" ") for line in lines]
        assert [(int(offset), number_of(text.encode())) for offset, text in found] == expected


@pytest.mark.nightly
def test_a_client_that_begins_at_the_end_reads_only_later_records(tiered: Tiered) -> None:
    topic = "read-from-the-end"
    make_tiered_topic(tiered.bootstrap, topic, local_retention_bytes="1")
    filler = Filler(tiered.bootstrap, topic, tiered.start_ms)
    filler.write(60)
    await_local_start(tiered.broker, topic)
    consumer = Consumer(
        {"bootstrap.servers": tiered.bootstrap, "group.id": "late", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    found: list[Read] = []

    def has_read() -> bool:
        # The position is that of the end at a time that the test does not know.
        filler.write(1)
        for message in consumer.consume(100, 0.5):
            error, offset = message.error(), message.offset()
            assert error is None, error
            assert offset is not None
            found.append((offset, number_of(message.value())))
        return bool(found)

    eventually(has_read, "no later record was read")
    consumer.close()
    assert found == [(offset, offset) for offset in range(found[0][0], found[0][0] + len(found))]
    assert found[0][0] >= 60


@pytest.mark.nightly
def test_clients_begin_some_time_before_now(tiered: Tiered) -> None:
    """The position is in the tier: records are a minute apart, and the first is 300 minutes old."""
    topic = "read-by-duration"
    count, age = 300, 150
    make_tiered_topic(tiered.bootstrap, topic, local_retention_bytes="1")
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "batch.num.messages": "3"})
    began = int(time.time() * 1000)
    for number in range(count):
        at = began - (count - number) * MINUTE_MS
        producer.produce(topic, value_of(number), partition=0, timestamp=at)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert await_local_start(tiered.broker, topic) > 200
    reset = f"by_duration:PT{age}M"
    command, environment = java()
    client = ClientProgram(command, tiered.bootstrap, environment)
    call = {"topic": topic, "isolation": UNCOMMITTED, "reset": reset, "visits": [(None, 20)]}
    found = {"java": [tuple(each) for each in client.call("visit", **call)["visits"][0]]}
    ours = barnabas.Consumer(bootstrap_servers=tiered.bootstrap, auto_offset_reset=reset)
    with ours:
        ours.assign([(topic, 0)])
        found["ours"] = read_ours(ours, 20)
    passed = (int(time.time() * 1000) - began) // MINUTE_MS
    for name, read in found.items():
        first = read[0][0]
        assert count - age < first <= count - age + 1 + passed, name
        assert read == [(offset, offset) for offset in range(first, first + 20)], name
