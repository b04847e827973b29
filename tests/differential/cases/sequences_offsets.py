"""ListOffsets of many logs: empty, truncated, compacted, with times in and out of order.

The requested times are those of the records, one millisecond before and after them, and the special
times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.record.builder import BatchBuilder
from differential.case import case
from differential.cases.list_offsets import SPECIAL, at
from differential.cases.sequences_produce import cut, next_millisecond
from differential.scene import NOW_MS, Scene, batch, exchange, produce

if TYPE_CHECKING:
    from collections.abc import Sequence

    from differential.side import Side

LIST_OFFSETS = ApiKey.LIST_OFFSETS
# Two records of this size fill a segment of the smallest size that Kafka accepts.
FILLER = 400_000
SEGMENT = {"segment_bytes": "1048576"}


def timed(
    timestamps: Sequence[int], *, size: int = 1, keys: Sequence[bytes | None] = (), **options: int
) -> bytes:
    """Return a batch of records at NOW_MS plus each of the times."""
    builder = BatchBuilder(**options)
    for index, timestamp in enumerate(timestamps):
        key = keys[index] if keys else b"key"
        builder.append(NOW_MS + timestamp, key, b"v" * size)
    return bytes(builder.build())


def compare_offsets(scene: Scene, topic: str, *times: int, isolation_level: int = 0) -> None:
    """Compare offsets at the special times and around other times."""
    around = sorted({NOW_MS + each + delta for each in times for delta in (-1, 0, 1)})
    for timestamp in (*SPECIAL, 0, *around, 1 << 62):
        scene.compare(at(topic, timestamp, isolation_level=isolation_level))


@case(LIST_OFFSETS)
def an_empty_log(scene: Scene) -> None:
    compare_offsets(scene, scene.topic(), 0)


@case(LIST_OFFSETS, [1, 5, 7, 11])
def times_in_order(scene: Scene) -> None:
    topic = scene.topic()
    for timestamp in (0, 10, 20):
        scene.produce(topic, timed((timestamp, timestamp + 5)))
    compare_offsets(scene, topic, 0, 5, 10, 15, 20, 25)


@case(LIST_OFFSETS, [1, 7, 11])
def times_out_of_order(scene: Scene) -> None:
    """The result is the first record by offset at or after the time."""
    topic = scene.topic()
    for timestamps in ((50, 10, 30), (5, 40), (60, 60, 1), (2,), (60,)):
        scene.produce(topic, timed(timestamps))
    compare_offsets(scene, topic, 1, 2, 5, 10, 30, 40, 50, 60)


@case(LIST_OFFSETS, [1, 7, 11])
def equal_times(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(3):
        scene.produce(topic, timed((7, 7, 7)))
    compare_offsets(scene, topic, 7)


@case(LIST_OFFSETS, [7, 11])
def times_in_compressed_batches(scene: Scene) -> None:
    topic = scene.topic()
    for code in range(1, 5):
        scene.produce(topic, timed((10 * code, 10 * code + 8, 10 * code + 4), compression=code))
    compare_offsets(scene, topic, 10, 18, 14, 28, 38, 48, 44)


@case(LIST_OFFSETS, [1, 7, 11])
def records_without_timestamps(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(2):
        scene.produce(topic, timed((-1 - NOW_MS, -1 - NOW_MS)))
    compare_offsets(scene, topic, 0)


@case(LIST_OFFSETS, [7, 11])
def some_records_without_timestamps(scene: Scene) -> None:
    topic = scene.topic()
    for timestamp in (-1 - NOW_MS, 5, -1 - NOW_MS):
        scene.produce(topic, timed((timestamp,)))
    compare_offsets(scene, topic, 5)


@case(LIST_OFFSETS, [1, 7, 11])
def log_append_times(scene: Scene) -> None:
    topic = scene.topic(message_timestamp_type="LogAppendTime")
    for timestamp in (10_000_000_000, -10_000):
        scene.produce(topic, timed((timestamp, 0)))
        next_millisecond()
    compare_offsets(scene, topic, -10_000, 0)


@case(LIST_OFFSETS, [1, 4, 7, 11])
def a_log_whose_records_are_deleted(scene: Scene) -> None:
    """Delete records up to the middle of a batch, up to the end of a batch, and all."""
    topic = scene.topic()
    for timestamp in (0, 10, 20):
        scene.produce(topic, timed((timestamp, timestamp + 5)))
    for offset in (1, 2, 6):
        cut(scene, topic, offset)
        compare_offsets(scene, topic, 0, 5, 10, 25)
    scene.produce(topic, timed((3,)))
    compare_offsets(scene, topic, 3, 25)


@case(LIST_OFFSETS, [1, 7, 11])
def several_segments(scene: Scene) -> None:
    topic = scene.topic(**SEGMENT)
    times = (0, 100, 50, 70, 200, 60, 150)
    for timestamp in times:
        scene.produce(topic, timed((timestamp,), size=FILLER))
    compare_offsets(scene, topic, *times)


@case(LIST_OFFSETS, [1, 7, 11])
def several_segments_cut(scene: Scene) -> None:
    topic = scene.topic(**SEGMENT)
    times = (0, 300, 50, 70, 200, 60, 150)
    for timestamp in times:
        scene.produce(topic, timed((timestamp,), size=FILLER))
    for offset in (1, 3, 6):
        cut(scene, topic, offset)
        # Kafka finds no record for some times until the segments below the start are deleted.
        scene.until(lambda side, offset=offset: offset_at(side, topic, 0) == offset)
        compare_offsets(scene, topic, *times)


def offset_at(side: Side, topic: str, timestamp: int) -> int:
    """Return the offset of a time."""
    response = exchange(side, LIST_OFFSETS, 7, at(topic, timestamp))
    offset: int = response.topics[0].partitions[0].offset
    return offset


@case(LIST_OFFSETS, [1, 7, 11])
def a_compacted_log(scene: Scene) -> None:
    """Overwritten records are removed with their times; the last segment is unchanged."""
    topic = scene.topic(**SEGMENT, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    keys = (b"a", b"b", b"a", b"c", b"b", b"d")
    for index, key in enumerate(keys):
        scene.produce(topic, timed((index * 10,), size=FILLER, keys=(key,)))
    scene.until(lambda side: offset_at(side, topic, 0) == 1)
    compare_offsets(scene, topic, *(index * 10 for index in range(len(keys))))


@case(LIST_OFFSETS, [1, 7, 11])
def a_log_that_retention_has_cut(scene: Scene) -> None:
    topic = scene.topic(**SEGMENT, retention_bytes="900000")
    for index in range(7):
        scene.produce(topic, timed((index * 10,), size=FILLER))

    # Each segment has two records; retention.bytes keeps the records from this offset.
    scene.until(lambda side: offset_at(side, topic, -2) == 4)
    compare_offsets(scene, topic, *(index * 10 for index in range(7)))


@case(LIST_OFFSETS, [2, 7, 11])
def committed_records(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, timed((0, 10)))
    compare_offsets(scene, topic, 0, 10, isolation_level=1)


@case(LIST_OFFSETS, [4, 11])
def epochs_of_the_leader(scene: Scene) -> None:
    """Compare each special time with the current, an older and a newer epoch."""
    full, empty = scene.topic(), scene.topic()
    scene.produce(full, batch(b"a"))
    for topic in (full, empty):
        for timestamp in (-1, -2, -3, -4, -5, NOW_MS):
            for epoch in (-1, 0, 1):
                scene.compare(at(topic, timestamp, epoch=epoch))


@case(LIST_OFFSETS, [11])
def while_records_wait_for_replicas_that_are_not_there(scene: Scene) -> None:
    topic = scene.topic(min_insync_replicas="2")
    scene.do(ApiKey.PRODUCE, 9, produce(topic, timed((0,)), acks=1))
    scene.do(ApiKey.PRODUCE, 9, produce(topic, timed((5,)), acks=-1))
    compare_offsets(scene, topic, 0, 5)
