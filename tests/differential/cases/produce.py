"""Produce: appended batches, and every kind of error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.rules import HOUR_MS
from differential.scene import NOW_MS, Scene, batch, produce
from differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values

PRODUCE = ApiKey.PRODUCE


def to(topic: str, records: bytes | None, **options: int) -> Callable[[Side], Values]:
    """Return a Produce with the name of a topic and its id on each broker."""
    return lambda side: produce(topic, records, topic_id=side.topic_id(topic), **options)


@case(PRODUCE)
def a_batch_and_another(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(to(topic, batch(b"a", b"b")))
    scene.compare(to(topic, batch(b"c")))


@case(PRODUCE)
def acks_1(scene: Scene) -> None:
    scene.compare(to(scene.topic(), batch(b"a"), acks=1))


@case(PRODUCE)
def acks_2_is_refused(scene: Scene) -> None:
    scene.compare(to(scene.topic(), batch(b"a"), acks=2))


@case(PRODUCE)
def acks_0_has_no_response(scene: Scene) -> None:
    scene.compare_silence(to(scene.topic(), batch(b"a"), acks=0))


@case(PRODUCE)
def acks_0_to_an_unknown_partition_closes_the_connection(scene: Scene) -> None:
    scene.compare_silence(to(scene.topic(), batch(b"a"), acks=0, partition=5))


@case(PRODUCE)
def log_append_time(scene: Scene) -> None:
    topic = scene.topic(message_timestamp_type="LogAppendTime")
    scene.compare(to(topic, batch(b"a", b"b")))
    scene.compare(to(topic, batch(b"a" * 200, compression=1)))


@case(PRODUCE)
def an_unknown_topic(scene: Scene) -> None:
    scene.compare(produce("absent", batch(b"a"), topic_id=b"\x07" * 16))


@case(PRODUCE)
def a_topic_without_name_or_id(scene: Scene) -> None:
    scene.compare(produce("", batch(b"a")))


@case(PRODUCE)
def a_name_that_no_topic_can_have(scene: Scene) -> None:
    scene.compare(produce("a/b", batch(b"a"), topic_id=b"\x07" * 16))


@case(PRODUCE)
def unknown_partitions(scene: Scene) -> None:
    topic = scene.topic(2)
    for partition in (2, -1, 0x7FFFFFFF):
        scene.compare(to(topic, batch(b"a"), partition=partition))


@case(PRODUCE)
def an_unknown_partition_beside_known_partitions(scene: Scene) -> None:
    topic = scene.topic(2)

    def values(side: Side) -> Values:
        data = [{"index": index, "records": batch(b"a")} for index in (1, 7, 0)]
        named = {"name": topic, "topic_id": side.topic_id(topic), "partition_data": data}
        other = {"name": "absent", "topic_id": b"\x07" * 16, "partition_data": data[:1]}
        return {"acks": -1, "timeout_ms": 5000, "topic_data": [other, named]}

    scene.compare(values)


@case(PRODUCE)
def no_topics(scene: Scene) -> None:
    scene.compare({"acks": -1, "timeout_ms": 1000, "topic_data": []})


@case(PRODUCE)
def a_topic_without_partitions(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(
        lambda side: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": topic, "topic_id": side.topic_id(topic), "partition_data": []}],
        }
    )


@case(PRODUCE)
def no_records(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(to(topic, b""))


@case(PRODUCE, [9])
def records_that_are_null(scene: Scene) -> None:
    scene.compare_pending(to(scene.topic(), None))


@case(PRODUCE)
def an_internal_topic(scene: Scene) -> None:
    scene.compare(
        produce("__consumer_offsets", batch(b"a"), topic_id=b"\x07" * 16),
    )


@case(PRODUCE)
def a_wrong_checksum(scene: Scene) -> None:
    damaged = bytearray(batch(b"a" * 50))
    damaged[-3] ^= 1
    scene.compare(to(scene.topic(), bytes(damaged)))


@case(PRODUCE)
def a_batch_cut_short(scene: Scene) -> None:
    topic = scene.topic()
    whole = batch(b"a" * 50)
    for size in (5, 17, 60, 61, len(whole) - 1):
        scene.compare(to(topic, whole[:size]))


@case(PRODUCE)
def bytes_behind_the_batch(scene: Scene) -> None:
    topic = scene.topic()
    for tail in (b"\0", b"\0" * 11, b"\0" * 20, b"\xff" * 64):
        scene.compare(to(topic, batch(b"a") + tail))


@case(PRODUCE)
def two_batches_in_one_partition(scene: Scene) -> None:
    scene.compare(to(scene.topic(), batch(b"a") + batch(b"b")))


@case(PRODUCE)
def wrong_header_fields(scene: Scene) -> None:
    """Send batches with one wrong header field each, and a correct checksum."""
    topic = scene.topic()
    for position, size, value in (
        (16, 1, 3),  # magic from the future
        (16, 1, 0xFF),  # magic -1
        (21, 2, 0x07),  # an unknown compression
        (21, 2, 0x20),  # a control batch
        (21, 2, 0x40),  # a delete horizon
        (21, 2, 0x80),  # an unknown attribute
        (23, 4, 5),  # last offset delta beyond the count
        (23, 4, 0xFFFFFFFF),  # last offset delta -1
        (57, 4, 0),  # no records
        (57, 4, 0xFFFFFFFF),  # -1 records
        (57, 4, 7),  # more records than there are
    ):
        scene.compare(to(topic, patched(batch(b"a", b"b"), position, size, value)))


@case(PRODUCE)
def wrong_lengths(scene: Scene) -> None:
    topic = scene.topic()
    for length in (0, 13, 48, 49, 500, 0x7FFFFFFF, 0xFFFFFFFF):
        damaged = bytearray(batch(b"a", b"b"))
        damaged[8:12] = length.to_bytes(4, "big")
        scene.compare(to(topic, bytes(damaged)))


@case(PRODUCE)
def base_offsets_other_than_0(scene: Scene) -> None:
    topic = scene.topic()
    for offset in (1, 77, (1 << 64) - 1):
        scene.compare(to(topic, patched(batch(b"a"), 0, 8, offset)))


@case(PRODUCE)
def a_transactional_batch_without_a_transaction(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()

    def values(side: Side) -> Values:
        records = batch(
            b"a",
            producer_id=side.number("producer"),
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        return produce(topic, records, topic_id=side.topic_id(topic))

    scene.compare(values)


@case(PRODUCE)
def each_compression(scene: Scene) -> None:
    topic = scene.topic()
    for code in range(5):
        scene.compare(to(topic, batch(b"a" * 300, b"b" * 300, compression=code)))


@case(PRODUCE)
def invalid_compressed_bytes(scene: Scene) -> None:
    topic = scene.topic()
    for code in range(1, 5):
        scene.compare(to(topic, patched(batch(b"a", b"b"), 21, 2, code)))


@case(PRODUCE)
def a_topic_that_recompresses(scene: Scene) -> None:
    topic = scene.topic(compression_type="gzip")
    scene.compare(to(topic, batch(b"a" * 300, b"b")))
    scene.compare(to(topic, batch(b"a" * 300, b"b", compression=1)))


@case(PRODUCE)
def a_batch_above_max_message_bytes(scene: Scene) -> None:
    topic = scene.topic(max_message_bytes="200")
    scene.compare(to(topic, batch(b"a" * 100)))
    scene.compare(to(topic, batch(b"a" * 200)))


@case(PRODUCE)
def a_batch_above_segment_bytes(scene: Scene) -> None:
    topic = scene.topic(segment_bytes="1048576", max_message_bytes="3000000")
    scene.compare(to(topic, batch(b"a" * 1_100_000)))


@case(PRODUCE)
def keys_that_compaction_needs(scene: Scene) -> None:
    scene.compare(to(scene.topic(cleanup_policy="compact"), batch(b"without a key")))


@case(PRODUCE)
def times_out_of_bounds(scene: Scene) -> None:
    topic = scene.topic(
        message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    for delta in (-100_000, 4 * HOUR_MS):
        scene.compare(to(topic, timed(NOW_MS + delta)))
    scene.compare(to(topic, timed(-1)))


@case(PRODUCE)
def sequences(scene: Scene) -> None:
    """In order, repeated, out of order, with a higher epoch, and again with the old epoch."""
    topic = scene.topic()
    scene.producer()
    for sequence, epoch in (
        (0, 0),
        (2, 0),
        (2, 0),
        (0, 0),
        (8, 0),
        (1, 0),
        (4, 0),
        (6, 1),
        (0, 1),
        (6, 0),
        (0, 5),
        (-1, 5),
    ):
        scene.compare(sequenced(topic, sequence, epoch))


@case(PRODUCE)
def a_sequence_that_begins_late(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    scene.compare(sequenced(topic, 5, 0))
    scene.compare(sequenced(topic, 6, 0))


@case(PRODUCE)
def a_sequence_older_than_five_batches(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    for sequence in (0, 2, 4, 6, 8, 10, 0, 2, 10, 12):
        scene.compare(sequenced(topic, sequence, 0))


@case(PRODUCE)
def sequences_that_wrap(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()
    for sequence in (0x7FFFFFFE, 0, 0x7FFFFFFE):
        scene.compare(sequenced(topic, sequence, 0))


@case(PRODUCE)
def a_producer_id_that_was_never_assigned(scene: Scene) -> None:
    topic = scene.topic()
    for sequence in (0, 2, 9):
        records = batch(
            b"a", b"b", producer_id=987_654_321, producer_epoch=3, base_sequence=sequence
        )
        scene.compare(to(topic, records))


@case(PRODUCE)
def a_producer_without_sequence_or_epoch(scene: Scene) -> None:
    topic = scene.topic()
    for epoch, sequence in ((0, -1), (-1, 0), (-1, -1)):
        records = batch(b"a", producer_id=987_654_321, producer_epoch=epoch, base_sequence=sequence)
        scene.compare(to(topic, records))


@case(PRODUCE)
def timeouts_of_0_and_below(scene: Scene) -> None:
    topic = scene.topic()
    for timeout_ms in (0, -1):
        scene.compare(
            lambda side, timeout_ms=timeout_ms: {
                **to(topic, batch(b"a"))(side),
                "timeout_ms": timeout_ms,
            }
        )


@case(PRODUCE)
def too_few_replicas(scene: Scene) -> None:
    topic = scene.topic(min_insync_replicas="2")
    scene.compare(to(topic, batch(b"a"), acks=-1))
    scene.compare(to(topic, batch(b"a"), acks=1))


@case(PRODUCE)
def a_transactional_id_without_a_transaction(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(
        lambda side: {**to(topic, batch(b"a"))(side), "transactional_id": "no-transaction"}
    )


@case(PRODUCE)
def the_same_partition_twice(scene: Scene) -> None:
    topic = scene.topic()

    def values(side: Side) -> Values:
        data = [{"index": 0, "records": batch(value)} for value in (b"a", b"b")]
        named = {"name": topic, "topic_id": side.topic_id(topic), "partition_data": data}
        return {"acks": -1, "timeout_ms": 5000, "topic_data": [named]}

    scene.compare(values)


def patched(records: bytes, position: int, size: int, value: int) -> bytes:
    """Return a batch with changed bytes in its header and a correct checksum."""
    from crc32c import crc32c

    made = bytearray(records)
    made[position : position + size] = value.to_bytes(size, "big")
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


def timed(timestamp_ms: int) -> bytes:
    """Return a batch of one record with a timestamp."""
    from barnabas.record.builder import BatchBuilder

    builder = BatchBuilder()
    builder.append(timestamp_ms, None, b"a")
    return bytes(builder.build())


def sequenced(topic: str, sequence: int, epoch: int) -> Callable[[Side], Values]:
    """Return a Produce of two records of the scene's producer."""

    def values(side: Side) -> Values:
        records = batch(
            b"a",
            b"b",
            producer_id=side.number("producer"),
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return produce(topic, records, topic_id=side.topic_id(topic))

    return values


@case(PRODUCE)
def a_transactional_batch_with_an_id_that_has_no_transaction(scene: Scene) -> None:
    topic = scene.topic()
    scene.producer()

    def values(side: Side) -> Values:
        records = batch(
            b"a",
            producer_id=side.number("producer"),
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        return {
            **produce(topic, records, topic_id=side.topic_id(topic)),
            "transactional_id": "no-transaction",
        }

    scene.compare(values)
