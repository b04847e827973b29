"""After kill -9 under load, twenty times, each acknowledged record exists once and in order.

An idempotent producer writes numbered records, and a member of a group commits its offsets. After
each restart, the member continues at its last commit or above it. `make kills KILLS=100` runs the
same test for longer.

This shows durability when the process is killed (the page cache survives), not at a loss of power.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from waiting import eventually, eventually_equal

TOPIC = "survivors"
GROUP = "surviving-readers"
PARTITIONS = 3
# The first member of a group does not wait for others.
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
# In `make check` and in `make nightly`, unless KILLS is set.
KILLS, NIGHTLY_KILLS = 10, 20
SECONDS_BETWEEN_KILLS = 0.6
DEADLINE_SECONDS = 90
# Many small segments and index entries, so that kills hit rolls and index writes too.
CONFIG = {"segment.bytes": "1048576", "index.interval.bytes": "512"}


class Load:
    """An idempotent producer that numbers its records per partition, until `stop`."""

    def __init__(self, address: str) -> None:
        self.sent = [0] * PARTITIONS
        # Per partition: offset by number, as acknowledged.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                # Do not log lost connections, because the broker is killed often.
                "log_level": 0,
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
        """Stop sending, and wait until all sent records are acknowledged."""
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
            # Run the callbacks, and limit the load to about a thousand records per second.
            self._producer.poll(0.002)

    def _on_delivery(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        number = int(message.value().split(b":")[0])
        self.acknowledged[message.partition()][number] = message.offset()


class Reader:
    """A member of a group that reads and commits its records until `stop`."""

    def __init__(self, address: str) -> None:
        # Per partition: the largest offset whose commit was acknowledged.
        self.committed = [0] * PARTITIONS
        self.read = 0
        # Offsets below a committed offset that were read or committed again.
        self.setbacks: list[str] = []
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                # Do not log lost connections, because the broker is killed often.
                "log_level": 0,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.subscribe([TOPIC])
        is_to_commit = False
        while not self._stopping.is_set():
            messages = [m for m in consumer.consume(500, 0.1) if not m.error()]
            if not messages and not is_to_commit:
                continue
            for message in messages:
                if message.offset() < self.committed[message.partition()]:
                    self.setbacks.append(f"{message.partition()}: {message.offset()}")
            self.read += len(messages)
            try:
                done = consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                # The outcome of a commit is unknown if the broker is killed, so it is not counted.
                # Records of revoked partitions are read again.
                is_to_commit = error.args[0].code() != KafkaError._NO_OFFSET
                continue
            is_to_commit = False
            for place in done:
                if place.error is None:
                    before = self.committed[place.partition]
                    self.committed[place.partition] = max(before, place.offset)
        consumer.close()

    def check_committed(self) -> None:
        """Record a setback for each partition whose acknowledged commit the broker has lost."""
        offset_reader = Consumer({"bootstrap.servers": self._address, "group.id": GROUP})
        acknowledged = list(self.committed)
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        for place in offset_reader.committed(places, DEADLINE_SECONDS):
            if acknowledged[place.partition] > max(place.offset, 0):
                self.setbacks.append(f"{place.partition}: {place.offset} is committed")
        offset_reader.close()


@pytest.fixture(scope="module")
def reader() -> list[Reader]:
    """The reader that `survivor` starts; empty before that."""
    return []


@pytest.fixture(scope="module")
def survivor(
    tmp_path_factory: pytest.TempPathFactory, reader: list[Reader], pytestconfig: pytest.Config
) -> Iterator[tuple[BrokerProcess, Load]]:
    """A broker that was killed many times under load, and the completely acknowledged load."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"), SETTINGS)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIG)])[TOPIC].result(
        DEADLINE_SECONDS
    )
    load = Load(broker.bootstrap)
    reader.append(Reader(broker.bootstrap))
    kills = int(
        os.environ.get("KILLS") or (NIGHTLY_KILLS if pytestconfig.option.nightly else KILLS)
    )
    for _ in range(kills):
        acknowledged, committed = load.acknowledged_count(), sum(reader[0].committed)
        eventually(
            lambda acknowledged=acknowledged, committed=committed: (
                load.acknowledged_count() >= acknowledged + 100
                and sum(reader[0].committed) > committed
            ),
            "the load does not continue after a kill",
        )
        time.sleep(SECONDS_BETWEEN_KILLS * random.random())
        broker.kill()
        broker.start()
        reader[0].check_committed()
    eventually(lambda: load.acknowledged_count() > 10_000)
    load.stop()
    eventually_equal(lambda: reader[0].committed, load.sent)
    reader[0].stop()
    sent = sum(load.sent)
    print(f"{kills} kills, {sent} records, {reader[0].read} read by the group", flush=True)
    yield broker, load
    broker.stop()


@pytest.mark.conformance
@pytest.mark.slow
def test_committed_offsets_of_a_group_never_decrease(
    survivor: tuple[BrokerProcess, Load], reader: list[Reader]
) -> None:
    assert reader[0].setbacks == []
    assert sum(reader[0].committed) > 1000


def read_all(address: str, partition: int, count: int) -> list[confluent_kafka.Message]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "checker"})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    messages: list[confluent_kafka.Message] = []

    def has_read() -> bool:
        found = consumer.consume(1000, timeout=1)
        messages.extend(each for each in found if not each.error())
        return len(messages) >= count

    eventually(has_read, lambda: f"{len(messages)} of {count} have arrived")
    consumer.close()
    return messages


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_every_acknowledged_record_exists_once_in_order_at_its_offset(
    survivor: tuple[BrokerProcess, Load], partition: int
) -> None:
    broker, load = survivor
    assert not load.errors
    sent = load.sent[partition]
    messages = read_all(broker.bootstrap, partition, sent)
    numbers = [int(m.value().split(b":")[0]) for m in messages]
    assert numbers == list(range(sent)), "lost, duplicate or reordered"
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
        found = consumer.poll(DEADLINE_SECONDS)
        assert found is not None
        assert (found.offset(), found.value()) == (offset, messages[offset].value())
        timestamp = times[offset]
        [by_time] = consumer.offsets_for_times(
            [TopicPartition(TOPIC, partition, timestamp)], DEADLINE_SECONDS
        )
        first = next(i for i, stamp in enumerate(times) if stamp >= timestamp)
        assert by_time.offset == first
    consumer.close()


@pytest.mark.conformance
@pytest.mark.slow
def test_every_index_entry_names_the_start_of_a_batch(
    survivor: tuple[BrokerProcess, Load],
) -> None:
    broker, _ = survivor
    # A clean stop truncates the indexes to their entries, as Kafka's tools expect.
    assert broker.stop() == 0
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
    """Return first and last offset of each batch by its position in the file."""
    starts = {}
    position = 0
    while position < len(log):
        first = int.from_bytes(log[position : position + 8])
        size = 12 + int.from_bytes(log[position + 8 : position + 12])
        starts[position] = (first, first + int.from_bytes(log[position + 23 : position + 27]))
        position += size
    assert position == len(log), "a torn batch is left"
    return starts
