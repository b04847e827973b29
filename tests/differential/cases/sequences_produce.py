"""Produce with all values of acks, and the resulting log: refused batches leave no trace.

A batch is a row of `BATCHES`. It is sent between two valid batches, to a topic with the configs of
the row. Then the log, its offsets and its producers are compared.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from differential.case import CASES, Case, case
from differential.cases.fetch import fetching
from differential.cases.list_offsets import at
from differential.cases.produce import patched, to
from differential.rules import HOUR_MS
from differential.scene import NOW_MS, Scene, batch, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

PRODUCE, FETCH, LIST_OFFSETS = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS
PRODUCERS, DELETE_RECORDS = ApiKey.DESCRIBE_PRODUCERS, ApiKey.DELETE_RECORDS
# No broker of the tests has assigned this id, so that the bytes are the same on both brokers.
PRODUCER_ID = 900_000_001
DAY_MS = 86_400_000


def compare_log(scene: Scene, topic: str, partition: int = 0) -> None:
    """Compare the records, offsets and producers of a partition."""
    scene.compare(fetching(topic, partition=partition), FETCH, 12)
    for timestamp in (-1, -2, -3):
        scene.compare(at(topic, timestamp, partition=partition), LIST_OFFSETS, 9)
    requested = [{"name": topic, "partition_indexes": [partition]}]
    scene.compare({"topics": requested}, PRODUCERS, 0)


def next_millisecond() -> None:
    """Wait until a broker that stamps records gives the next one a later timestamp."""
    time.sleep(0.002)


def cut(scene: Scene, topic: str, offset: int) -> None:
    """Delete the records below an offset."""
    partitions = [{"partition_index": 0, "offset": offset}]
    requested = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}
    scene.compare(requested, DELETE_RECORDS, 2)


def keyed(*timestamps: int, key: bytes | None = b"key", **options: int) -> bytes:
    """Return a batch of records with these timestamps."""
    builder = BatchBuilder(**options)
    for timestamp in timestamps:
        builder.append(timestamp, key, b"value")
    return bytes(builder.build())


def message_set(magic: int, compression: int = 0) -> bytes:
    """Return two records in the format of magic 0 or 1."""
    timestamp = -1 if magic == 0 else NOW_MS
    records = [Record(offset, timestamp, 0, b"key", b"value") for offset in range(2)]
    return write_message_set(magic, records, compression)


class Row(NamedTuple):
    """A batch or invalid bytes, and the configs of the topic."""

    name: str
    records: bytes
    configs: dict[str, str]


def damaged(records: bytes) -> bytes:
    return records[:-3] + bytes([records[-3] ^ 1]) + records[-2:]


LONG = batch(b"a" * 300)
PAST = {"message_timestamp_before_max_ms": str(DAY_MS)}
FUTURE = {"message_timestamp_after_max_ms": "1000"}
STAMPS = {"message_timestamp_type": "LogAppendTime"}
PAIR = keyed(NOW_MS, NOW_MS + 5)

BATCHES = (
    Row("no-bytes", b"", {}),
    Row("a-wrong-checksum", damaged(LONG), {}),
    Row("half-a-batch", LONG[:200], {}),
    Row("half-a-header", LONG[:30], {}),
    Row("a-batch-and-half-another", LONG + LONG[:100], {}),
    Row("two-batches", PAIR + PAIR, {}),
    Row("a-good-batch-and-a-damaged-one", PAIR + damaged(LONG), {}),
    Row("magic-0", message_set(0), {}),
    Row("magic-1", message_set(1), {}),
    Row("magic-0-compressed", message_set(0, 1), {}),
    Row("magic-1-compressed", message_set(1, 1), {}),
    Row("magic-3", patched(PAIR, 16, 1, 3), {}),
    Row("a-size-too-small", PAIR[:8] + (40).to_bytes(4, "big") + PAIR[12:], {}),
    Row("a-negative-size", PAIR[:8] + b"\xff\xff\xff\xff" + PAIR[12:], {}),
    Row("a-batch-too-large", LONG, {"max_message_bytes": "250"}),
    Row("a-batch-just-fits", LONG, {"max_message_bytes": str(len(LONG))}),
    Row("a-byte-too-many", LONG, {"max_message_bytes": str(len(LONG) - 1)}),
    Row(
        "compressed-it-would-fit",
        LONG,
        {"max_message_bytes": "250", "compression_type": "gzip"},
    ),
    Row("compressed-it-fits", batch(b"a" * 900, compression=1), {"max_message_bytes": "250"}),
    Row("too-long-ago", keyed(NOW_MS - DAY_MS), PAST),
    Row("too-far-ahead", keyed(NOW_MS + DAY_MS), FUTURE),
    Row("one-too-far-ahead", keyed(NOW_MS, NOW_MS + DAY_MS, NOW_MS), FUTURE),
    Row("one-too-long-ago", keyed(NOW_MS + 9_000_000, NOW_MS - DAY_MS), PAST),
    Row("too-far-ahead-compressed", keyed(NOW_MS + DAY_MS, compression=1), FUTURE),
    Row("two-hours-ahead", keyed(NOW_MS + 5 * HOUR_MS), {}),
    Row("without-a-time", keyed(-1), {}),
    Row("without-a-time-limited", keyed(-1), PAST),
    Row("a-time-below-none", keyed(-2), {}),
    Row("long-ago-where-the-broker-stamps", keyed(0), {**STAMPS, **PAST}),
    Row("out-of-order-times", keyed(NOW_MS + 9, NOW_MS, NOW_MS + 4), {}),
    Row("a-largest-time-too-small", patched(PAIR, 35, 8, NOW_MS - 7), {}),
    Row("a-largest-time-too-large", patched(PAIR, 35, 8, NOW_MS + 99), {}),
    Row("stamped-by-the-client", patched(PAIR, 21, 2, 0x08), {}),
    Row("stamped-by-the-client-where-the-broker-does", patched(PAIR, 21, 2, 0x08), STAMPS),
    Row("no-key-where-compacted", batch(b"a"), {"cleanup_policy": "compact"}),
    Row("one-without-key", batch(b"a", b"b"), {"cleanup_policy": "compact,delete"}),
    Row("a-key-where-compacted", PAIR, {"cleanup_policy": "compact"}),
    Row("a-control-batch", patched(PAIR, 21, 2, 0x20), {}),
    Row("a-leader-epoch-of-its-own", patched(PAIR, 12, 4, 99), {}),
    Row("base-offset-99", patched(PAIR, 0, 8, 99), {}),
    Row("offset-deltas-beyond", patched(PAIR, 23, 4, 9), {}),
    Row("more-records-than-there-are", patched(PAIR, 57, 4, 3), {}),
    Row("no-records", patched(PAIR, 57, 4, 0), {}),
    Row("transactional", batch(b"a", transactional=True), {}),
    Row(
        "transactional-of-a-producer",
        batch(b"a", transactional=True, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0),
        {},
    ),
    Row("zstd", batch(b"a" * 300, compression=4), {}),
    Row("an-unknown-compression", patched(PAIR, 21, 2, 6), {}),
    Row("too-few-replicas", PAIR, {"min_insync_replicas": "2"}),
)


def play(scene: Scene, row: Row) -> None:
    topic = scene.topic(**row.configs)
    scene.compare(to(topic, keyed(NOW_MS)))
    for acks in (-1, 1):
        scene.compare(to(topic, row.records, acks=acks))
    scene.compare_silence(to(topic, row.records, acks=0))
    next_millisecond()
    scene.compare(to(topic, keyed(NOW_MS + 1)))
    compare_log(scene, topic)


for _row in BATCHES:
    _play = partial(play, row=_row)
    CASES.append(Case(PRODUCE, f"log-after-{_row.name}", _play, frozenset((3, 13))))


@case(PRODUCE, [9, 13])
def refused_batches_beside_accepted_batches(scene: Scene) -> None:
    topic, other = scene.topic(3), scene.topic(max_message_bytes="100")

    def values(side: Side) -> Values:
        records = [PAIR, damaged(PAIR), PAIR]
        data = [{"index": index, "records": each} for index, each in enumerate(records)]
        large = [{"index": 0, "records": LONG}, {"index": 1, "records": PAIR}]
        return {
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [
                {"name": other, "topic_id": side.topic_id(other), "partition_data": large},
                {"name": topic, "topic_id": side.topic_id(topic), "partition_data": data},
            ],
        }

    scene.compare(values)
    for partition in range(3):
        compare_log(scene, topic, partition)
    compare_log(scene, other)


@case(PRODUCE, [13])
def into_a_log_whose_records_are_deleted(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(to(topic, keyed(NOW_MS, NOW_MS)))
    for offset in (1, 2):
        cut(scene, topic, offset)
        compare_log(scene, topic)
    scene.compare(to(topic, keyed(NOW_MS)))
    compare_log(scene, topic)
    cut(scene, topic, -1)
    compare_log(scene, topic)


# Batches of an idempotent producer.


def batch_of_producer(
    topic: str, sequence: int, epoch: int = 0, **more: int
) -> Callable[[Side], Values]:
    """Return a Produce of a batch of the producer, by default with two records."""
    count, partition = more.pop("count", 2), more.pop("partition", 0)
    acks, producer_id = more.pop("acks", -1), more.pop("producer_id", PRODUCER_ID)
    records = batch(
        *(b"value" for _ in range(count)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )
    return to(topic, records, partition=partition, acks=acks)


def compare_batches(
    scene: Scene, topic: str, *sequences: tuple[int, ...] | int, **more: int
) -> None:
    """Send batches in turn, each given by its sequence, or by sequence, epoch and count."""
    for each in sequences:
        given = each if isinstance(each, tuple) else (each,)
        sequence, epoch, count = (*given, *(0, 0, 2)[len(given) :])
        scene.compare(batch_of_producer(topic, sequence, epoch, count=count, **more))


@case(PRODUCE, [13])
def duplicates_of_the_last_five_batches_and_older(scene: Scene) -> None:
    for acks in (-1, 1):
        topic = scene.topic()
        compare_batches(scene, topic, *range(0, 14, 2), acks=acks)
        compare_batches(scene, topic, *range(0, 14, 2), acks=acks)
        compare_log(scene, topic)
        compare_batches(scene, topic, 14, 4, 6, 14, 12)
        compare_log(scene, topic)


@case(PRODUCE, [13])
def batches_that_overlap(scene: Scene) -> None:
    topic = scene.topic()
    compare_batches(scene, topic, (0, 0, 4), (4, 0, 4))
    # The same beginning, the same end, inside, over both batches, beyond the end.
    compare_batches(scene, topic, (4, 0, 2), (6, 0, 2), (5, 0, 2), (0, 0, 8), (6, 0, 4), (7, 0, 1))
    compare_batches(scene, topic, (0, 0, 4), (4, 0, 4), (8, 0, 1))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def gaps(scene: Scene) -> None:
    topic = scene.topic()
    compare_batches(scene, topic, 0, 3, 100, 2, 2_147_483_647, 5, 4)
    compare_log(scene, topic)


@case(PRODUCE, [13])
def sequences_wrap_around(scene: Scene) -> None:
    last = 0x7FFFFFFF
    for before in (last, last - 1, last - 2):
        topic = scene.topic()
        # The first batch begins below the last sequence; the next batch wraps around or begins at
        # 0.
        compare_batches(
            scene, topic, (before - 1, 0, 2), (before + 1 if before < last else 0, 0, 3)
        )
        compare_batches(
            scene, topic, (before + 1 if before < last else 0, 0, 3), (before - 1, 0, 2)
        )
        compare_batches(scene, topic, 0, 1, 2, 3, 4)
        compare_log(scene, topic)


@case(PRODUCE, [13])
def epochs_that_grow_and_shrink(scene: Scene) -> None:
    topic = scene.topic()
    compare_batches(scene, topic, 0, 2, (4, 1), (0, 1), (2, 0), (0, 0), (4, 0), (2, 1), (0, 1))
    compare_log(scene, topic)
    compare_batches(scene, topic, (7, 5), (0, 5), (0, 32767), (2, 32767), (0, 0), (0, 32767))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def producers_that_begin_anywhere(scene: Scene) -> None:
    for sequence, epoch in ((0, 0), (1, 0), (77, 3), (0x7FFFFFFF, 0), (0, 32767)):
        topic = scene.topic()
        compare_batches(scene, topic, (sequence, epoch), (sequence, epoch), (0, epoch), (0, epoch))
        compare_log(scene, topic)


@case(PRODUCE, [13])
def a_producer_whose_records_are_deleted(scene: Scene) -> None:
    topic = scene.topic()
    compare_batches(scene, topic, 0, 2, 4)
    cut(scene, topic, 4)
    compare_batches(scene, topic, 0, 4, 6)
    compare_log(scene, topic)
    cut(scene, topic, -1)
    compare_log(scene, topic)
    compare_batches(scene, topic, 6, 0, 2, 9, 8, 10, (0, 1), (2, 1), (10, 0))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def several_producers_at_once(scene: Scene) -> None:
    topic = scene.topic(2)
    for sequence in (0, 2, 0, 6, 4):
        for number in range(3):
            producer_id = PRODUCER_ID + number
            scene.compare(batch_of_producer(topic, sequence, number, producer_id=producer_id))
        scene.compare(batch_of_producer(topic, sequence, partition=1))
    for partition in range(2):
        scene.compare(fetching(topic, partition=partition), FETCH, 12)


@case(PRODUCE, [9, 13])
def several_batches_of_a_producer_in_one_request(scene: Scene) -> None:
    topic = scene.topic(3)

    def of_producer(sequence: int, epoch: int = 0) -> bytes:
        return batch(b"a", producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence)

    def request(*parts: tuple[int, bytes]) -> Callable[[Side], Values]:
        data = [{"index": index, "records": records} for index, records in parts]
        return lambda side: {
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [
                {"name": topic, "topic_id": side.topic_id(topic), "partition_data": data}
            ],
        }

    scene.compare(request((0, of_producer(0) + of_producer(1))))
    scene.compare(request((0, of_producer(0)), (1, of_producer(0)), (2, of_producer(5))))
    scene.compare(request((0, of_producer(1)), (1, of_producer(9)), (2, of_producer(6))))
    scene.compare(request((0, of_producer(1)), (1, of_producer(1)), (2, of_producer(5, 1))))
    scene.compare(request((0, of_producer(2)), (1, of_producer(1)), (2, of_producer(0, 1))))
    for partition in range(3):
        compare_log(scene, topic, partition)


@case(PRODUCE, [13])
def a_producer_with_acks_0(scene: Scene) -> None:
    topic = scene.topic()
    for sequence, epoch in ((0, 0), (2, 0), (0, 0), (9, 0), (4, 0), (0, 1), (6, 0)):
        scene.compare_silence(batch_of_producer(topic, sequence, epoch, acks=0))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def a_duplicate_where_the_broker_stamps(scene: Scene) -> None:
    topic = scene.topic(**STAMPS)
    compare_batches(scene, topic, 0, 2, 0, 2)
    next_millisecond()
    compare_batches(scene, topic, 4)
    compare_log(scene, topic)


@case(PRODUCE, [13])
def validation_errors_come_before_sequence_errors(scene: Scene) -> None:
    topic = scene.topic(**FUTURE, max_message_bytes="400")
    compare_batches(scene, topic, 0)
    late = keyed(NOW_MS + DAY_MS, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=7)
    large = batch(b"a" * 500, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=7)
    for records in (late, large, damaged(large[:200]), patched(late, 57, 4, 0)):
        scene.compare(to(topic, records))
    compare_batches(scene, topic, 2)
    compare_log(scene, topic)


@case(PRODUCE, [13])
def a_duplicate_larger_than_a_lowered_limit(scene: Scene) -> None:
    topic = scene.topic()
    compare_batches(scene, topic, (0, 0, 9))
    config = {"name": "max.message.bytes", "config_operation": 0, "value": "90"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    scene.compare({"resources": [resource]}, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    scene.settle()
    compare_batches(scene, topic, (0, 0, 9), (9, 0, 9), (9, 0, 1))
    compare_log(scene, topic)


@case(PRODUCE, [13])
def producers_expire(scene: Scene) -> None:
    """Producers expire after a change of producer.id.expiration.ms."""
    topic = scene.topic()
    compare_batches(scene, topic, 0, 2)

    def change(operation: int) -> Values:
        config = {
            "name": "producer.id.expiration.ms",
            "config_operation": operation,
            "value": "1000",
        }
        return {"resources": [{"resource_type": 4, "resource_name": "", "configs": [config]}]}

    scene.compare(change(0), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    requested = {"topics": [{"name": topic, "partition_indexes": [0]}]}

    def has_expired(side: Side) -> bool:
        found = exchange(side, PRODUCERS, 0, requested).topics[0].partitions[0]
        return not found.active_producers

    scene.until(has_expired)
    scene.compare(change(1), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    scene.settle()
    compare_batches(scene, topic, 7, 2, 9, 7)
    compare_log(scene, topic)
