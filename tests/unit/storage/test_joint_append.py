"""Joint appends: the batches of several requests, with one write and a result for each."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.record.batch import HEADER, BatchHeader, read_header, set_crc
from barnabas.record.record import CorruptBatchError, UnsupportedMagicError
from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import KafkaStorageError, OutOfOrderSequenceError, StorageError
from barnabas.storage.log.batch_inspection import InspectionNeededError
from barnabas.storage.log.validator import ordinary_header, validate
from barnabas.storage.results import AppendInfo, AppendOrigin
from unit.storage.storage_fixtures import (
    DIRECTORY,
    LEADER_EPOCH,
    NOW_MS,
    Bench,
    all_records,
    batch,
    content,
    read,
)

if TYPE_CHECKING:
    from barnabas.storage.log.batch_inspection import JoinedBatch

PRODUCER = 7
HOUR_MS = 3_600_000
CRC_FIELD = BatchHeader._fields.index("crc")
MAX_TIMESTAMP_FIELD = BatchHeader._fields.index("max_timestamp")


def validated(bench: Bench, records: bytes | bytearray) -> JoinedBatch:
    view = memoryview(bytearray(records))
    header = bench.log.appender.validate_for_joint_append(view, bench.clock.wall_ms())
    assert header is not None
    return view, header


def jointly(
    bench: Bench, *batches: bytes | bytearray, epoch: int = LEADER_EPOCH
) -> list[AppendInfo | StorageError]:
    joined = [validated(bench, each) for each in batches]
    return bench.log.appender.append_jointly(joined, epoch, bench.clock.wall_ms())


def of_producer(sequence: int, *values: bytes, producer_id: int = PRODUCER) -> bytearray:
    return batch(
        list(values or [b"v"]),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        timestamp=NOW_MS + sequence,
    )


def offsets(outcomes: list[AppendInfo | StorageError]) -> list[object]:
    """First and last offset of each append, or the class of its error."""
    return [
        type(each) if isinstance(each, StorageError) else (each.first_offset, each.last_offset)
        for each in outcomes
    ]


def writes(bench: Bench) -> list[str]:
    assert bench.disk.call_log is not None
    return [path for operation, path in bench.disk.call_log if operation == "write"]


def test_batches_of_several_requests_are_written_with_one_call() -> None:
    bench = Bench()
    bench.append(batch([b"first"]))
    bench.disk.call_log = []
    outcomes = jointly(bench, batch([b"a", b"b"]), batch([b"c"]), batch([b"d", b"e", b"f"]))
    assert writes(bench) == [f"{DIRECTORY}/00000000000000000000.log"]
    assert offsets(outcomes) == [(1, 2), (3, 3), (4, 6)]
    assert [each.record_count for each in outcomes if isinstance(each, AppendInfo)] == [2, 1, 3]
    assert [record.value for record in all_records(bench.log)] == [
        b"first",
        *b"a b c d e f".split(),
    ]
    assert bench.log.log_end_offset == bench.log.producer_state.map_end_offset == 7


def test_the_second_batch_of_a_producer_follows_the_first_one_of_the_same_write() -> None:
    bench = Bench()
    outcomes = jointly(bench, of_producer(0, b"a", b"b"), of_producer(2), of_producer(3))
    assert offsets(outcomes) == [(0, 1), (2, 2), (3, 3)]
    assert bench.log.producer_state.entries[PRODUCER].last_sequence == 3


def test_a_duplicate_of_a_batch_of_the_same_write_is_not_written() -> None:
    bench = Bench()
    outcomes = jointly(bench, of_producer(0), of_producer(0), of_producer(1), of_producer(0))
    assert offsets(outcomes) == [(0, 0), (0, 0), (1, 1), (0, 0)]
    assert [each.duplicate for each in outcomes if isinstance(each, AppendInfo)] == [
        False, True, False, True,
    ]  # fmt: skip
    assert len(all_records(bench.log)) == 2


def test_a_batch_out_of_order_is_rejected_and_the_others_are_appended() -> None:
    bench = Bench()
    outcomes = jointly(bench, of_producer(0), of_producer(5), batch([b"x"]), of_producer(1))
    assert offsets(outcomes) == [(0, 0), OutOfOrderSequenceError, (1, 1), (2, 2)]
    assert [record.value for record in all_records(bench.log)] == [b"v", b"x", b"v"]


def test_only_rejected_batches_and_duplicates_write_nothing() -> None:
    bench = Bench()
    bench.append(of_producer(0))
    bench.disk.call_log = []
    outcomes = jointly(bench, of_producer(0), of_producer(9))
    assert offsets(outcomes) == [(0, 0), OutOfOrderSequenceError]
    assert writes(bench) == []
    assert bench.log.log_end_offset == 1


def test_a_failed_write_fails_each_request_and_leaves_the_log_as_before() -> None:
    bench = Bench()
    bench.append(of_producer(0))
    entries = dict(bench.log.producer_state.entries)
    bench.disk.faults.append(DiskFault(DIRECTORY, ("write",)))
    outcomes = jointly(bench, of_producer(1), of_producer(1), batch([b"x"]))
    assert offsets(outcomes) == [KafkaStorageError] * 3
    assert bench.log.log_end_offset == 1
    assert bench.log.producer_state.entries == entries
    assert len(bench.failures) == 1
    # Later requests get the error too, jointly or not.
    assert offsets(jointly(bench, of_producer(1), batch([b"x"]))) == [KafkaStorageError] * 2


def test_a_disk_that_gets_full_during_the_write_fails_each_request() -> None:
    bench = Bench()
    bench.append(batch([b"first"]))
    size = bench.log.size
    kept = sum(bench.disk.size(f"{DIRECTORY}/{name}") for name in bench.names())
    first, second = of_producer(0), of_producer(1)
    # The first batch of the write fits, and half of the second one.
    bench.disk.capacity_bytes = kept + len(first) + len(second) // 2
    assert offsets(jointly(bench, first, second)) == [KafkaStorageError] * 2
    assert (bench.log.log_end_offset, bench.log.size) == (1, size)
    bench.disk.capacity_bytes = None
    bench.kill_and_reopen()
    assert offsets(jointly(bench, first, second))[1] == (2, 2)
    assert [record.offset for record in all_records(bench.log)] == [0, 1, 2]


def test_a_write_that_needs_a_new_segment_is_split_as_single_appends_are() -> None:
    config = LogConfig(segment_bytes=600)
    batches = [batch([b"%06d" % number + bytes(90)]) for number in range(9)]
    joint, single = Bench(config), Bench(config)
    for bench in (joint, single):
        bench.append(batch([b"first" + bytes(90)]))
    assert offsets(jointly(joint, *batches)) == [(number, number) for number in range(1, 10)]
    for each in batches:
        single.append(each)
    assert contents(joint) == contents(single)
    assert len(joint.log.segments) > 2


@pytest.mark.parametrize("seed", range(30))
def test_joint_appends_leave_the_same_log_as_single_ones(seed: int) -> None:
    rng = random.Random(seed)
    config = LogConfig(
        segment_bytes=rng.choice((700, 5_000, 1 << 20)),
        index_interval_bytes=rng.choice((1, 300, 4096)),
        flush_messages=rng.choice((1, 7, 1 << 40)),
    )
    joint, single = Bench(config), Bench(config)
    sequences = dict.fromkeys((1, 2, 3), 0)
    for _ in range(20):
        batches = [random_batch(rng, sequences) for _ in range(rng.randint(1, 6))]
        epoch = LEADER_EPOCH + joint.log.log_end_offset // 40
        expected: list[AppendInfo | StorageError] = []
        for each in batches:
            try:
                expected.append(single.append(each, epoch))
            except StorageError as error:
                expected.append(error)
        found = jointly(joint, *batches, epoch=epoch)
        assert offsets(found) == offsets(expected)
    assert contents(joint) == contents(single)
    assert joint.log.producer_state.entries == single.log.producer_state.entries
    assert joint.log.leader_epochs.entries == single.log.leader_epochs.entries
    for bench in (joint, single):
        bench.reopen_cleanly()
    assert contents(joint) == contents(single)


def random_batch(rng: random.Random, sequences: dict[int, int]) -> bytearray:
    """Return a batch of one of the producers, sometimes a duplicate or out of order."""
    values = [bytes(rng.randint(1, 80)) for _ in range(rng.randint(1, 3))]
    producer_id = rng.choice((-1, *sequences))
    if producer_id < 0:
        return batch(list(values), timestamp=NOW_MS + rng.randint(-1_000, 1_000))
    sequence = max(0, sequences[producer_id] + rng.choice((0, 0, 0, -1, 2)))
    if sequence == sequences[producer_id]:
        sequences[producer_id] += len(values)
    return of_producer(sequence, *values, producer_id=producer_id)


def contents(bench: Bench) -> dict[str, bytes]:
    """Return the segments with their indexes."""
    bench.log.sync.flush(force=True)
    return {
        name: bench.disk.read(f"{DIRECTORY}/{name}")
        for name in bench.names()
        if name.endswith(("log", "index"))
    }


def test_a_read_from_each_batch_of_a_joint_append_finds_it() -> None:
    bench = Bench()
    jointly(bench, batch([b"a", b"b"]), batch([b"c"]), batch([b"d"]))
    for offset, value in enumerate((b"a", b"a", b"c", b"d")):
        assert value in content(read(bench.log, offset))[:80]


@pytest.mark.parametrize("seed", range(10))
def test_after_a_power_loss_each_batch_of_a_joint_append_is_whole_or_gone(seed: int) -> None:
    bench = Bench(seed=seed)
    bench.append(of_producer(0))
    bench.log.sync.flush()
    jointly(bench, *(of_producer(sequence) for sequence in range(1, 6)))
    bench.disk.crash()
    bench.open(recovery_point=1)
    records = all_records(bench.log)
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(records) >= 1
    # The producer continues with the batches that are gone.
    outcomes = jointly(bench, *(of_producer(sequence) for sequence in range(1, 6)))
    assert offsets(outcomes) == [(sequence, sequence) for sequence in range(1, 6)]


@pytest.mark.parametrize("seed", range(20))
def test_the_short_validation_agrees_with_the_general_one(seed: int) -> None:
    rng = random.Random(seed)
    config = LogConfig(max_message_bytes=rng.choice((100, 1 << 20)))
    accepted = 0
    for _ in range(200):
        records = random_header(rng)
        header = ordinary_header(memoryview(records), config, NOW_MS)
        try:
            received = read_header(records)
            found = validate(memoryview(records), config, AppendOrigin.CLIENT, NOW_MS)
        except (CorruptBatchError, StorageError, InspectionNeededError, UnsupportedMagicError):
            assert header is None
        else:
            is_kept = found[1] == [(0, received)]
            assert (header is not None) == is_kept
            assert header is None or found == (records, [(0, header)])
            accepted += header is not None
    assert 0 < accepted < 200


def random_header(rng: random.Random) -> bytearray:
    """Return a batch in which one field of the header may have another value."""
    has_producer = rng.random() < 0.5
    records = of_producer(3) if has_producer else batch([b"a", b"b"])
    fields = list(HEADER.unpack_from(records))
    changed = rng.randrange(-3, len(fields))
    if changed >= 0:
        old = fields[changed]
        near = rng.choice((-2, -1, 0, 1, 2, 8, 16, 32))
        fields[changed] = old ^ near if fields[changed] > 0 or near > 0 else near
        if changed == MAX_TIMESTAMP_FIELD:
            fields[changed] = NOW_MS + rng.choice((-1, 0, HOUR_MS, HOUR_MS + 1, 10 * HOUR_MS))
    try:
        HEADER.pack_into(records, 0, *fields)
    except struct.error:
        return records
    if changed != CRC_FIELD:
        set_crc(records, 0, len(records))
    return records


def test_batches_that_must_be_inspected_or_refused_do_not_join() -> None:
    damaged = batch([b"abc"])
    damaged[-1] ^= 1
    in_future = batch([b"a"], timestamp=NOW_MS + 100 * 3_600_000)
    bench = Bench()
    for records in (damaged, batch([b"a"]) + batch([b"b"]), in_future, batch([b"a"])[:-1]):
        view = memoryview(bytearray(records))
        assert bench.log.appender.validate_for_joint_append(view, NOW_MS) is None
    for config in (
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(compression_type="lz4"),
        LogConfig(segment_bytes=60),
    ):
        view = memoryview(batch([b"a"]))
        assert Bench(config).log.appender.validate_for_joint_append(view, NOW_MS) is None
