"""The consumer with partitions assigned by hand: against our broker and against Apache Kafka."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.errors import (
    ConcurrentUseError,
    InvalidGroupIdError,
    NoOffsetError,
    SubscriptionError,
    WakeupError,
)
from barnabas.client.errors import (
    ClientClosedError,
    ClientError,
    ForkedClientError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    UnknownTopicError,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S, eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

Broker = BrokerProcess | KafkaProcess


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with values 0 to 99 in partition 0 and 100 to 139 in partition 1."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(broker.bootstrap) as client:
        # Retention would delete the records, which have timestamps of 1970.
        client.create_topic(
            name, partitions=2, replication_factor=1, configs={"retention.ms": "-1"}
        )
        with client.producer() as producer:
            for number in range(140):
                producer.send(
                    name,
                    b"v%d" % number,
                    b"k%d" % number,
                    partition=int(number >= 100),
                    timestamp_ms=1_000_000 + number,
                    headers=[("h", b"x")] if number == 3 else [],
                )
    return name


@pytest.fixture
def consumer(broker: Broker) -> Iterator[barnabas.Consumer]:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as made:
        yield made


def read(consumer: barnabas.Consumer, count: int) -> list[ConsumerRecords]:
    """Poll until `count` records have arrived, and return the results that have records."""
    found: list[ConsumerRecords] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline, found
        records = consumer.poll(1.0)
        if records:
            found.append(records)
    return found


def values(polls: list[ConsumerRecords]) -> list[bytes]:
    return [record.value for records in polls for record in records]


def test_records_have_all_their_fields(consumer: barnabas.Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    records = read(consumer, 100)[0]
    fourth = records[topic, 0][3]
    assert (fourth.topic, fourth.partition, fourth.offset) == (topic, 0, 3)
    assert (fourth.key, fourth.value, fourth.headers) == (b"k3", b"v3", [("h", b"x")])
    assert (fourth.timestamp, fourth.timestamp_type) == (1_000_003, 0)
    assert list(records)[3] == fourth
    assert len(records) == len(list(records))
    assert consumer.position((topic, 0)) == 100


def test_records_are_read_as_columns_and_as_a_table(
    consumer: barnabas.Consumer, topic: str
) -> None:
    consumer.assign([(topic, 0), (topic, 1)])
    rows = []
    tables = []
    for records in read(consumer, 140):
        tables.append(records.to_arrow())
        for part in records.batches():
            rows += zip(part.offsets, part.keys, part.values, part.timestamps, strict=True)
    assert sorted(rows)[:2] == [(0, b"k0", b"v0", 1_000_000), (0, b"k100", b"v100", 1_000_100)]
    seen = {
        (row["partition"], row["offset"], row["key"], row["value"])
        for table in tables
        for row in table.to_pylist()
    }
    assert seen == {
        (int(n >= 100), n % 100, b"k%d" % n, b"v%d" % n) for n in range(140)
    }  # fmt: skip
    headers = [row["headers"] for table in tables for row in table.to_pylist() if row["headers"]]
    assert headers == [[{"key": "h", "value": b"x"}]]


def test_a_poll_returns_at_most_the_requested_number(broker: Broker, topic: str) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=30
    ) as consumer:
        consumer.assign([(topic, 0)])
        polls = read(consumer, 100)
        assert [len(records) for records in polls] == [30, 30, 30, 10]
        assert values(polls) == [b"v%d" % number for number in range(100)]
        consumer.seek_to_beginning()
        few = eventually(lambda: consumer.poll(1.0, max_records=7))
        assert len(few) == 7
        assert few.next_offsets[TopicPartition(topic, 0)].offset == 7
        assert [len(part) for part in few.batches()] == [7]
        assert few.to_arrow().num_rows == 7


def test_seeks_move_the_position(consumer: barnabas.Consumer, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    consumer.assign([tp])
    read(consumer, 100)
    consumer.seek(tp, 42)
    assert consumer.position(tp) == 42
    assert values(read(consumer, 58))[0] == b"v42"
    consumer.seek_to_end([tp])
    assert consumer.position(tp) == 100
    consumer.seek_to_beginning(tp)
    assert consumer.position(tp) == 0
    consumer.seek_to_time(1_000_070)
    assert values(read(consumer, 30))[0] == b"v70"
    consumer.seek_to_time(9_000_000, tp)
    assert consumer.position(tp) == 100
    with pytest.raises(ValueError, match="-1"):
        consumer.seek(tp, -1)
    with pytest.raises(SubscriptionError):
        consumer.seek((topic, 1), 0)


def test_a_seek_drops_records_that_were_fetched_before(broker: Broker, topic: str) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=10
    ) as consumer:
        consumer.assign([(topic, 0)])
        read(consumer, 10)
        consumer.seek((topic, 0), 90)
        assert values(read(consumer, 10)) == [b"v%d" % number for number in range(90, 100)]


def test_paused_partitions_return_no_records_and_lose_none(broker: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=10
    ) as consumer:
        consumer.assign([first, second])
        seen = values(read(consumer, 20))
        consumer.pause(first)
        assert consumer.paused() == {first}
        at = consumer.position(first)
        rest = 40 - sum(value in {b"v%d" % n for n in range(100, 140)} for value in seen)
        polls = read(consumer, rest) if rest else []
        assert all(records.partitions == (second,) for records in polls)
        assert not consumer.poll(0.2)
        assert consumer.position(first) == at
        consumer.resume([first])
        seen += values(polls) + values(read(consumer, 100 - at))
        assert sorted(seen) == sorted(b"v%d" % number for number in range(140))


def test_offsets_are_looked_up(consumer: barnabas.Consumer, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second]) == {first: 100, second: 40}
    found = consumer.offsets_for_times({first: 1_000_050, second: 9_000_000})
    assert found[second] is None
    at = found[first]
    assert at is not None
    assert (at.offset, at.timestamp) == (50, 1_000_050)
    consumer.assign([first])
    read(consumer, 100)
    assert consumer.current_lag(first) == 0
    consumer.seek(first, 60)
    assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]
    assert len(consumer.list_topics()[topic]) == 2
    with pytest.raises(UnknownTopicError):
        consumer.partitions_for(f"{topic}-misspelt")


def test_without_a_committed_offset_the_reset_policy_applies(broker: Broker, topic: str) -> None:
    def first_position(reset: str) -> int:
        with barnabas.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset=reset
        ) as consumer:
            consumer.assign([(topic, 0)])
            return consumer.position((topic, 0))

    assert first_position("earliest") == 0
    assert first_position("latest") == 100
    # The records have timestamps of 1970: older than an hour, and younger than a hundred years.
    assert first_position("by_duration:PT1H") == 100
    assert first_position("by_duration:P36500D") == 0
    with pytest.raises(NoOffsetError, match="earliest"):
        first_position("none")


def test_an_offset_out_of_range_is_reset(broker: Broker, topic: str) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 5_000)
        assert values(read(consumer, 100))[0] == b"v0"
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="none"
    ) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 5_000)
        with pytest.raises(OffsetOutOfRangeError, match="5000"):
            read(consumer, 1)
        consumer.seek((topic, 0), 99)
        assert values(read(consumer, 1)) == [b"v99"]


def test_an_error_of_a_deserializer_keeps_the_position(broker: Broker, topic: str) -> None:
    with barnabas.Client(broker.bootstrap) as client, client.producer() as producer:
        for value in (b'{"a": 1}', None, b"no json", b'{"a": 2}'):
            producer.send(topic, value, partition=1)
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, value_deserializer=json.loads
    ) as consumer:
        consumer.assign([(topic, 1)])
        consumer.seek((topic, 1), 40)
        assert values(read(consumer, 2)) == [{"a": 1}, None]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as caught:
                read(consumer, 1)
            assert (caught.value.partition, caught.value.offset) == ((topic, 1), 42)
        assert consumer.position((topic, 1)) == 42
        consumer.seek((topic, 1), 43)
        assert values(read(consumer, 1)) == [{"a": 2}]


def test_iterating_moves_the_position_record_by_record(broker: Broker, topic: str) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=2_000
    ) as consumer:
        consumer.assign([(topic, 0)])
        seen: list[bytes] = []

        def has_seen(count: int) -> bool:
            """Iterate until `count` values are seen, or consumer_timeout_ms ends the loop."""
            for record in consumer:
                seen.append(record.value)
                assert consumer.position((topic, 0)) == record.offset + 1
                if len(seen) == count:
                    return True
            return False

        eventually(lambda: has_seen(20))
        assert eventually(lambda: next(consumer, None)).offset == 20
        eventually(lambda: not has_seen(-1) and len(seen) == 99)
        assert seen == [b"v%d" % number for number in range(100) if number != 20]


@pytest.mark.parametrize("group_id", [None, "group"])
def test_a_missing_partition_does_not_affect_other_partitions(
    broker: Broker, topic: str, group_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        group_id=group_id and f"{group_id}-{topic}",
    ) as consumer:
        consumer.assign([(topic, 0), (topic, 2), (f"no-{topic}", 0), (topic, 1)])
        assert len(values(read(consumer, 140))) == 140
        if group_id:
            consumer.commit()
            assert consumer.committed([(topic, 0), (topic, 2)])[TopicPartition(topic, 2)] is None
        with barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_partitions({topic: 3})
        with barnabas.Client(broker.bootstrap) as client:
            eventually_equal(lambda: client.partitions_for([topic]), {topic: [0, 1, 2]})
        with barnabas.Producer(bootstrap_servers=broker.bootstrap) as producer:
            for partition in range(3):
                producer.send(topic, b"later", partition=partition)
        assert values(read(consumer, 3)) == [b"later"] * 3
    logged = [record.getMessage() for record in caplog.records if topic in record.getMessage()]
    assert any(f"{topic}-2" in line and "0 to 1" in line for line in logged), logged
    assert len(logged) <= 2, logged


def test_a_seek_in_a_missing_partition_does_not_affect_other_partitions(
    consumer: barnabas.Consumer, topic: str
) -> None:
    consumer.assign([(topic, 0), (topic, 7), (topic, 1)])
    consumer.seek((topic, 7), 5)
    assert len(values(read(consumer, 140))) == 140
    with pytest.raises(UnknownTopicError, match=f"{topic}-7"):
        consumer.end_offsets([(topic, 0), (topic, 7)])


def test_invalid_calls_raise_clear_errors(
    broker: Broker, consumer: barnabas.Consumer, topic: str
) -> None:
    with pytest.raises(SubscriptionError, match="subscribe"):
        consumer.poll()
    with pytest.raises(InvalidGroupIdError, match="group"):
        consumer.subscribe([topic])
    with pytest.raises(SubscriptionError):
        consumer.assign(None)
    with pytest.raises(SubscriptionError, match="blank"):
        consumer.assign([(" ", 0)])
    consumer.assign([(topic, 0)])
    with pytest.raises(InvalidGroupIdError):
        consumer.commit()
    consumer.assign([])
    with pytest.raises(SubscriptionError):
        consumer.poll()
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosedError, match="closed"):
        consumer.poll()
    with barnabas.Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as member:
        for wrong in (None, [""], [None]):
            with pytest.raises(SubscriptionError):
                member.subscribe(wrong)  # type: ignore[arg-type]
        member.assign([(topic, 0)])
        with pytest.raises(SubscriptionError, match="unsubscribe"):
            member.subscribe([topic])
        member.unsubscribe()
        member.subscribe([topic])
        with pytest.raises(SubscriptionError, match="unsubscribe"):
            member.assign([(topic, 0)])


def test_only_wakeup_and_close_may_be_called_from_another_thread(
    consumer: barnabas.Consumer, topic: str
) -> None:
    consumer.assign([(topic, 0)])
    consumer.seek_to_end()
    outcomes: list[BaseException] = []

    def has_polled() -> bool:
        try:
            consumer.poll(10 * PATIENCE_S)
        except ConcurrentUseError:
            # At this moment, the other thread checked whether a poll is running.
            return False
        except ClientError as error:
            outcomes.append(error)
        return True

    def is_in_poll() -> bool:
        try:
            consumer.paused()
        except ConcurrentUseError:
            return True
        return False

    for end in (consumer.wakeup, consumer.close):
        thread = threading.Thread(target=eventually, args=(has_polled,))
        thread.start()
        eventually(is_in_poll)
        end()
        thread.join(PATIENCE_S)
    assert [type(error) for error in outcomes] == [WakeupError, ClientClosedError]


def test_a_wakeup_before_a_poll_is_not_lost(consumer: barnabas.Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    assert values(read(consumer, 100))[0] == b"v0"


def test_ctrl_c_ends_a_poll_without_losing_records(consumer: barnabas.Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    read(consumer, 100)
    alarm = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

    def poll_until_the_alarm() -> None:
        alarm.start()
        consumer.poll(10 * PATIENCE_S)

    # On a slow machine, the signal may arrive before the poll begins.
    with pytest.raises(KeyboardInterrupt):
        poll_until_the_alarm()
    consumer.seek((topic, 0), 98)
    assert values(read(consumer, 2)) == [b"v98", b"v99"]


def test_a_forked_child_gets_an_error(consumer: barnabas.Consumer, topic: str) -> None:
    consumer.assign([(topic, 0)])
    read(consumer, 100)
    child = os.fork()
    if child == 0:
        try:
            consumer.poll()
        except ForkedClientError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert consumer.position((topic, 0)) == 100
