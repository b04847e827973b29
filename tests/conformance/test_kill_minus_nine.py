"""kill -9 under idempotent load, twenty times: what was acknowledged is there once and in order.

This shows durability against the death of the process (the page cache survives it), not against
the loss of power.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess

TOPIC = "survivors"
PARTITIONS = 3
KILLS = 20
SECONDS_BETWEEN_KILLS = 0.6
DEADLINE_SECONDS = 60
# Many small segments and index entries, so that kills hit rolls and index writes too.
CONFIG = {"segment.bytes": "1048576", "index.interval.bytes": "512"}


class Load:
    """An idempotent producer that numbers its records per partition, until it is told to stop."""

    def __init__(self, address: str) -> None:
        self.sent = [0] * PARTITIONS
        # Per partition: offset by number, as acknowledged.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": 50,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged))

    def stop(self) -> None:
        """Sends no more, and waits until all that was sent is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_SECONDS) == 0, "not all records were acknowledged"

    def _run(self) -> None:
        padding = b"." * 200
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                value = b"%d:%s" % (number, padding)
                try:
                    self._producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._on_delivery
                    )
                except BufferError:
                    break
                self.sent[partition] += 1
            # Serves the callbacks, and keeps the load at some thousands a second.
            self._producer.poll(0.0005)

    def _on_delivery(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        number = int(message.value().split(b":")[0])
        self.acknowledged[message.partition()][number] = message.offset()


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Load]]:
    """A broker that was killed twenty times under load, and that load, all acknowledged."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"))
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIG)])[TOPIC].result(30)
    load = Load(broker.bootstrap)
    for _ in range(KILLS):
        before = load.acknowledged_count()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while load.acknowledged_count() < before + 100:
            assert time.monotonic() < deadline, "the load does not go on after a kill"
            time.sleep(0.01)
        time.sleep(SECONDS_BETWEEN_KILLS * random.random())
        broker.kill()
        broker.start()
    load.stop()
    yield broker, load
    broker.stop()


def read_all(address: str, partition: int, count: int) -> list[confluent_kafka.Message]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "checker"})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    messages: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(1000, timeout=1)
    consumer.close()
    assert not [m.error() for m in messages if m.error()]
    return messages


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_every_acknowledged_record_is_there_once_in_order_at_its_offset(
    survivor: tuple[BrokerProcess, Load], partition: int
) -> None:
    broker, load = survivor
    assert not load.errors
    sent = load.sent[partition]
    messages = read_all(broker.bootstrap, partition, sent)
    numbers = [int(m.value().split(b":")[0]) for m in messages]
    assert numbers == list(range(sent)), "lost, doubled or reordered"
    assert [m.offset() for m in messages] == list(range(sent)), "offsets are not dense"
    assert load.acknowledged[partition] == {n: n for n in range(sent)}


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_reads_by_offset_and_by_time_find_the_right_record_after_all_kills(
    survivor: tuple[BrokerProcess, Load], partition: int
) -> None:
    broker, load = survivor
    messages = read_all(broker.bootstrap, partition, load.sent[partition])
    times = [m.timestamp()[1] for m in messages]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "checker"})
    rng = random.Random(partition)
    for offset in [0, len(messages) - 1, *rng.sample(range(len(messages)), 25)]:
        consumer.assign([TopicPartition(TOPIC, partition, offset)])
        found = consumer.poll(10)
        assert found is not None
        assert (found.offset(), found.value()) == (offset, messages[offset].value())
        wanted = times[offset]
        [by_time] = consumer.offsets_for_times([TopicPartition(TOPIC, partition, wanted)], 10)
        first = next(i for i, stamp in enumerate(times) if stamp >= wanted)
        assert by_time.offset == first
    consumer.close()


@pytest.mark.conformance
@pytest.mark.slow
def test_every_index_entry_names_the_start_of_a_batch(
    survivor: tuple[BrokerProcess, Load],
) -> None:
    broker, _ = survivor
    # A clean stop cuts the indexes to their entries; the files are then as Kafka's tools read them.
    broker.stop()
    checked = 0
    for index in sorted(broker.data_directory.glob(f"{TOPIC}-*/*.index")):
        base = int(index.stem)
        starts = batch_starts(index.with_suffix(".log").read_bytes())
        entries = index.read_bytes()
        assert len(entries) % 8 == 0
        for at in range(0, len(entries), 8):
            relative = int.from_bytes(entries[at : at + 4])
            position = int.from_bytes(entries[at + 4 : at + 8])
            first, last = starts[position]
            assert first <= base + relative <= last
            checked += 1
    assert checked > 100


def batch_starts(log: bytes) -> dict[int, tuple[int, int]]:
    """First and last offset of each batch by its position in the file."""
    starts = {}
    position = 0
    while position < len(log):
        first = int.from_bytes(log[position : position + 8])
        size = 12 + int.from_bytes(log[position + 8 : position + 12])
        starts[position] = (first, first + int.from_bytes(log[position + 23 : position + 27]))
        position += size
    assert position == len(log), "a torn batch is left"
    return starts
