"""Records through librdkafka (confluent-kafka) are consumed as they were produced."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from group_offsets import commit_offsets, find_committed
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 60.0


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> None:
    """Produce all records, and fail if one of them is not delivered."""
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for record in records:
        producer.produce(topic, on_delivery=delivered, **{"partition": 0, **record})
    assert producer.flush(WAIT_S) == 0
    assert errors == []


def consume(
    bootstrap: str, topic: str, count: int, offset: int = 0, **config: Any
) -> list[Message]:
    """Return `count` records of partition 0 from an offset on."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **config}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[Message] = []

    def has_read() -> bool:
        for message in consumer.consume(count - len(found), 0.5):
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) == count

    eventually(has_read, lambda: f"{len(found)} of {count}")
    consumer.close()
    return found


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_carries_records_unchanged(
    bootstrap: str, topic: str, compression: str
) -> None:
    values = [b"value-%d " % number * 10 for number in range(2000)]
    produce(
        bootstrap,
        topic,
        [{"value": value} for value in values],
        **{"compression.type": compression},
    )
    messages = consume(bootstrap, topic, len(values))
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(len(values)))


def test_an_idempotent_producer_writes_every_record_once_and_in_order(
    bootstrap: str, topic: str
) -> None:
    values = [b"%d" % number for number in range(5000)]
    produce(
        bootstrap,
        topic,
        [{"value": value} for value in values],
        **{"enable.idempotence": True, "batch.num.messages": 50},
    )
    assert [message.value() for message in consume(bootstrap, topic, 5000)] == values


def test_keys_values_and_headers_may_be_null_or_empty(bootstrap: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    produce(
        bootstrap,
        topic,
        [
            {"key": None, "value": None},
            {"key": b"", "value": b""},
            {"key": b"k", "value": None, "headers": headers},
        ],
    )
    first, second, third = consume(bootstrap, topic, 3)
    assert (first.key(), first.value()) == (None, None)
    assert (second.key(), second.value()) == (b"", b"")
    assert (third.key(), third.value(), third.headers()) == (b"k", None, headers)


def test_a_message_of_900_kilobytes_is_accepted(bootstrap: str, topic: str) -> None:
    value = bytes(range(256)) * 3600
    produce(bootstrap, topic, [{"value": value}] * 3)
    assert [message.value() for message in consume(bootstrap, topic, 3)] == [value] * 3


def test_a_message_above_the_topics_limit_is_refused(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[KafkaError] = []
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_an_unknown_partition_is_refused(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    errors: list[KafkaError] = []
    try:
        producer.produce(
            topic, b"x", partition=9, on_delivery=lambda error, _: errors.append(error)
        )
    except KafkaException as refused:
        # librdkafka raises the error at once if it already has the metadata of the topic.
        errors.append(refused.args[0])
    producer.flush(WAIT_S)
    assert errors[0].code() == KafkaError._UNKNOWN_PARTITION


def test_reading_starts_at_any_offset(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": b"%d" % number} for number in range(1000)])
    assert [m.value() for m in consume(bootstrap, topic, 3, offset=500)] == [b"500", b"501", b"502"]


def test_offsets_are_found_by_timestamp(bootstrap: str, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    times = [now_ms - 50_000 + 1000 * number for number in range(50)]
    for at in times:
        produce(bootstrap, topic, [{"value": b"v", "timestamp": at}])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    cases = [(times[20], 20), (times[20] - 1, 20), (times[20] + 1, 21), (0, 0), (times[-1] + 1, -1)]
    for at, offset in cases:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, at)], WAIT_S)
        assert found.offset == offset, at - times[0]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 50)
    consumer.close()


def test_log_append_time_replaces_the_producers_time(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(bootstrap, topic, [{"value": b"v", "timestamp": 1000}])
    kind, at = consume(bootstrap, topic, 1)[0].timestamp()
    assert kind == 2
    assert before_ms <= at <= int(time.time() * 1000)


def test_an_offset_out_of_range_follows_the_reset_policy(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": b"first"}])
    messages = consume(bootstrap, topic, 1, offset=1000, **{"auto.offset.reset": "earliest"})
    assert messages[0].value() == b"first"


def test_a_waiting_consumer_gets_a_record_immediately(bootstrap: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            # Longer than this test waits, so only the record can complete the fetch.
            "fetch.wait.max.ms": 200_000,
            "socket.timeout.ms": 250_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(1.0) is None
    produce(bootstrap, topic, [{"value": b"now"}])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.value() == b"now"
    consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_works(bootstrap: str, topic: str, acks: str) -> None:
    produce(bootstrap, topic, [{"value": b"%d" % n} for n in range(100)], acks=acks)
    assert len(consume(bootstrap, topic, 100)) == 100


def test_offsets_are_committed_and_found_again(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": b"v"}] * 10)
    group = f"group-of-{topic}"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0)])
    (before,) = find_committed(consumer, TopicPartition(topic, 0))
    assert before.offset == -1001
    commit_offsets(consumer, TopicPartition(topic, 0, 7, metadata="note"))
    (found,) = find_committed(consumer, TopicPartition(topic, 0))
    assert (found.offset, found.metadata) == (7, "note")
    consumer.close()


def test_missing_topics_are_created_for_producers(bootstrap: str) -> None:
    topic = f"made-by-producing-{time.time_ns()}"
    produce(bootstrap, topic, [{"value": b"v", "partition": -1}])
    assert consume(bootstrap, topic, 1)[0].value() == b"v"
